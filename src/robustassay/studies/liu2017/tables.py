"""The tables of Liu et al. and their counterparts here."""

from dataclasses import dataclass
from typing import Final, final

import numpy as np
import pandas as pd

from robustassay.analysis import transfer
from robustassay.analysis.intervals import wilson
from robustassay.analysis.transfer import Among, Measure, TransferMatrix
from robustassay.studies.liu2017 import planes, probes
from robustassay.studies.liu2017.bench import Bench
from robustassay.studies.liu2017.plan import Kind
from robustassay.studies.page import Table

MANY: Final = 100
"""Classes from which on the paper's top-5 makes sense: of ten, the best five hold nearly everything."""


@final
@dataclass(frozen=True)
class Cells:
    """A table of rates by source and target: its number in the paper, its set, and the number of its top-k table."""

    number: str
    kind: Kind
    surrogate: str = ""

    @property
    def measure(self) -> Measure:
        """What a cell counts."""
        return "matching" if self.kind.targeted else "accuracy"


MATRICES: Final = (
    Cells("1a", Kind("opt", False, False), "8"),
    Cells("1b", Kind("fg", False, False), "10"),
    Cells("2", Kind("opt", True, False), "12"),
    Cells("3", Kind("opt", True, True), "13"),
    Cells("4", Kind("opt", False, True), "14"),
    Cells("15", Kind("opt-small", False, False), "16"),
    Cells("17", Kind("opt-large", True, False), "18"),
    Cells("19", Kind("fgs", False, False), "20"),
    Cells("21", Kind("fg", False, True), "22"),
    Cells("23", Kind("fgs", False, True), "24"),
    Cells("25", Kind("fg", True, False)),
    Cells("25-fgs", Kind("fgs", True, False)),
    Cells("28", Kind("fg", True, True), "29"),
    Cells("30", Kind("fgs", True, True), "31"),
)
SAME: Final = (("9", Kind("opt", False, False)), ("26", probes.FAST[0]), ("27", probes.FAST[1]))


def top_of(bench: Bench) -> int:
    """Return how many best classes the tables with several count, the paper's five or fewer."""
    return 5 if len(bench.dataset.classes) >= MANY else 2


def tables(bench: Bench) -> list[Table]:
    """Make every table, in the order of the paper's numbers."""
    kinds, made = bench.scale.kinds(), [accuracies(bench), noise(bench), labels_on_planes(bench), cosines(bench)]
    for cells in MATRICES:
        if cells.kind in kinds:
            made.append(rates(bench, cells, cells.number, 1))
            made += [rates(bench, cells, cells.surrogate, top_of(bench))] if cells.surrogate else []
    made += [same(bench, number, kind) for number, kind in SAME if kind in kinds]
    made.append(common(bench))
    return sorted(made, key=lambda table: _order(table.name))


def matrix(bench: Bench, kind: Kind, top: int = 1, among: Among = "all") -> TransferMatrix:
    """Return the rates of a set: matching where targeted, else accuracy."""
    return transfer.matrix(bench.outcomes(kind), "matching" if kind.targeted else "accuracy", top, among)


def distances(bench: Bench, kind: Kind) -> pd.Series:
    """Return the average RMSD of each source's examples."""
    outcomes = bench.outcomes(kind)
    return outcomes.groupby("source", sort=False)["rmsd"].mean()


def rates(bench: Bench, cells: Cells, number: str, top: int) -> Table:
    """Make a table of rates with its column of distances."""
    found, far = matrix(bench, cells.kind, top), distances(bench, cells.kind)
    low, high = found.interval()
    lines, entries = [], []
    for source in found.counts.index:
        line = [str(source), f"{far[source]:.2f}"]
        for target in found.counts.columns:
            ends = float(low.loc[source, target]), float(high.loc[source, target])
            rate = found.rate(source, target)
            line.append(f"{rate.value:.0%} ({100 * ends[0]:.0f}-{100 * ends[1]:.0f})")
            entries.append((source, far[source], target, cells.measure, top, rate.count, rate.total, *ends))
        lines.append(tuple(line))
    columns = ["source", "rmsd", "target", "measure", "top", "count", "total", "low", "high"]
    what = f"top-{top} {'matching rate' if cells.measure == 'matching' else 'accuracy'}"
    return Table(
        f"table{number}",
        f"Table {number.upper()}: {what} (95 % interval), {cells.kind.says}",
        ("made on", "RMSD", *map(str, found.counts.columns)),
        tuple(lines),
        pd.DataFrame(entries, columns=columns),
    )


def accuracies(bench: Bench) -> Table:
    """Make Table 7: the models on all images of the dataset."""
    entries, lines, top = [], [], top_of(bench)
    for name in bench.members:
        places = bench.clean.loc[bench.clean["model"] == name, "label_rank"].to_numpy()
        right = [int((places < best).sum()) for best in (1, top)]
        entries.append((name, *right, len(places)))
        lines.append((name, *(f"{count / len(places):.1%}" for count in right), f"{len(places):,}"))
    frame = pd.DataFrame(entries, columns=["model", "top1", f"top{top}", "total"])
    heading = ("model", "top-1 accuracy", f"top-{top} accuracy", "images")
    return Table("table7", f"Table 7: the models on clean images of {bench.dataset.name}", heading, tuple(lines), frame)


def noise(bench: Bench) -> Table:
    """Make Table 11: the models under Gaussian noise."""
    found, lines = probes.noise(bench), []
    for std, rows in found.groupby("std"):
        shares = (rows["right"] / rows["total"]).set_axis(rows["model"])
        cells = [f"{shares[name]:.1%}" for name in bench.members]
        lines.append((f"{std}", f"{rows['rmsd'].iloc[0]:.2f}", *cells))
    heading = ("standard deviation", "RMSD", *bench.members)
    return Table("table11", "Table 11: accuracy under Gaussian noise", heading, tuple(lines), found)


def labels_on_planes(bench: Bench) -> Table:
    """Make Table 5: how many labels each model gives on a plane around one image."""
    reached = (planes.NEAR, planes.FAR)
    counts = [planes.around(bench, reach).distinct() for reach in reached]
    frame = pd.DataFrame(
        [(reach, name, count) for reach, found in zip(reached, counts, strict=True) for name, count in found.items()],
        columns=["reach", "model", "labels"],
    )
    lines = tuple(
        (f"{reach:g}", *(str(found[name]) for name in bench.members))
        for reach, found in zip(reached, counts, strict=True)
    )
    of = f"of {len(bench.dataset.classes)}"
    heading = ("plane reaches to RMSD", *bench.members)
    return Table("table5", f"Table 5: labels ({of}) on the plane of Figure 3", heading, lines, frame)


def cosines(bench: Bench) -> Table:
    """Make Table 33: the mean cosine between gradients."""
    found = probes.cosines(bench)
    lines = tuple((str(row[0]), *(f"{value:.2f}" for value in row[1:])) for row in found.itertuples(index=False))
    return Table("table33", "Table 33: mean cosine between the models' gradients", ("", *bench.members), lines, found)


def same(bench: Bench, number: str, kind: Kind) -> Table:
    """Make a table of same mistakes, on the examples of the reference source."""
    source, _ = probes.reference(bench)
    outcomes = bench.outcomes(kind)
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
    title = f"Table {number}: same wrong label where both are wrong; {kind.says}, {source}"
    return Table(f"table{number}", title, ("", *names), tuple(lines), frame)


def common(bench: Bench) -> Table:
    """Make Table 32: the most common wrong labels on the examples of the reference source."""
    source, _ = probes.reference(bench)
    kind = MATRICES[0].kind
    outcomes = bench.outcomes(kind)
    found = transfer.wrong_labels(outcomes[outcomes["source"] == source])
    found = found.assign(name=[bench.dataset.classes[label] for label in found["label"]])
    rank = found.groupby("target", sort=False).cumcount()
    lines = []
    for place in range(int(rank.max()) + 1 if len(found) else 0):
        here = found[rank == place]
        told = {row.target: f"{row.name} ({row.part:.0%})" for row in here.itertuples(index=False)}
        lines.append((str(place + 1), *(told.get(name, "") for name in bench.members)))
    title = f"Table 32: the most common wrong labels; {kind.says}, {source}"
    return Table("table32", title, ("", *bench.members), tuple(lines), found)


def _order(name: str) -> tuple[int, str]:
    digits = "".join(letter for letter in name.partition("-")[0] if letter.isdigit())
    return int(digits), name


def quantiles(values: pd.Series) -> tuple[float, float]:
    """Return the RMSD by which half, and by which 90 %, of the images have a transferable example."""
    half, most = np.quantile(values.to_numpy(float), [0.5, 0.9], method="inverted_cdf")
    return float(half), float(most)
