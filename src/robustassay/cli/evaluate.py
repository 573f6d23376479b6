"""`assay eval`: one model, one threat, one attack or several."""

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from robustassay.cli.options import ExecutionOptions, OutputOptions, SearchOptions, ThreatOptions
from robustassay.errors import BadRequest

if TYPE_CHECKING:
    from robustassay.cli.terminal import Terminal
    from robustassay.evaluation import Result
    from robustassay.remote import Service


def evaluate(
    model: str,
    /,
    *,
    data: str = "cifar10-1k",
    attack: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    limit: int | None = None,
    seed: int = 0,
    device: Literal["cpu", "cuda"] | None = None,
    defense: str | None = None,
    naive: bool = False,
    threat: ThreatOptions = ThreatOptions(),  # noqa: B008, frozen values
    search: SearchOptions = SearchOptions(),  # noqa: B008
    execution: ExecutionOptions = ExecutionOptions(),  # noqa: B008
    output: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Measure how robust a model is.

    Every success that an attack claims is verified with a new forward pass. Finished samples are saved: the same
    command resumes an interrupted run, and a larger --limit extends a finished one.

    Parameters
    ----------
    model
        A zoo name (see `assay list models`), `path/to/file.py:factory` that returns a torch module from [0, 1] images
        to logits, or a model of another library: `torchvision:NAME`, `timm:NAME`, `hf:ORG/REPO`,
        `robustbench:NAME:THREAT`, `onnx:FILE`.
    data
        A dataset name (see `assay list datasets`), a `.npz` file, `cifar10:FOLDER`, or a folder of images by class.
    attack
        Attacks with their settings, such as `pgd:steps=100,restarts=5`; pgd by default.
    limit
        Number of samples, from the first.
    seed
        Seed of all random numbers.
    device
        Device to run on; by default a GPU where there is one.
    defense
        Defense before the model, such as `jpeg:quality=75`, or several as `jpeg|bit-depth`; attacks take it into
        account.
    naive
        Attack without taking the defense into account; the difference in robust accuracy is false security.
    """
    from robustassay import data as datasets
    from robustassay.cli.run_folder import default_folder, explain_new_folder
    from robustassay.cli.terminal import Terminal
    from robustassay.evaluation.pipeline import evaluate_prepared
    from robustassay.evaluation.prepare import prepare
    from robustassay.evaluation.tracking import Tracking

    terminal = Terminal(quiet=output.quiet or output.json)
    name, attacks, dataset = _defended(model, defense, naive), attack or ["pgd"], datasets.load(data)
    with terminal.progress(len(attacks) + search.confirm) as progress:
        prepared = prepare(
            name if search.max_queries is None else capped_service(name, search.max_queries),
            dataset,
            threat.threat_model(dataset),
            attacks if len(attacks) > 1 else attacks[0],
            limit=limit,
            seed=seed,
            device=device,
            keep_images=output.keep_images,
            name=name,
            search=search.search(),
            execution=execution.execution(),
            progress=progress if output.log is None else Tracking.to(output.log, also=progress),
        )
        folder = output.out or default_folder(prepared, attacks, search.labels)
        if output.out is None and (reason := explain_new_folder(folder, prepared)):
            terminal.say(reason)
        result = evaluate_prepared(prepared, folder)
    _show(terminal, result, output)
    terminal.say(f"Saved in {folder}")


def _defended(model: str, defense: str | None, naive: bool) -> str:
    """Write a model with its defenses as one name."""
    if naive and defense is None:
        raise BadRequest("--naive needs a defense to ignore: name one with --defense.")
    return "|".join([*(["naive"] if naive else []), *([defense] if defense else []), model])


def _show(terminal: "Terminal", result: "Result", output: OutputOptions) -> None:
    """Print the result of every attack, then the warnings and the worst case."""
    shown = [part.counting_uint8_only() if output.uint8 else part for part in result.parts.values() or [result]]
    if output.json:
        terminal.json(shown)
        return
    terminal.table(shown)
    terminal.warnings(result)
    if result.parts and not output.uint8:
        terminal.result(result)


def capped_service(place: str, max_queries: int | None) -> "Service":
    """Open a service that may be sent this many images in all."""
    from robustassay.remote import open_service

    return open_service(place, max_queries)
