"""`assay bench`: how long attacks take, compared with the model passes that they make."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter


def bench(
    *models: str,
    attack: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    limit: int = 64,
    repeat: int = 3,
    data: str = "cifar10-1k",
    eps: str = "8/255",
    batch_size: int | None = None,
    device: str | None = None,
    precision: Literal["fast", "exact"] = "fast",
    out: Path | None = None,
    quiet: bool = False,
) -> None:
    """Time attacks, and compare each with the bare model passes that it makes; a ratio of 1.00 means no overhead.

    Attacks and bare passes are timed in turn, so the ratio is reliable even where the seconds are not.

    Parameters
    ----------
    models
        Zoo names or `path/to/file.py:factory`; resnet20-natural and resnet20-pgd by default.
    attack
        Attacks with their settings; one of every kind by default.
    limit
        Number of images, in one wave.
    repeat
        Number of repetitions; medians are reported.
    data
        A dataset name or path.
    eps
        Radius under L∞; with a small one, samples stay in the attack for more steps.
    batch_size
        Images per model call.
    device
        Device to run on; by default a GPU where there is one.
    precision
        Search on a faster surrogate of the model where there is one, or on the model itself.
    out
        JSON file to write.
    quiet
        Print the table only.
    """
    import json

    import torch

    from robustassay import data as datasets
    from robustassay.cli.terminal import Terminal
    from robustassay.eps import parse_eps
    from robustassay.errors import StoreFailed
    from robustassay.evaluation.model_ref import choose_device
    from robustassay.evaluation.timing import DEFAULT_ATTACKS, time_attacks

    terminal, where = Terminal(quiet=quiet), choose_device(device)
    dataset = datasets.load(data)
    timings = []
    attacks, names = attack or DEFAULT_ATTACKS, models or ("resnet20-natural", "resnet20-pgd")
    for timing in time_attacks(
        names,
        attacks,
        dataset.take(min(limit, len(dataset))),
        repeat=repeat,
        device=where,
        batch_size=batch_size,
        precision=precision,
        eps=parse_eps(eps),
    ):
        timings.append(timing)
        terminal.say(f"{timing.model} {timing.attack}: {timing.ratio:.2f} times its bare passes")
    rows = [
        [
            timing.model,
            timing.attack,
            timing.threat,
            f"{timing.robust_accuracy:.1%}",
            f"{timing.forwards / timing.images:,.1f}",
            f"{timing.backwards / timing.images:,.1f}",
            f"{1000 * timing.seconds / timing.images:,.1f}",
            f"{timing.ratio:.2f}",
        ]
        for timing in timings
    ]
    heading = ["model", "attack", "threat", "robust", "forwards", "backwards", "ms per image", "times bare"]
    terminal.listing(heading, rows)
    if out is not None:
        hardware = torch.cuda.get_device_name(where) if where.type == "cuda" else "CPU"
        content = {"hardware": hardware, "threads": torch.get_num_threads(), "torch": torch.__version__}
        try:
            out.write_text(json.dumps({**content, "timings": [one.to_json() for one in timings]}, indent=2) + "\n")
        except OSError as error:
            raise StoreFailed(f"{out} cannot be written ({error.strerror or error}): choose another file.") from error
