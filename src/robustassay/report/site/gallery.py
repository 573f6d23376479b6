"""Chooses the samples that a model page shows, by the same rule for every model, and draws them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, final

import pandas as pd

from robustassay import data
from robustassay.analysis import rates
from robustassay.errors import AssayError
from robustassay.registry import lookup
from robustassay.report import formatting
from robustassay.results.models import Frames
from robustassay.results.runs import StoredRun

if TYPE_CHECKING:
    from robustassay.data import Dataset
    from robustassay.report.site.pictures import ImageTriple

BUDGET_BYTES: Final = 6_000_000
"""Limit of all pictures together, so that a site can be sent by mail."""

EACH: Final = 3
"""Samples of either kind per model and threat."""

_PLAIN_NAME: Final = re.compile(r"\w[\w. -]*")
"""A dataset of the working folder; runs may come from other people, whose paths are not followed."""


@final
@dataclass(frozen=True)
class GalleryItem:
    """One sample with its pictures."""

    kind: Literal["easiest", "hardest"]
    why: str
    sample: str
    truth: str
    predicted: str  # class of the adversarial image; of the clean image where no attack succeeded
    target: str | None
    attack: str
    page: str
    margin: float
    clean_margin: float | None  # older records have none, nor the next two
    clean_confidence: float | None
    confidence: float | None  # of the predicted class
    distance: str | None  # None where no adversarial point was found
    pictures: "ImageTriple"


@final
@dataclass(frozen=True)
class Gallery:
    """The samples shown of one model under one threat."""

    model_id: str
    comparison_key: str
    threat: str
    items: tuple[GalleryItem, ...]


@final
@dataclass(frozen=True)
class SelectedSample:
    """A sample that will be shown."""

    kind: Literal["easiest", "hardest"]
    why: str
    record: Mapping[Any, Any]  # with the key of its run as `attack`


@final
@dataclass(frozen=True, eq=False)
class GallerySelection:
    """The samples to show of one model under one threat, chosen while their records were in memory."""

    runs: tuple[StoredRun, ...]
    samples: tuple[SelectedSample, ...]


@final
@dataclass(eq=False)
class GalleryBuilder:
    """Draws galleries until the limit of bytes is reached; loads each dataset once."""

    labels: Mapping[str, str]
    datasets: "dict[str, Dataset | None]" = field(default_factory=dict)
    omissions: dict[str, None] = field(default_factory=dict)  # ordered, each sentence once
    used_bytes: int = 0

    def build(self, selection: GallerySelection) -> Gallery | None:
        """Draw the samples of one model under one threat; None if their images or their dataset are missing."""
        first = selection.runs[0]
        dataset = self.dataset(first)
        if dataset is None or not selection.samples:
            return None
        if not is_drawable(dataset):
            self.omissions[f"The samples of {first.data} are not grey or colour images, so none is shown."] = None
            return None
        items = tuple(_items(selection, dataset, self.labels))
        self.used_bytes += sum(item.pictures.size_bytes for item in items)
        if self.used_bytes > BUDGET_BYTES:
            self.omissions["Further pictures are left out to keep this report small."] = None
            return None
        return Gallery(first.model_id, first.comparison_key, first.threat, items) if items else None

    def dataset(self, run: StoredRun) -> "Dataset | None":
        """Load the dataset of a run by its name; None where its content is not that of the run."""
        sha256 = run.spec["data"]["sha256"]
        if sha256 not in self.datasets:
            self.datasets[sha256] = self._load(run.data, sha256)
        return self.datasets[sha256]

    def _load(self, name: str, sha256: str) -> "Dataset | None":
        try:
            dataset = data.load(name) if data.names_no_path(name) or _PLAIN_NAME.fullmatch(name) else None
        except AssayError:
            dataset = None
        if dataset is None:
            self.omissions[f"The images of {name} cannot be loaded by that name, so none is shown."] = None
            return None
        if dataset.sha256 == sha256:
            return dataset
        self.omissions[
            f"The {name} found here differs from the dataset of the run, so none of its images is shown."
        ] = None
        return None


def class_name(dataset: "Dataset | None", label: Any) -> str:
    """Return the name of a class, or its number where the names are not known."""
    known = dataset is not None and 0 <= label < len(dataset.classes)
    return str(dataset.classes[label]) if dataset is not None and known else str(label)


def select(runs: Sequence[StoredRun], frames: Frames) -> GallerySelection | None:
    """Choose the samples to show of one model under one threat; None where no run kept images."""
    kept = tuple(run for run in runs if run.has_images and len(frames[run.key]))
    if not kept:
        return None
    worst = rates.worst_case({run.key: frames[run.key] for run in kept})
    by: Literal["distance", "margin"] = "distance" if any(seeks_minimum(run) for run in kept) else "margin"
    return GallerySelection(kept, tuple(choose(worst, by)))


def choose(worst: pd.DataFrame, by: Literal["distance", "margin"] = "margin") -> list[SelectedSample]:
    """Choose among correctly classified samples: the easiest to break, and those broken last or not at all.

    An attack within a fixed radius uses all of it, so samples are ordered by margin; a minimum-norm attack stops at a
    margin of zero, so samples are ordered by distance.
    """
    correct = worst[worst["clean_ok"].astype(bool)]
    won = correct["success"].astype(bool)
    broken = correct[won].sort_values(by, kind="stable").to_dict("records")
    unbroken = correct[~won].sort_values(by, kind="stable").to_dict("records")
    first, last = ("smallest", "largest") if by == "distance" else ("most negative", "closest to zero")
    left = "not broken, nearest point beyond eps" if by == "distance" else "not broken, smallest margin left"
    easiest = [SelectedSample("easiest", f"broken, {first} {by}", one) for one in broken[:EACH]]
    closest = unbroken[: 1 if len(broken) > EACH else EACH]
    narrow = broken[EACH:][::-1][: EACH - len(closest)]
    hardest = [SelectedSample("hardest", f"broken, {last} {by}", one) for one in narrow]
    return easiest + hardest + [SelectedSample("hardest", left, one) for one in closest]


def seeks_minimum(run: StoredRun) -> bool:
    """Say whether the attack of a run seeks the nearest adversarial point."""
    from robustassay import attacks

    return run.attack in attacks.attack_names() and bool(lookup("attack", run.attack).seeks_minimum)


def is_drawable(dataset: "Dataset") -> bool:
    """Say whether the samples of a dataset are grey or colour images."""
    shape = dataset.images([0]).shape[1:]
    return len(shape) == 3 and shape[0] in (1, 3)


def _items(selection: GallerySelection, dataset: "Dataset", labels: Mapping[str, str]) -> Iterator[GalleryItem]:
    from robustassay.report.site.pictures import draw

    rows = {sample: row for row, sample in enumerate(dataset.ids)}
    chosen = [sample for sample in selection.samples if sample.record["sample_id"] in rows]
    runs = {run.key: run for run in selection.runs}
    images = {key: runs[key].images() for key in {sample.record["attack"] for sample in chosen}}
    for chosen_sample in chosen:
        record = chosen_sample.record
        run, sample, won = runs[record["attack"]], record["sample_id"], bool(record["success"])
        if sample not in images[run.key]:
            continue
        eps = float(run.spec["threat"]["eps"])
        yield GalleryItem(
            kind=chosen_sample.kind,
            why=chosen_sample.why,
            sample=sample,
            truth=class_name(dataset, record["label"]),
            predicted=class_name(dataset, record["adv_label"] if won else record["clean_label"]),
            target=None if pd.isna(record["target"]) else class_name(dataset, record["target"]),
            attack=labels[run.key],
            page=run.page,
            margin=float(record["margin"]),
            clean_margin=_known(record["clean_margin"]),
            clean_confidence=_known(record["clean_confidence"]),
            confidence=_known(record["adv_confidence" if won else "clean_confidence"]),
            distance=None if pd.isna(record["distance"]) else formatting.distance(float(record["distance"]), eps),
            pictures=draw(dataset.images([rows[sample]])[0], images[run.key][sample] if won else None),
        )


def _known(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)
