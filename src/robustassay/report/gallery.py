"""Which samples to show, and why: the same rule for every model, so that none is shown at its best or worst."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, final

import pandas as pd

from robustassay import data
from robustassay.analysis import rates
from robustassay.errors import AssayError
from robustassay.registry import lookup
from robustassay.report import formatting
from robustassay.report.ranking import Frames
from robustassay.report.runs import Run

if TYPE_CHECKING:
    from robustassay.data import Dataset
    from robustassay.report.pictures import Triptych

BUDGET_BYTES: Final = 6_000_000
"""Of all pictures together, so that the site stays light enough to be sent by mail."""

EACH: Final = 3
"""Samples of either kind, for each model and threat."""


@final
@dataclass(frozen=True)
class Exhibit:
    """One sample with its pictures."""

    kind: Literal["easiest", "hardest"]
    why: str
    sample: str
    truth: str
    verdict: str  # what the model says at the end
    target: str | None
    attack: str
    page: str
    margin: float
    clean_margin: float | None  # older records have none, nor the next two
    clean_confidence: float | None
    confidence: float | None  # of the verdict
    distance: str | None  # None where the sample stood
    pictures: "Triptych"


@final
@dataclass(frozen=True)
class Wall:
    """The exhibits of one model under one threat."""

    model_id: str
    threat: str
    exhibits: tuple[Exhibit, ...]


@final
@dataclass(frozen=True)
class Pick:
    """A sample that will be shown."""

    kind: Literal["easiest", "hardest"]
    why: str
    record: Mapping[Any, Any]  # with the key of its run as `attack`


@final
@dataclass(frozen=True, eq=False)
class Selection:
    """The samples of one model under one threat that will be shown, chosen while their records were at hand."""

    runs: tuple[Run, ...]
    picks: tuple[Pick, ...]


@final
@dataclass(eq=False)
class Curator:
    """Loads each dataset once, and stops when the budget is spent."""

    labels: Mapping[str, str]
    datasets: "dict[str, Dataset | None]" = field(default_factory=dict)
    omissions: dict[str, None] = field(default_factory=dict)  # ordered, each sentence once
    spent: int = 0

    def hang(self, selection: Selection) -> Wall | None:
        """Draw the samples of one model under one threat, where their images were kept and their dataset is at hand."""
        first = selection.runs[0]
        dataset = self.dataset(first)
        if dataset is None or not selection.picks:
            return None
        if not _drawable(dataset):
            self.omissions[f"The samples of {first.data} are no pictures in grey or colour, so none is shown."] = None
            return None
        exhibits = tuple(_exhibits(selection, dataset, self.labels))
        self.spent += sum(exhibit.pictures.size_bytes for exhibit in exhibits)
        if self.spent > BUDGET_BYTES:
            self.omissions["Further pictures are left out to keep this report small."] = None
            return None
        return Wall(first.model_id, first.threat, exhibits) if exhibits else None

    def dataset(self, run: Run) -> "Dataset | None":
        """Load the dataset of a run by its name, and return it only if it is the very one the run saw."""
        sha256 = run.spec["data"]["sha256"]
        if sha256 not in self.datasets:
            self.datasets[sha256] = self._load(run.data, sha256)
        return self.datasets[sha256]

    def _load(self, name: str, sha256: str) -> "Dataset | None":
        try:
            dataset = data.load(name) if data.names_no_path(name) else None
        except AssayError:
            dataset = None
        if dataset is None:
            self.omissions[f"The images of {name} cannot be loaded by that name, so none is shown."] = None
            return None
        if dataset.sha256 == sha256:
            return dataset
        self.omissions[f"The {name} at hand is not the one the run saw, so none of its images is shown."] = None
        return None


def class_name(dataset: "Dataset | None", label: Any) -> str:
    """Name a class, or number it where its names are not known."""
    known = dataset is not None and 0 <= label < len(dataset.classes)
    return str(dataset.classes[label]) if dataset is not None and known else str(label)


def select(runs: Sequence[Run], frames: Frames) -> Selection | None:
    """Choose the samples to show of one model under one threat; None where no run kept images."""
    kept = tuple(run for run in runs if run.has_images and len(frames[run.key]))
    if not kept:
        return None
    worst = rates.worst_case({run.key: frames[run.key] for run in kept})
    by: Literal["distance", "margin"] = "distance" if any(_seeks_minimum(run) for run in kept) else "margin"
    return Selection(kept, tuple(choose(worst, by)))


def choose(worst: pd.DataFrame, by: Literal["distance", "margin"] = "margin") -> list[Pick]:
    """Choose among samples that were classified correctly: those that fell first, and last or not at all.

    Attacks within a radius go to its edge, so that the margin tells who fell clearly; attacks that seek the nearest
    point stop at a margin of nothing, so that the distance does.
    """
    correct = worst[worst["clean_ok"].astype(bool)]
    won = correct["success"].astype(bool)
    fell = correct[won].sort_values(by, kind="stable").to_dict("records")
    stood = correct[~won].sort_values("margin", kind="stable").to_dict("records")
    first, last = ("nearest", "farthest") if by == "distance" else ("most clearly wrong", "most narrowly")
    easiest = [Pick("easiest", f"fell, {first}", one) for one in fell[:EACH]]
    closest = stood[: 1 if len(fell) > EACH else EACH]
    narrow = fell[EACH:][::-1][: EACH - len(closest)]
    hardest = [Pick("hardest", f"fell, {last}", one) for one in narrow]
    return easiest + hardest + [Pick("hardest", "stood, but came closest to falling", one) for one in closest]


def _seeks_minimum(run: Run) -> bool:
    from robustassay import attacks

    return run.attack in attacks.attack_names() and bool(lookup("attack", run.attack).seeks_minimum)


def _drawable(dataset: "Dataset") -> bool:
    shape = dataset.images([0]).shape[1:]
    return len(shape) == 3 and shape[0] in (1, 3)


def _exhibits(selection: Selection, dataset: "Dataset", labels: Mapping[str, str]) -> Iterator[Exhibit]:
    from robustassay.report.pictures import draw

    rows = {sample: row for row, sample in enumerate(dataset.ids)}
    chosen = [pick for pick in selection.picks if pick.record["sample_id"] in rows]
    runs = {run.key: run for run in selection.runs}
    images = {key: runs[key].images() for key in {pick.record["attack"] for pick in chosen}}
    for pick in chosen:
        record = pick.record
        run, sample, won = runs[record["attack"]], record["sample_id"], bool(record["success"])
        if sample not in images[run.key]:
            continue
        yield Exhibit(
            kind=pick.kind,
            why=pick.why,
            sample=sample,
            truth=class_name(dataset, record["label"]),
            verdict=class_name(dataset, record["adv_label"] if won else record["clean_label"]),
            target=None if pd.isna(record["target"]) else class_name(dataset, record["target"]),
            attack=labels[run.key],
            page=run.page,
            margin=float(record["margin"]),
            clean_margin=_known(record["clean_margin"]),
            clean_confidence=_known(record["clean_confidence"]),
            confidence=_known(record["adv_confidence" if won else "clean_confidence"]),
            distance=formatting.distance(float(record["distance"]), float(run.spec["threat"]["eps"])) if won else None,
            pictures=draw(dataset.images([rows[sample]])[0], images[run.key][sample] if won else None),
        )


def _known(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)
