"""How each model stands under each threat: the worst case over its attacks on the same samples."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import final

import pandas as pd

from assay.analysis import rates, trust
from assay.analysis.rates import Rate
from assay.report.runs import Run


@final
@dataclass(frozen=True, eq=False)
class Standing:
    """One model under one threat."""

    runs: tuple[Run, ...]
    counted: tuple[Run, ...]  # the others lack samples that these have
    worst: pd.DataFrame = field(repr=False)  # `attack` holds the key of the run each row is from

    @property
    def model_id(self) -> str:
        """Which model."""
        return self.runs[0].model_id

    @property
    def threat(self) -> str:
        """Which threat."""
        return self.runs[0].threat

    @cached_property
    def clean(self) -> Rate:
        """Accuracy without an attack."""
        return rates.clean_accuracy(self.worst)

    @cached_property
    def robust(self) -> Rate:
        """Accuracy against the worst of the attacks."""
        return rates.robust_accuracy(self.worst)

    @cached_property
    def ranking(self) -> trust.Ranking:
        """Compare the attacks with each other."""
        parts = {run.key: run.records for run in self.runs}
        return trust.rank(parts, [run.key for run in self.runs if run.is_noise])

    @cached_property
    def doubtful(self) -> int:
        """How many standing samples a stronger attack may still break; those it was tried on are settled."""
        in_doubt = trust.doubtful(self.worst, [flag for run in self.counted for flag in run.flags])
        settled = {sample for run in self.counted if run.confirms for sample in run.records["sample_id"]}
        return int((in_doubt & ~self.worst["sample_id"].isin(settled)).sum())

    @property
    def has_iterated_attack(self) -> bool:
        """Whether an attack followed the gradient for more than one step."""
        efforts = (trust.effort(run.records, run.is_noise) for run in self.counted)
        return trust.Effort.ITERATED in efforts

    @cached_property
    def attack_labels(self) -> dict[str, str]:
        """Name each run by its attack, and namesakes by the settings in which they differ."""
        return {run.key: _label(run, [other for other in self.runs if other.attack == run.attack]) for run in self.runs}


@final
@dataclass(frozen=True)
class Contest:
    """All models under one threat on one dataset, the most robust first."""

    data: str
    threat: str
    standings: tuple[Standing, ...]


def contests(runs: Iterable[Run]) -> tuple[Contest, ...]:
    """Group runs, which come in the order of the page, by dataset and threat, then by model."""
    found = []
    for _, together in groupby((run for run in runs if len(run.records)), key=lambda run: run.arena):
        rivals = list(together)
        by_model = {run.model_id: [rival for rival in rivals if rival.model_id == run.model_id] for run in rivals}
        standings = sorted(map(_standing, by_model.values()), key=lambda standing: -standing.robust.value)
        found.append(Contest(rivals[0].data, rivals[0].threat, tuple(standings)))
    return tuple(found)


def _standing(runs: Sequence[Run]) -> Standing:
    parts = trust.covering({run.key: run.records for run in runs if not run.confirms})
    parts |= {run.key: run.records for run in runs if run.confirms & parts.keys()}
    return Standing(tuple(runs), tuple(run for run in runs if run.key in parts), rates.worst_case(parts))


def _label(run: Run, namesakes: Sequence[Run]) -> str:
    fields = [run.spec["attack"] | {"seed": run.spec["seed"]} for run in (run, *namesakes)]
    differing = [key for key in fields[0] if any(other.get(key) != fields[0][key] for other in fields)]
    told = ", ".join(f"{key} {fields[0][key]}" for key in differing)
    return f"{run.attack} ({told})" if told else run.attack
