"""Which samples to show, and why: the same rule for every model, so that none is shown at its best or worst."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import pandas as pd

from assay import data
from assay.analysis import rates
from assay.errors import AssayError
from assay.report import words
from assay.report.runs import Run
from assay.report.standings import Standing
from assay.report.subjects import Subject

if TYPE_CHECKING:
    from assay.data import Dataset
    from assay.report.pictures import Triptych

BUDGET_BYTES: Final = 1_200_000
"""Of all pictures together, so that the page stays light enough to be sent by mail."""


@final
@dataclass(frozen=True)
class Exhibit:
    """One sample with its pictures."""

    why: str
    sample: str
    truth: str
    verdict: str  # what the model says at the end
    target: str | None
    attack: str
    key: str
    margin: float
    distance: str | None  # None where the sample stood
    pictures: "Triptych"


@final
@dataclass(frozen=True)
class Wall:
    """The exhibits of one model under one threat."""

    model: str
    threat: str
    exhibits: tuple[Exhibit, ...]


@final
@dataclass(frozen=True)
class Gallery:
    """All walls, and a sentence for each that is missing."""

    walls: tuple[Wall, ...]
    omissions: tuple[str, ...]


def hang(standings: Sequence[Standing], models: Mapping[str, Subject]) -> Gallery:
    """Draw a few samples of every standing whose images were kept and whose dataset is at hand."""
    with_images = [(standing, [run for run in standing.counted if run.has_images]) for standing in standings]
    shown = [(standing, kept) for standing, kept in with_images if kept]
    datasets, omissions = _load_datasets([kept[0] for _, kept in shown])
    walls: list[Wall] = []
    spent = 0
    for standing, kept in shown:
        dataset = datasets.get(kept[0].spec["data"]["sha256"])
        if dataset is None:
            continue
        exhibits = tuple(_exhibits(standing, kept, dataset))
        spent += sum(exhibit.pictures.size_bytes for exhibit in exhibits)
        if spent > BUDGET_BYTES:
            omissions.append("Further pictures are left out to keep this page small.")
            break
        if exhibits:
            walls.append(Wall(models[standing.model_id].label, standing.threat, exhibits))
    if not shown:
        omissions.append("No run kept its adversarial images: run it with --keep-images to see some here.")
    return Gallery(tuple(walls), tuple(omissions))


def _load_datasets(runs: Sequence[Run]) -> "tuple[dict[str, Dataset], list[str]]":
    """Load each dataset by its name, and keep it only if it is the very one the run saw."""
    found: dict[str, Dataset] = {}
    omissions: dict[str, str] = {}
    for run in runs:
        sha256 = run.spec["data"]["sha256"]
        if sha256 in found or sha256 in omissions:
            continue
        try:
            dataset = data.load(run.data)
        except AssayError:
            omissions[sha256] = f"The images of {run.data} cannot be loaded by that name, so none is shown."
            continue
        if dataset.sha256 != sha256:
            omissions[sha256] = f"The {run.data} at hand is not the one the run saw, so none of its images is shown."
        elif _drawable(dataset):
            found[sha256] = dataset
        else:
            omissions[sha256] = f"The samples of {run.data} are no pictures in grey or colour, so none is shown."
    return found, list(omissions.values())


def _drawable(dataset: "Dataset") -> bool:
    shape = dataset.images([0]).shape[1:]
    return len(shape) == 3 and shape[0] in (1, 3)


def _exhibits(standing: Standing, kept: Sequence[Run], dataset: "Dataset") -> Iterator[Exhibit]:
    from assay.report.pictures import draw

    worst = rates.worst_case({run.key: run.records for run in kept})
    rows = {sample: row for row, sample in enumerate(dataset.ids)}
    chosen = [(why, record) for why, record in choose(worst) if record["sample_id"] in rows]
    runs = {run.key: run for run in kept}
    images = {key: runs[key].images() for key in {record["attack"] for _, record in chosen}}
    for why, record in chosen:
        run, sample, won = runs[record["attack"]], record["sample_id"], bool(record["success"])
        if sample not in images[run.key]:
            continue
        x0 = dataset.images([rows[sample]])[0]
        yield Exhibit(
            why=why,
            sample=sample,
            truth=_class(dataset, record["label"]),
            verdict=_class(dataset, record["adv_label"] if won else record["clean_label"]),
            target=None if pd.isna(record["target"]) else _class(dataset, record["target"]),
            attack=standing.attack_labels[run.key],
            key=run.key,
            margin=float(record["margin"]),
            distance=words.distance(float(record["distance"]), float(run.spec["threat"]["eps"])) if won else None,
            pictures=draw(x0, images[run.key][sample] if won else None),
        )


def choose(worst: pd.DataFrame) -> list[tuple[str, Mapping[Any, Any]]]:
    """Choose among samples that were classified correctly: two that fell and one that stood."""
    correct = worst[worst["clean_ok"].astype(bool)].sort_values("margin", kind="stable")
    won = correct["success"].astype(bool)
    fell, stood = correct[won].to_dict("records"), correct[~won].to_dict("records")
    chosen: list[tuple[str, Mapping[Any, Any]]] = [("fell, most clearly wrong", fell[0])] if fell else []
    chosen += [("fell, most narrowly", fell[-1])] if len(fell) > 1 else []
    chosen += [("stood, but came closest to falling", stood[0])] if stood else []
    return chosen


def _class(dataset: "Dataset", label: Any) -> str:
    return dataset.classes[label] if 0 <= label < len(dataset.classes) else str(label)
