"""`assay corruptions`: accuracy under common corruptions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    import pandas as pd

    from robustassay.evaluation.corrupted import ReadCell


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
    device: Literal["cpu", "cuda"] | None = None,
    out: Path = Path("runs/corruptions"),
    map: Path | None = None,
    csv: Path | None = None,
    quiet: bool = False,
) -> None:
    """Measure accuracy under 15 common corruptions at 5 severities each (Hendrycks & Dietterich 2019).

    Nobody attacks here: images are spoilt by chance, each by random numbers of its own. Finished cells are kept, so
    the same command resumes an interrupted one, and a larger --limit extends it.

    Parameters
    ----------
    models
        Names of models, as for `assay eval`.
    data
        The dataset to spoil (see `assay list datasets`).
    files
        A folder of images that are spoilt already, in CIFAR-10-C's or ImageNet-C's layout, instead.
    baseline
        A model to compare with: adds its mean corruption error, mCE, and measures it too where it is not named.
    limit
        How many images, the first ones.
    kind
        Some kinds only, such as `fog snow`.
    seed
        Of all random numbers.
    device
        Where to run; a GPU where there is one, by default.
    out
        Folder of the answers.
    map
        Also draw a heat map (.png, .svg; needs the extra `plots`).
    csv
        Also write every cell's accuracy to a file.
    quiet
        Print the tables only.
    """
    from robustassay.analysis import corruptions as analysis
    from robustassay.cli.terminal import Terminal
    from robustassay.data.corruptions import KINDS, CorruptionSpec, corruption_grid
    from robustassay.errors import UnknownName
    from robustassay.evaluation.corrupted import CorruptionBench
    from robustassay.evaluation.model_ref import ModelRef, choose_device
    from robustassay.report.charts import corruption_map

    if map is not None:
        corruption_map.check_name(map)
    for unknown in sorted(set(kind or ()) - set(KINDS)):
        raise UnknownName("corruption", unknown, KINDS)
    names = list(dict.fromkeys([*models, *([baseline] if baseline else [])]))
    grid = [*([] if files else [CorruptionSpec(analysis.CLEAN, 0)]), *corruption_grid(tuple(kind) if kind else KINDS)]
    read = _reader(data, files, limit, seed)
    bench = CorruptionBench([ModelRef.of(name) for name in names], grid, read, out, choose_device(device))
    terminal = Terminal(quiet=quiet)
    with terminal.progress(len(names)) as progress:
        answers = bench.run(progress)
    terminal.listing(*_summary(answers, baseline))
    terminal.listing(*_by_kind(answers))
    if csv is not None:
        cells_of = answers.groupby(["model", "kind", "severity"], sort=False)["correct"]
        csv.parent.mkdir(parents=True, exist_ok=True)
        cells_of.agg(accuracy="mean", images="size").reset_index().to_csv(csv, index=False)
        terminal.say(f"Saved {csv}")
    if map is not None:
        corruption_map.draw(answers, map)
        terminal.say(f"Saved {map}")
    terminal.say(f"Answers are kept in {out}")


def _reader(data: str, files: Path | None, limit: int | None, seed: int) -> "ReadCell":
    from robustassay import data as datasets
    from robustassay.data import corruptions as spoiling

    if files is not None:
        return lambda cell: spoiling.read_corrupted(files, cell).take(limit)
    dataset = datasets.load(data).take(limit)
    return lambda cell: spoiling.corrupt(dataset, cell, seed) if cell.severity else dataset


def _summary(answers: "pd.DataFrame", baseline: str | None) -> tuple[list[str], list[list[str]]]:
    """One line a model: the numbers that papers give."""
    from robustassay.analysis import corruptions as analysis

    mce = None if baseline is None else analysis.mean_corruption_error(answers, baseline).to_dict()
    kinds: dict[Any, dict[Any, float]] = analysis.by_kind(answers).to_dict("index")
    heading = ["model", "clean", "corrupted", "95 % interval", *([f"mCE vs {baseline}"] if baseline else []), "worst"]
    lines = []
    for name, mean in analysis.mean_accuracy(answers).to_dict("index").items():
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


def _by_kind(answers: "pd.DataFrame") -> tuple[list[str], list[list[str]]]:
    """One line a kind, averaged over severities."""
    from robustassay.analysis import corruptions as analysis

    kinds = analysis.by_kind(answers)
    lines = [[str(kind), *(f"{value:.1%}" for value in kinds[kind])] for kind in kinds]
    return ["accuracy under", *map(str, kinds.index)], lines
