"""The tables of Liu et al. and their counterparts here."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np
import pandas as pd

from robustassay.analysis import transfer
from robustassay.analysis.intervals import wilson
from robustassay.analysis.transfer import Among, Measure, TransferMatrix
from robustassay.studies.liu2017 import measures, planes
from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.settings import ExampleSet
from robustassay.studies.page import Table

SHOWN: Final = ("table1a", "table1b", "table2", "table3", "table4")
"""The tables that are drawn as well, and that the terminal prints."""

PLANE_REACHES: Final = (planes.NEAR, planes.FAR)

MANY: Final = 100
"""Classes from which on the paper's top-5 makes sense; among ten, nearly every label is in the top 5."""


@final
@dataclass(frozen=True)
class MatrixTable:
    """A table of rates by source and target: its number in the paper, its set, and the number of its top-k version."""

    number: str
    example_set: ExampleSet
    top_k_number: str = ""

    @property
    def measure(self) -> Measure:
        """What an entry counts."""
        return "matching" if self.example_set.targeted else "accuracy"


MATRIX_TABLES: Final = (
    MatrixTable("1a", ExampleSet("opt", False, False), "8"),
    MatrixTable("1b", ExampleSet("fg", False, False), "10"),
    MatrixTable("2", ExampleSet("opt", True, False), "12"),
    MatrixTable("3", ExampleSet("opt", True, True), "13"),
    MatrixTable("3-mean", ExampleSet("opt-mean", True, True)),
    MatrixTable("4", ExampleSet("opt", False, True), "14"),
    MatrixTable("1a-tau", ExampleSet("opt-tau", False, False)),
    MatrixTable("15", ExampleSet("opt-small", False, False), "16"),
    MatrixTable("15-lambda", ExampleSet("opt-lambda", False, False)),
    MatrixTable("17", ExampleSet("opt-large", True, False), "18"),
    MatrixTable("19", ExampleSet("fgs", False, False), "20"),
    MatrixTable("21", ExampleSet("fg", False, True), "22"),
    MatrixTable("23", ExampleSet("fgs", False, True), "24"),
    MatrixTable("25", ExampleSet("fg", True, False)),
    MatrixTable("25-fgs", ExampleSet("fgs", True, False)),
    MatrixTable("28", ExampleSet("fg", True, True), "29"),
    MatrixTable("30", ExampleSet("fgs", True, True), "31"),
)
SAME: Final = (("9", ExampleSet("opt", False, False)), ("26", measures.FAST[0]), ("27", measures.FAST[1]))


def has_many_classes(experiment: LiuExperiment) -> bool:
    """Whether numbers of labels and chance hits can be compared with the paper's 1,000 classes."""
    return len(experiment.dataset.classes) >= MANY


def top_of(experiment: LiuExperiment) -> int:
    """Return the k of top-k tables: the paper's 5, or 2 with few classes."""
    return 5 if has_many_classes(experiment) else 2


def tables(experiment: LiuExperiment) -> list[Table]:
    """Return every table, in the order of the paper."""
    sets = experiment.settings.example_sets()
    made = [accuracies(experiment), noise(experiment), noise_matches(experiment), labels_on_planes(experiment)]
    made += [cosines(experiment), diameters(experiment), minimal_rmsd(experiment)]
    for matrix_table in MATRIX_TABLES:
        if matrix_table.example_set in sets:
            made.append(rates(experiment, matrix_table, matrix_table.number, 1))
            if matrix_table.top_k_number:
                made.append(rates(experiment, matrix_table, matrix_table.top_k_number, top_of(experiment)))
    made += [same(experiment, number, example_set) for number, example_set in SAME if example_set in sets]
    made.append(common(experiment))
    return sorted(made, key=lambda table: _order(table.name))


def matrix(experiment: LiuExperiment, example_set: ExampleSet, top: int = 1, among: Among = "all") -> TransferMatrix:
    """Return the rates of a set: matching where targeted, else accuracy."""
    measure: Measure = "matching" if example_set.targeted else "accuracy"
    return transfer.matrix(experiment.outcomes(example_set), measure, top, among)


def distances(experiment: LiuExperiment, example_set: ExampleSet) -> pd.Series:
    """Return the average RMSD of each source's examples."""
    outcomes = experiment.outcomes(example_set)
    return outcomes.groupby("source", sort=False)["rmsd"].mean()


def rates(experiment: LiuExperiment, matrix_table: MatrixTable, number: str, top: int) -> Table:
    """Return a table of rates with its column of distances."""
    found, far = matrix(experiment, matrix_table.example_set, top), distances(experiment, matrix_table.example_set)
    low, high = found.interval()
    lines, entries = [], []
    for source in found.counts.index:
        line = [str(source), f"{far[source]:.2f}"]
        for target in found.counts.columns:
            ends = float(low.loc[source, target]), float(high.loc[source, target])
            rate = found.rate(source, target)
            line.append(f"{rate.value:.0%} ({100 * ends[0]:.0f}-{100 * ends[1]:.0f})")
            entries.append((source, far[source], target, matrix_table.measure, top, rate.count, rate.total, *ends))
        lines.append(tuple(line))
    columns = ["source", "rmsd", "target", "measure", "top", "count", "total", "low", "high"]
    what = f"top-{top} {'matching rate' if matrix_table.measure == 'matching' else 'accuracy'}"
    return Table(
        f"table{number}",
        f"{_title(number)}: {what} (95 % interval), {matrix_table.example_set.description}",
        ("made on", "RMSD", *map(str, found.counts.columns)),
        tuple(lines),
        pd.DataFrame(entries, columns=columns),
        printed=f"table{number}" in SHOWN,
    )


def _title(number: str) -> str:
    """Name a table as the paper does, or the table of the paper that it stands beside."""
    base, _, more = number.partition("-")
    return f"Beside Table {base.upper()}" if more else f"Table {base.upper()}"


def accuracies(experiment: LiuExperiment) -> Table:
    """Return Table 7: the models on all images of the dataset."""
    entries, lines, top = [], [], top_of(experiment)
    for name in experiment.models:
        places = experiment.clean.loc[experiment.clean["model"] == name, "label_rank"].to_numpy()
        right = [int((places < best).sum()) for best in (1, top)]
        entries.append((name, *right, len(places)))
        lines.append((name, *(f"{count / len(places):.1%}" for count in right), f"{len(places):,}"))
    frame = pd.DataFrame(entries, columns=["model", "top1", f"top{top}", "total"])
    heading = ("model", "top-1 accuracy", f"top-{top} accuracy", "images")
    title = f"Table 7: the models on clean images of {experiment.dataset.name}"
    return Table("table7", title, heading, tuple(lines), frame, printed=False)


def noise(experiment: LiuExperiment) -> Table:
    """Return Table 11: the models under Gaussian noise."""
    found = measures.noise(experiment)
    heading = ("standard deviation", "RMSD", *experiment.models)
    lines = _noise_lines(experiment, found, "right")
    return Table("table11", "Table 11: accuracy under Gaussian noise", heading, lines, found, printed=False)


def noise_matches(experiment: LiuExperiment) -> Table:
    """Return the matching rate of Gaussian noise, which the paper states in its section 4."""
    found = measures.noise(experiment)
    heading = ("standard deviation", "RMSD", *experiment.models)
    lines = _noise_lines(experiment, found, "matched")
    title = "Section 4: matching rate of Gaussian noise"
    return Table("table11-matching", title, heading, lines, found, printed=False)


def _noise_lines(experiment: LiuExperiment, found: pd.DataFrame, column: str) -> tuple[tuple[str, ...], ...]:
    lines = []
    for std, rows in found.groupby("std"):
        shares = (rows[column] / rows["total"]).set_axis(rows["model"])
        cells = [f"{shares[name]:.1%}" for name in experiment.models]
        lines.append((f"{std}", f"{rows['rmsd'].iloc[0]:.2f}", *cells))
    return tuple(lines)


def labels_on_planes(experiment: LiuExperiment) -> Table:
    """Return Table 5: how many labels each model predicts on the planes of Figure 3, and on planes of other images."""
    drawn = {f"Figure 3, to RMSD {reach:g}": planes.regions_around(experiment, reach) for reach in PLANE_REACHES}
    counted = planes.counted_planes(experiment)
    rows = [(plane, name, count) for plane, found in drawn.items() for name, count in found.distinct().items()]
    rows += [
        (f"image {at}, to RMSD {planes.FAR:g}", name, count)
        for at, found in enumerate(counted)
        for name, count in found.distinct().items()
    ]
    frame = pd.DataFrame(rows, columns=["plane", "model", "labels"])
    names = list(experiment.models)
    lines = [(plane, *(str(found.distinct()[name]) for name in names)) for plane, found in drawn.items()]
    summaries = (("mean", np.mean), ("most", np.max))
    for word, summary in summaries:
        values = [summary([found.distinct()[name] for found in counted]) for name in names]
        lines.append((f"{word} over {len(counted)} images", *(f"{value:.3g}" for value in values)))
    title = f"Table 5: labels, of {len(experiment.dataset.classes):,}, on planes"
    return Table("table5", title, ("plane", *names), tuple(lines), frame)


def diameters(experiment: LiuExperiment) -> Table:
    """Return how far each model keeps the true label along the lines of Figure 4, on all images."""
    found, end = measures.DIAMETERS.get(experiment), experiment.settings.line_end
    lines = []
    for line in found["line"].unique():
        own = found[found["line"] == line].groupby("model")["reach"].median()
        lines.append(
            (line, *(f"{own[name]:.0f}" if np.isfinite(own[name]) else f"> {end:g}" for name in experiment.models))
        )
    title = f"Section 6: median distance to the boundary along the gradient of {experiment.reference[0]} and others"
    return Table("diameters", title, ("line", *experiment.models), tuple(lines), found, printed=False)


def minimal_rmsd(experiment: LiuExperiment) -> Table:
    """Return the minimal transferable RMSD from the reference source to every model."""
    found, lines = measures.minimal_rmsd(experiment), []
    for method in ("fg", "fgs"):
        for name in experiment.models:
            values = found.loc[(found["method"] == method) & (found["target"] == name), "rmsd"]
            half, most = quantiles(values)
            lines.append((method.upper(), name, reached(half), reached(most), f"{np.isfinite(values).mean():.0%}"))
    title = f"Section 3.2.2: minimal transferable RMSD from {experiment.reference[0]}"
    heading = ("method", "to", "median", "90 %", f"found below {experiment.settings.line_end:g}")
    return Table("minimal-rmsd", title, heading, tuple(lines), found, printed=False)


def cosines(experiment: LiuExperiment) -> Table:
    """Return Table 33: the mean cosine between gradients."""
    found = measures.COSINES.get(experiment)
    lines = tuple((str(row[0]), *(f"{value:.2f}" for value in row[1:])) for row in found.itertuples(index=False))
    return Table(
        "table33", "Table 33: mean cosine between the models' gradients", ("", *experiment.models), lines, found
    )


def same(experiment: LiuExperiment, number: str, example_set: ExampleSet) -> Table:
    """Return a table of same mistakes, on the examples of the reference source."""
    source, _ = experiment.reference
    outcomes = experiment.outcomes(example_set)
    equal, both = transfer.same_mistakes(outcomes[outcomes["source"] == source])
    low, high = wilson(equal.to_numpy(), both.to_numpy())
    names, lines, entries = list(equal.columns), [], []
    for i, name in enumerate(names):
        line = [name]
        for j in range(i + 1):
            count, total = int(equal.to_numpy()[i, j]), int(both.to_numpy()[i, j])
            line.append(f"{count / total:.0%} ({100 * low[i, j]:.0f}-{100 * high[i, j]:.0f})" if total else "—")
            entries.append((name, names[j], count, total))
        lines.append((*line, *[""] * (len(names) - i - 1)))
    frame = pd.DataFrame(entries, columns=["model", "other", "same", "both wrong"])
    title = f"Table {number}: same wrong label where both are wrong; {example_set.description}, {source}"
    return Table(f"table{number}", title, ("", *names), tuple(lines), frame)


def common(experiment: LiuExperiment) -> Table:
    """Return Table 32: the most common wrong labels on the examples of the reference source."""
    source, _ = experiment.reference
    example_set = MATRIX_TABLES[0].example_set
    outcomes = experiment.outcomes(example_set)
    found = transfer.wrong_labels(outcomes[outcomes["source"] == source])
    found = found.assign(name=[experiment.dataset.classes[label] for label in found["label"]])
    rank = found.groupby("target", sort=False).cumcount()
    lines = []
    for place in range(int(rank.max()) + 1 if len(found) else 0):
        here = found[rank == place]
        texts = {row.target: f"{row.name} ({row.part:.0%})" for row in here.itertuples(index=False)}
        lines.append((str(place + 1), *(texts.get(name, "") for name in experiment.models)))
    title = f"Table 32: the most common wrong labels; {example_set.description}, {source}"
    return Table("table32", title, ("", *experiment.models), tuple(lines), found)


def _order(name: str) -> tuple[int, str]:
    """Order tables by their number in the paper; those without one come last."""
    digits = "".join(letter for letter in name.partition("-")[0] if letter.isdigit())
    return int(digits or 99), name


def reached(value: float) -> str:
    """Write an RMSD, or that it was not reached."""
    return f"{value:.1f}" if np.isfinite(value) else "not reached"


def quantiles(values: pd.Series) -> tuple[float, float]:
    """Return the RMSD by which half, and by which 90 %, of the images have a transferable example."""
    half, most = np.quantile(values.to_numpy(float), [0.5, 0.9], method="inverted_cdf")
    return float(half), float(most)
