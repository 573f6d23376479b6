"""`assay corruptions`: accuracy under common corruptions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

if TYPE_CHECKING:
    import pandas as pd

    from robustassay.evaluation.corruption_accuracy import ReadCorrupted


def corruptions(
    models: Annotated[list[str], Parameter(consume_multiple=True)],
    /,
    *,
    data: str = "cifar10-1k",
    files: Path | None = None,
    baseline: str | None = None,
    limit: int | None = None,
    kind: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    seed: int = 0,
    device: str | None = None,
    out: Path = Path("runs/corruptions"),
    map: Path | None = None,
    csv: Path | None = None,
    quiet: bool = False,
) -> None:
    """Measure accuracy under 15 common corruptions at 5 severities each (Hendrycks & Dietterich 2019).

    There is no attack: the corruptions are random, with separate random numbers per image. Finished corruptions are
    saved: the same command resumes an interrupted one, and a larger --limit extends it.

    Parameters
    ----------
    models
        Names of models, as for `assay eval`.
    data
        Dataset to corrupt (see `assay list datasets`).
    files
        Folder of corrupted images to use instead, in the layout of CIFAR-10-C or ImageNet-C.
    baseline
        Model to compare with: adds the mean corruption error (mCE); it is measured too.
    limit
        Number of images, from the first.
    kind
        Only these kinds, such as `fog snow`.
    seed
        Seed of all random numbers.
    device
        Device to run on; by default a GPU where there is one.
    out
        Folder of the predictions.
    map
        Heat map to draw (.png, .svg; needs the extra `plots`).
    csv
        CSV file for the accuracy of every corruption.
    quiet
        Print the tables only.
    """
    from robustassay.analysis import corruptions as analysis
    from robustassay.cli.terminal import Terminal
    from robustassay.data.corruptions import KINDS, CorruptionSpec, corruption_grid
    from robustassay.errors import UnknownName
    from robustassay.evaluation.corruption_accuracy import CorruptionEvaluation
    from robustassay.evaluation.model_ref import ModelRef, choose_device
    from robustassay.report.charts import corruption_map

    if map is not None:
        corruption_map.check_name(map)
    for unknown in sorted(set(kind or ()) - set(KINDS)):
        raise UnknownName("corruption", unknown, KINDS)
    names = list(dict.fromkeys([*models, *([baseline] if baseline else [])]))
    grid = [*([] if files else [CorruptionSpec(analysis.CLEAN, 0)]), *corruption_grid(tuple(kind) if kind else KINDS)]
    read = _reader(data, files, limit, seed)
    evaluation = CorruptionEvaluation([ModelRef.of(name) for name in names], grid, read, out, choose_device(device))
    terminal = Terminal(quiet=quiet)
    with terminal.progress(len(names)) as progress:
        predictions = evaluation.run(progress)
    terminal.listing(*_summary(predictions, baseline))
    terminal.listing(*_by_kind(predictions))
    if csv is not None:
        by_corruption = predictions.groupby(["model", "kind", "severity"], sort=False)["correct"]
        csv.parent.mkdir(parents=True, exist_ok=True)
        by_corruption.agg(accuracy="mean", images="size").reset_index().to_csv(csv, index=False)
        terminal.say(f"Saved {csv}")
    if map is not None:
        corruption_map.draw(predictions, map)
        terminal.say(f"Saved {map}")
    terminal.say(f"Predictions are saved in {out}")


def _reader(data: str, files: Path | None, limit: int | None, seed: int) -> "ReadCorrupted":
    from robustassay import data as datasets
    from robustassay.data import corruptions as corrupting

    if files is not None:
        return lambda one: corrupting.read_corrupted(files, one).take(limit)
    dataset = datasets.load(data).take(limit)
    return lambda one: corrupting.corrupt(dataset, one, seed) if one.severity else dataset


def _summary(predictions: "pd.DataFrame", baseline: str | None) -> tuple[list[str], list[list[str]]]:
    """One line per model: the numbers that papers report."""
    from robustassay.analysis import corruptions as analysis

    mce = None if baseline is None else analysis.mean_corruption_error(predictions, baseline).to_dict()
    kinds: dict[Any, dict[Any, float]] = analysis.by_kind(predictions).to_dict("index")
    heading = ["model", "clean", "corrupted", "95 % interval", *([f"mCE vs {baseline}"] if baseline else []), "worst"]
    lines = []
    for name, mean in analysis.mean_accuracy(predictions).to_dict("index").items():
        own = kinds[name]
        clean = own.pop(analysis.CLEAN, None)
        lowest, worst = min((accuracy, kind) for kind, accuracy in own.items())
        lines.append(
            [
                str(name),
                "–" if clean is None else f"{clean:.1%}",
                f"{mean['accuracy']:.1%}",
                f"{mean['low']:.1%} - {mean['high']:.1%}",
                *([] if mce is None else [f"{mce[name]:.1%}"]),
                f"{worst} {lowest:.1%}",
            ]
        )
    return heading, lines


def _by_kind(predictions: "pd.DataFrame") -> tuple[list[str], list[list[str]]]:
    """One line per kind, averaged over severities."""
    from robustassay.analysis import corruptions as analysis

    kinds = analysis.by_kind(predictions)
    lines = [[str(kind), *(f"{value:.1%}" for value in kinds[kind])] for kind in kinds]
    return ["accuracy under", *map(str, kinds.index)], lines
