"""`assay eval`: one model, one threat, one attack or several."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import Parameter

import robustassay as ra
from robustassay.errors import BadRequest
from robustassay.names import slug

if TYPE_CHECKING:
    from robustassay.data import Dataset
    from robustassay.remote import Service
    from robustassay.threat import TargetRule, ThreatModel

DEFAULT_EPS: Final = {"Linf": "8/255", "L2": "0.5", "L1": "12", "L0": "20"}


def evaluate(
    model: str,
    /,
    *,
    data: str = "cifar10-1k",
    attack: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    norm: Literal["Linf", "L2", "L1", "L0"] | None = None,
    eps: str | None = None,
    threat: str | None = None,
    targeted: str | None = None,
    limit: int | None = None,
    batch_size: int | None = None,
    device: Literal["cpu", "cuda"] | None = None,
    seed: int = 0,
    out: Path | None = None,
    query_budget: int | None = None,
    max_queries: int | None = None,
    shard: str = "1/1",
    keep_images: bool = False,
    uint8: bool = False,
    defense: str | None = None,
    naive: bool = False,
    smallest_eps: bool = False,
    confirm: bool = False,
    adaptive: Literal["auto"] | None = None,
    eot: int = 20,
    despite_flags: bool = False,
    precision: Literal["fast", "exact"] = "fast",
    workers: int = 1,
    ray: str | None = None,
    log: Literal["tensorboard", "wandb", "mlflow"] | None = None,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Measure how robust a model is.

    Every success an attack claims is verified on a fresh forward pass. Finished samples are kept: the same
    command resumes an interrupted run, and a larger --limit extends a finished one.

    Parameters
    ----------
    model
        A zoo name (see `assay list models`), `path/to/file.py:factory` that returns a torch module from [0, 1] images
        to logits, or one kept elsewhere: `torchvision:NAME`, `timm:NAME`, `hf:ORG/REPO`, `robustbench:NAME:THREAT`,
        `onnx:FILE`.
    data
        A dataset name (see `assay list datasets`), a `.npz` file, `cifar10:FOLDER`, or a folder of images by class.
    attack
        Attacks with their settings, such as `pgd:steps=100,restarts=5`; pgd by default.
    norm
        How perturbations are measured; Linf by default.
    eps
        Radius on the [0, 1] pixel scale, such as `8/255`; by default 8/255 (Linf), 0.5 (L2), 12 (L1), 20 (L0).
    threat
        A known norm and radius instead: cifar10-linf, cifar10-l2, cifar100-linf, cifar100-l2, imagenet-linf (4/255) or
        imagenet-linf-16 (Dong et al. 2020).
    targeted
        `random`, `least-likely`, `given` (what came with the images), or a file with a line `sample_id,target` (or just
        `target`) for each sample.
    limit
        How many samples, the first ones.
    batch_size
        Images a model call; changes speed and memory, never results.
    device
        Where to run; a GPU where there is one, by default.
    seed
        Of all random numbers.
    out
        Folder of the run; by default one below `runs/`, named after the request.
    query_budget
        Images an attack may send for one sample, at most.
    max_queries
        Images that may be sent to a service in all, at most; answers kept from before are free.
    shard
        Do the i-th of n parts of the samples, as `i/n`; the parts share one folder.
    keep_images
        Save the adversarial images too.
    uint8
        Count a success only if its image still reaches the goal when rounded to 8 bits.
    defense
        What stands before the model, such as `jpeg:quality=75`, or several as `jpeg|bit-depth`; attacks know of it.
    naive
        Attack as one who does not know of the defense; the difference is false security.
    smallest_eps
        Search each sample's smallest radius at which the attack succeeds, starting from --eps.
    confirm
        Afterwards, run AutoAttack on the samples that the attack left in doubt.
    adaptive
        `auto` examines the model first, as `assay doctor` does, and goes on with the remedies it names where attacks
        would fail unseen; the worst case of all counts.
    eot
        Draws that gradients are averaged over, where the model draws random numbers.
    despite_flags
        Judge even a model on which the attack must fail, such as one that returns probabilities.
    precision
        Search on a quicker surrogate of the model where it has one, or on the model itself; it is judged itself anyway.
    workers
        ProcessBackend on this machine that share the work.
    ray
        Address of a Ray cluster that does the work, or `local`.
    log
        Also write the robust accuracy so far to TensorBoard (in `logs/`), Weights & Biases or MLflow.
    quiet
        Print the final table only.
    json
        Print the final numbers as JSON instead of a table.
    """
    from robustassay.cli.terminal import Terminal
    from robustassay.evaluation.tracking import Tracking

    terminal = Terminal(quiet=quiet or json)
    if naive and defense is None:
        raise BadRequest("--naive needs a defense not to know of: name one with --defense.")
    model = "|".join([*(["naive"] if naive else []), *([defense] if defense else []), model])
    danger, dataset = _threat(norm, eps, threat, targeted, data)
    attacks = attack or ["pgd"]
    special = [f"queries{query_budget}"] * bool(query_budget) + ["confirm"] * confirm + ["smallest"] * smallest_eps
    special += ["adaptive"] * bool(adaptive)
    folder = out or Path("runs") / "_".join(
        map(slug, (model, dataset.name, str(danger), "+".join(attacks), f"seed{seed}", *special))
    )
    with terminal.progress(len(attacks) + confirm) as progress:
        result = ra.evaluate(
            model if max_queries is None else capped_service(model, max_queries),
            dataset,
            danger,
            attacks if len(attacks) > 1 else attacks[0],
            limit=limit,
            seed=seed,
            device=device,
            out=folder,
            keep_images=keep_images,
            name=model,
            search=ra.Search(precision, eot, query_budget, smallest_eps, adaptive, confirm, despite_flags),
            execution=ra.Execution(batch_size, workers=workers, ray=ray, shard=_shard(shard)),
            progress=progress if log is None else Tracking.to(log, also=progress),
        )
    shown = [part.counting_uint8_only() if uint8 else part for part in result.parts.values() or [result]]
    if json:
        terminal.json(shown)
    else:
        terminal.table(shown)
        terminal.warnings(result)
    if result.parts and not (uint8 or json):
        terminal.result(result)
    terminal.say(f"Saved in {folder}")


def _threat(
    norm: str | None, eps: str | None, known: str | None, targeted: str | None, data: str
) -> "tuple[ThreatModel, Dataset]":
    from robustassay import data as datasets
    from robustassay.registry import lookup
    from robustassay.threat import ThreatModel, preset

    if known is not None and (norm is not None or eps is not None):
        raise BadRequest("--threat names a norm and a radius: leave out --norm and --eps, or --threat.")
    chosen = norm or "Linf"
    measured = preset(known) if known else lookup("norm", chosen)(DEFAULT_EPS[chosen] if eps is None else eps)
    dataset = datasets.load(data)
    return ThreatModel(measured, _rule(targeted, dataset)), dataset


def _rule(targeted: str | None, dataset: "Dataset") -> "TargetRule | None":
    from robustassay.threat import LabelList, LeastLikely, RandomTarget

    if targeted is None:
        return None
    if targeted in ("random", "least-likely"):
        return RandomTarget() if targeted == "random" else LeastLikely()
    if targeted == "given":
        from robustassay.data.photo_frames import target_labels_of

        named = target_labels_of(dataset)
        if named is None:
            raise BadRequest(
                "These images come without targets: use --targeted random, least-likely or a file of them."
            )
        return LabelList(named)
    path = Path(targeted)
    if not path.is_file():
        raise BadRequest(f"--targeted takes random, least-likely or a file of targets; there is no file {targeted}.")
    return LabelList.from_file(path, dataset.ids)


def _shard(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdigit() and parts.isdigit()):
        raise BadRequest(f"A shard is written i/n, such as 1/4, not {text!r}.")
    return int(part), int(parts)


def capped_service(place: str, max_queries: int | None) -> "Service":
    """Open a service that may be asked so often in all."""
    from robustassay.remote import Adapter, Service, is_service

    if not is_service(place):
        raise BadRequest(
            f"{place} is no service, which has an address or a .toml file; of a model, --query-budget caps each sample."
        )
    return Service(Adapter.of(place).capped(max_queries))
