"""`assay eval`: one model or several, one threat, one attack or several."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from robustassay.cli.options import ExecutionOptions, OutputOptions, SearchOptions, ThreatOptions
from robustassay.errors import BadRequest

if TYPE_CHECKING:
    from robustassay.cli.terminal import Terminal
    from robustassay.data import Dataset
    from robustassay.evaluation import Result
    from robustassay.evaluation.prepare import PreparedEvaluation
    from robustassay.evaluation.progress import Progress
    from robustassay.remote import Service

WITHOUT_SCORES = "rays"
"""The default attack on a service that shows labels only."""

STARTED = time.perf_counter()
"""When the command started: importing torch takes seconds, which an estimate must count."""


def evaluate(
    models: Annotated[list[str], Parameter(consume_multiple=True)],
    /,
    *,
    data: str = "cifar10-1k",
    attack: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    limit: int | None = None,
    seed: int = 0,
    device: str | None = None,
    checkpoint: Path | None = None,
    classes: str | None = None,
    defense: str | None = None,
    naive: bool = False,
    dry_run: bool = False,
    threat: ThreatOptions = ThreatOptions(),  # noqa: B008, frozen values
    search: SearchOptions = SearchOptions(),  # noqa: B008
    execution: ExecutionOptions = ExecutionOptions(),  # noqa: B008
    output: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Measure how robust a model is, or several models.

    Every success that an attack claims is verified with a new forward pass. Finished samples are saved: the same
    command resumes an interrupted run, and a larger --limit extends a finished one.

    Parameters
    ----------
    models
        Zoo names (see `assay list models`), `path/to/file.py:factory` that returns a torch module from [0, 1] images
        to logits, models of other libraries: `torchvision:NAME`, `timm:NAME`, `hf:ORG/REPO`,
        `robustbench:NAME:THREAT`, `onnx:FILE`; or the address of a service.
    data
        A dataset name (see `assay list datasets`), a `.npz` file, `cifar10:FOLDER`, or a folder of images by class.
    attack
        Attacks with their settings, such as `pgd:steps=100,restarts=5`; pgd by default, square on a service.
    limit
        Number of samples, from the first.
    seed
        Seed of all random numbers.
    device
        Device to run on, such as cpu, cuda, cuda:1 or mps; by default a GPU where there is one.
    checkpoint
        Weights file for a model of timm, torchvision or `imagenet:`.
    classes
        Classes of the model that the data have, in the order of the data, such as `0,217,482`.
    defense
        Defense before the model, such as `jpeg:quality=75`, or several as `jpeg|bit-depth`; attacks take it into
        account.
    naive
        Attack without taking the defense into account; the difference in robust accuracy is false security.
    dry_run
        Check everything, print an estimate of time and memory, and stop.
    """
    from robustassay import data as datasets
    from robustassay.cli.terminal import Terminal
    from robustassay.evaluation.pipeline import evaluate_prepared

    terminal, dataset = Terminal(quiet=output.quiet or output.json), datasets.load(data)
    if classes is not None:
        _check_chosen(classes, dataset)
    names = [_defended(_named(model, checkpoint, classes), defense, naive) for model in dict.fromkeys(models)]
    found: list[tuple[Result, Path]] = []
    with terminal.progress(len(names) * (max(1, len(attack or ())) + search.confirm)) as progress:
        started = STARTED
        for name in names:
            prepared = _prepare(name, dataset, attack, threat, search, execution, output, progress, limit, seed, device)
            folder = _folder(prepared, attack, search, output, several=len(names) > 1)
            _announce(terminal, prepared, folder, output, time.perf_counter() - started)
            if not dry_run:
                found.append((evaluate_prepared(prepared, folder), folder))
            started = time.perf_counter()
    if not dry_run:
        _show(terminal, found, output)


def _prepare(
    name: str,
    dataset: "Dataset",
    attack: list[str] | None,
    threat: ThreatOptions,
    search: SearchOptions,
    execution: ExecutionOptions,
    output: OutputOptions,
    progress: "Progress",
    limit: int | None,
    seed: int,
    device: str | None,
) -> "PreparedEvaluation":
    """Prepare the evaluation of one model; a service without scores gets a default attack that needs none."""
    from robustassay.evaluation.prepare import prepare
    from robustassay.evaluation.tracking import Tracking
    from robustassay.remote import is_service

    options: dict[str, Any] = {
        "limit": limit,
        "seed": seed,
        "device": device,
        "keep_images": output.keep_images,
        "name": name,
        "search": search.search(),
        "execution": execution.execution(),
        "progress": progress if output.log is None else Tracking.to(output.log, also=progress),
    }
    model = name if search.max_queries is None else capped_service(name, search.max_queries)
    model_threat = threat.threat_model(dataset)
    chosen = attack or ["square" if is_service(name) else "pgd"]
    attacks = chosen if len(chosen) > 1 else chosen[0]
    try:
        return prepare(model, dataset, model_threat, attacks, **options)
    except BadRequest:
        if attack or not is_service(name):
            raise
    return prepare(model, dataset, model_threat, WITHOUT_SCORES, **options)


def _folder(
    prepared: "PreparedEvaluation",
    attack: list[str] | None,
    search: SearchOptions,
    output: OutputOptions,
    several: bool,
) -> Path:
    from robustassay.cli.run_folder import default_folder
    from robustassay.names import slug
    from robustassay.registry import spell

    if output.out is None:
        spelled = attack or [spell("attack", one) for one in prepared.attacks.values()]
        return default_folder(prepared, spelled, search.labels)
    return output.out / slug(prepared.model_ref.name) if several else output.out


def _announce(
    terminal: "Terminal", prepared: "PreparedEvaluation", folder: Path, output: OutputOptions, passed: float
) -> None:
    """Say how long it takes, with the seconds of start-up and inspection, and why a new folder is used."""
    from robustassay.cli.run_folder import explain_new_folder
    from robustassay.evaluation.estimate import estimate
    from robustassay.evaluation.run import missing_samples

    missing = missing_samples(prepared, folder)
    if missing:
        more = "; the remedies come on top" if prepared.advice.remedies else ""
        more += "; AutoAttack on the samples in doubt comes on top" if prepared.confirming else ""
        expected = estimate(prepared, missing).after(passed)
        terminal.say(f"{prepared.model_ref.name}: {missing} samples, {expected}{more}")
    else:
        terminal.say(f"{prepared.model_ref.name}: all samples are finished")
    if output.out is None and (reason := explain_new_folder(folder, prepared)):
        terminal.say(reason)


def _defended(model: str, defense: str | None, naive: bool) -> str:
    """Write a model with its defenses as one name."""
    if naive and defense is None:
        raise BadRequest("--naive needs a defense to ignore: name one with --defense.")
    return "|".join([*(["naive"] if naive else []), *([defense] if defense else []), model])


def _check_chosen(classes: str, dataset: "Dataset") -> None:
    """Refuse another number of classes than the data have: labels would mean other classes.

    Data without names of classes may lack the last ones, so more classes may be chosen for these.
    """
    chosen, known = len(classes.split(",")), len(dataset.classes)
    named = dataset.classes != tuple(map(str, range(known)))
    if chosen < known or (named and chosen > known):
        raise BadRequest(
            f"--classes names {chosen} classes, and the data have {known}: name one class of the model "
            "for each class of the data, in their order."
        )


def _named(model: str, checkpoint: Path | None, classes: str | None) -> str:
    """Write a model with its weights file and its classes as one name."""
    whole = model if checkpoint is None else _with_checkpoint(model, checkpoint)
    return whole if classes is None else f"classes:{classes}:{whole}"


def _with_checkpoint(model: str, checkpoint: Path) -> str:
    kind, _, rest = model.partition(":")
    if kind not in ("timm", "torchvision", "imagenet") or ":" in rest:
        raise BadRequest("--checkpoint needs a model such as timm:NAME, torchvision:NAME or imagenet:NAME.")
    if not checkpoint.is_file():
        raise BadRequest(f"There is no file {checkpoint}: check the path of the weights.")
    return f"{model}:{checkpoint}"


def _show(terminal: "Terminal", found: "list[tuple[Result, Path]]", output: OutputOptions) -> None:
    """Print a line per attack, then of each model the warnings and the worst case."""
    parts = [part for result, _ in found for part in result.parts.values() or [result]]
    runs = [part.counting_uint8_only() if output.uint8 else part for part in parts]
    if output.json:
        terminal.json([*runs, *(result for result, _ in found if result.parts and not output.uint8)])
        return
    terminal.table(runs)
    for result, folder in found:
        if len(found) > 1:
            terminal.heading(result)
        if result.parts and not output.uint8:
            terminal.result(result)
        terminal.warnings(result)
        terminal.say(f"Saved in {folder}")


def capped_service(place: str, max_queries: int | None) -> "Service":
    """Open a service that may be sent this many images in all."""
    from robustassay.remote import open_service

    return open_service(place, max_queries)
