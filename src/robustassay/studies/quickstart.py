"""The study behind `assay run`: five embedded models as PGD sees them, and as assay does."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import pandas as pd

from robustassay.analysis import corruptions as analysis
from robustassay.analysis.compare import compare
from robustassay.data import Dataset, load
from robustassay.data.corruptions import CorruptionSpec, corrupt
from robustassay.evaluation import Result, Search, evaluate
from robustassay.evaluation.corruption_accuracy import CorruptionEvaluation
from robustassay.evaluation.model_ref import ModelRef, choose_device
from robustassay.evaluation.progress import Progress
from robustassay.interrupt import graceful_interrupt
from robustassay.studies.showcase import CorruptionBar, Corruptions, Showcase, ShowcaseRow, write_showcase
from robustassay.threat import LInf

DATA: Final = "cifar10-1k"
THREAT: Final = LInf(8 / 255)
PGD: Final = "pgd"
NEXT: Final = "assay eval path/to/file.py:factory --data path/to/images"

CORRUPTED_MODELS: Final = ("resnet20-natural", "resnet20-pgd")
KINDS: Final = ("gaussian-noise", "fog", "jpeg-compression")
SEVERITY: Final = 3


@final
@dataclass(frozen=True)
class ShowcaseModel:
    """One line of the showcase: a model, the attacks on it, and the name of its folder."""

    label: str
    model: str
    attacks: tuple[str, ...]
    folder: str
    search: Search = Search()  # noqa: RUF009, a frozen value

    def command(self, limit: int) -> str:
        """Return the command that repeats the line."""
        options = ["--adaptive auto"] if self.search.adaptive else []
        options += [f"--query-budget {self.search.query_budget}"] if self.search.query_budget else []
        attacks = " ".join(self.attacks)
        return " ".join(["assay eval", shlex.quote(self.model), f"--attack {attacks}", *options, f"--limit {limit}"])


BOTH: Final = (PGD, "express")

MODELS: Final = (
    ShowcaseModel("resnet20-natural", "resnet20-natural", BOTH, "natural"),
    ShowcaseModel("resnet20-pgd", "resnet20-pgd", BOTH, "pgd"),
    ShowcaseModel("resnet20-alp", "resnet20-alp", BOTH, "alp"),
    ShowcaseModel(
        "resnet20-natural, quantised input",
        "own-gradient|bit-depth|resnet20-natural",
        (PGD,),
        "quantised",
        Search(adaptive="auto"),
    ),
    ShowcaseModel("resnet20-natural, scores only", "resnet20-natural", ("square",), "scores", Search(query_budget=300)),
)
"""Natural training, two kinds of adversarial training, a masked gradient, and a black box."""

RUNS: Final = sum(len(one.attacks) for one in MODELS) + len(CORRUPTED_MODELS)
"""How often progress is started, at least: remedies add runs."""


def run_showcase(folder: Path, limit: int, seed: int, progress: Progress) -> Showcase:
    """Evaluate what is missing, and write and return the table; an interrupted showcase is resumed."""
    with graceful_interrupt():
        refs = {name: ModelRef.of(name) for name in {one.model for one in MODELS}}  # each is inspected once
        rows = tuple(_rows(refs, folder, limit, seed, progress))
        corrupted = _corruptions(refs, folder / "corruptions", limit, seed, progress)
    found = Showcase(DATA, limit, str(THREAT), seed, rows, corrupted, NEXT)
    write_showcase(found, folder)
    return found


def _rows(
    refs: Mapping[str, ModelRef], folder: Path, limit: int, seed: int, progress: Progress
) -> Iterator[ShowcaseRow]:
    for one in MODELS:
        result = evaluate(
            refs[one.model],
            DATA,
            THREAT,
            one.attacks,
            limit=limit,
            seed=seed,
            out=folder / one.folder,
            search=one.search,
            progress=progress,
        )
        yield _row(one, result, limit)


def _row(one: ShowcaseModel, result: Result, limit: int) -> ShowcaseRow:
    pgd = result.parts.get(PGD)
    low, high = result.interval
    return ShowcaseRow(
        label=one.label,
        model=one.model,
        clean=result.clean_accuracy,
        pgd=None if pgd is None else pgd.robust_accuracy,
        assay=result.robust_accuracy,
        low=low,
        high=high,
        evidence=result.evidence.label,
        why=_why(result, pgd),
        command=one.command(limit),
        runs=tuple(f"{one.folder}/{name}" for name in result.parts),
    )


def _why(result: Result, pgd: Result | None) -> str:
    """Say in a few words why the two numbers differ, or agree."""
    if pgd is None:
        fallen = result.records[result.records["success"].astype(bool)]
        return f"no gradients needed: {fallen['queries'].median():.0f} queries (median)" if len(fallen) else "none fell"
    more = compare(pgd.records, result.records).only_first
    adaptive = (part.manifest.get("adaptive", {}) for part in result.parts.values())
    causes = [one["because"].partition(",")[0] for one in adaptive if "remedy" in one]
    if causes:
        return f"masked ({causes[0]}): adaptive attacks break {more} more"
    if more:
        return f"express breaks {more} more than PGD"
    return (
        "express breaks no more than PGD" if result.robust_accuracy else "PGD breaks every correctly classified image"
    )


def _corruptions(refs: Mapping[str, ModelRef], folder: Path, limit: int, seed: int, progress: Progress) -> Corruptions:
    dataset = load(DATA).take(limit)
    grid = [CorruptionSpec(analysis.CLEAN, 0), *(CorruptionSpec(kind, SEVERITY) for kind in KINDS)]

    def read(one: CorruptionSpec) -> Dataset:
        return corrupt(dataset, one, seed) if one.severity else dataset

    chosen = [refs[name] for name in CORRUPTED_MODELS]
    predictions = CorruptionEvaluation(chosen, grid, read, folder, choose_device(None)).run(progress)
    return Corruptions(KINDS, SEVERITY, limit, tuple(_bars(predictions)))


def _bars(predictions: pd.DataFrame) -> Iterator[CorruptionBar]:
    clean = analysis.by_kind(predictions)[analysis.CLEAN].to_dict()
    for name, mean in analysis.mean_accuracy(predictions).to_dict("index").items():
        yield CorruptionBar(
            str(name), float(clean[name]), float(mean["accuracy"]), float(mean["low"]), float(mean["high"])
        )
