"""How each model stands under each threat: the worst case over its attacks on the same samples."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import pandas as pd

from robustassay.analysis import compare, ranks, rates, trust
from robustassay.analysis.fairness import fairness
from robustassay.analysis.ranks import Ranks
from robustassay.analysis.rates import Rate
from robustassay.report.runs import Run
from robustassay.store import SEARCH

Frames = Mapping[str, pd.DataFrame]
"""Records by the key of their run."""


@final
@dataclass(frozen=True, eq=False)
class Outcome:
    """What the records of one run say; the records themselves are let go."""

    run: Run
    label: str  # the attack, told from its namesakes
    summary: trust.Summary
    flags: Mapping[str, str]
    effort: trust.Effort
    stages: Mapping[str, Rate]  # of a composed attack: the robust accuracy after each
    broke: int  # of the samples classified correctly
    alone: int  # of those, how many no other attack of the standing broke

    @property
    def key(self) -> str:
        """Which run."""
        return self.run.key


@final
@dataclass(frozen=True, eq=False)
class Standing:
    """One model under one threat."""

    outcomes: tuple[Outcome, ...]  # from the weakest attack to the strongest
    counted: tuple[Outcome, ...]  # the others lack samples that these have
    clean: Rate
    robust: Rate
    ranking: trust.Ranking
    doubtful: int  # standing samples that a stronger attack may still break; those it was tried on are settled
    classes: pd.DataFrame = field(repr=False)
    stands: pd.Series = field(repr=False)  # by sample id

    @property
    def first(self) -> Run:
        """Any of its runs, as they share model, data and threat."""
        return self.outcomes[0].run

    @property
    def model_id(self) -> str:
        """Which model."""
        return self.first.model_id

    @property
    def threat(self) -> str:
        """Which threat."""
        return self.first.threat

    @property
    def flags(self) -> dict[str, str]:
        """Reasons to doubt the robust accuracy."""
        return {name: text for outcome in self.counted for name, text in outcome.flags.items()}

    @property
    def invalid_claims(self) -> int:
        """How many claims of its attacks did not verify."""
        return sum(outcome.summary.invalid_claims for outcome in self.outcomes)

    @property
    def has_iterated_attack(self) -> bool:
        """Whether an attack followed the gradient for more than one step."""
        return any(outcome.effort is trust.Effort.ITERATED for outcome in self.counted)

    @property
    def reasons(self) -> list[str]:
        """Why its number may be too high, in a few words each."""
        said = [name for name in self.flags if name not in trust.HARMLESS]
        said += [f"{self.invalid_claims:,} claims not verified"] if self.invalid_claims else []
        said += ["an attack lost to a weaker one"] if self.ranking.upsets else []
        said += ["only weak attacks"] if self.robust.count and not self.has_iterated_attack else []
        return said


@final
@dataclass(frozen=True, eq=False)
class Contest:
    """All models under one threat on one dataset, the most robust first."""

    arena: str
    data: str
    threat: str
    standings: tuple[Standing, ...]
    ranks: Ranks | None  # of those that share the samples that most of them have; by model_id
    samples: int  # which are so many

    def place(self, standing: Standing) -> tuple[int, int] | None:
        """Return the best and the worst rank that a model may have; None where it cannot be compared."""
        places = self.ranks.places if self.ranks else ()
        return next(((one.best, one.worst) for one in places if one.name == standing.model_id), None)

    def letters(self) -> dict[str, str]:
        """Write the rank groups by model: those that share a letter cannot be told apart."""
        return self.ranks.letters() if self.ranks else {}


def attack_labels(runs: Iterable[Run]) -> dict[str, str]:
    """Name each run by its attack, and namesakes by the settings in which they differ, the same on every page."""
    namesakes: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        namesakes[run.attack].append(run)
    return {run.key: _label(run, varied) for some in namesakes.values() for varied in [_varied(some)] for run in some}


def read_off(runs: Sequence[Run], frames: Frames, labels: Mapping[str, str]) -> tuple[Outcome, ...]:
    """Say what each run of one model under one threat shows, from the weakest attack to the strongest."""
    broken = {run.key: _broken(frames[run.key]) for run in runs}
    times = Counter(sample for some in broken.values() for sample in some)
    return tuple(
        Outcome(
            run=run,
            label=labels[run.key],
            summary=trust.summarise(frames[run.key]),
            flags={**run.manifest.get("flags", {}), **trust.flags_of(frames[run.key])},
            effort=trust.effort(frames[run.key], run.is_noise),
            stages=trust.after_each_stage(frames[run.key], run.manifest.get("stages", ())),
            broke=len(broken[run.key]),
            alone=sum(times[sample] == 1 for sample in broken[run.key]),
        )
        for run in sorted(runs, key=lambda run: len(broken[run.key]))
    )


def assess(outcomes: Sequence[Outcome], frames: Frames) -> Standing:
    """Take the worst case over the attacks on one model under one threat, all of which have records."""
    runs = [outcome.run for outcome in outcomes]
    parts = covered(runs, frames)
    worst = rates.worst_case(parts)
    counted = tuple(outcome for outcome in outcomes if outcome.key in parts)
    in_doubt = trust.doubtful(worst, [flag for outcome in counted for flag in outcome.flags])
    settled = {sample for outcome in counted if outcome.run.confirms for sample in frames[outcome.key]["sample_id"]}
    return Standing(
        outcomes=tuple(outcomes),
        counted=counted,
        clean=rates.clean_accuracy(worst),
        robust=rates.robust_accuracy(worst),
        ranking=trust.rank({run.key: frames[run.key] for run in runs}, [run.key for run in runs if run.is_noise]),
        doubtful=int((in_doubt & ~worst["sample_id"].isin(settled)).sum()),
        classes=fairness(worst).classes,
        stands=compare.standing(worst),
    )


def covered(runs: Sequence[Run], frames: Frames) -> dict[str, pd.DataFrame]:
    """Choose the records that the worst case is taken over: those on all samples, and what confirms them."""
    whole = {run.key: frames[run.key] for run in runs if not run.confirms}
    parts = trust.covering(whole or dict(frames))
    return parts | {run.key: frames[run.key] for run in runs if run.confirms & parts.keys()}


def contests(standings: Iterable[Standing]) -> tuple[Contest, ...]:
    """Group standings by dataset and threat, in the order they come."""
    by_arena: dict[str, list[Standing]] = defaultdict(list)
    for standing in standings:
        by_arena[standing.first.arena].append(standing)
    return tuple(
        Contest(arena, rivals[0].first.data, rivals[0].threat, _ordered(rivals), *_ranks(rivals))
        for arena, rivals in by_arena.items()
    )


def _ordered(rivals: Iterable[Standing]) -> tuple[Standing, ...]:
    return tuple(sorted(rivals, key=lambda one: (-one.robust.value, -one.clean.value, one.first.model)))


def _ranks(rivals: Sequence[Standing]) -> tuple[Ranks | None, int]:
    """Rank the models on the samples that most of them have; who lacks some is not compared."""
    held = Counter(frozenset(one.stands.index) for one in rivals)
    common = max(held, key=lambda ids: (held[ids], len(ids)))
    order = sorted(common)
    compared = {one.model_id: one.stands.loc[order] for one in rivals if common <= set(one.stands.index)}
    return (ranks.rank(compared), len(order)) if order else (None, 0)


def _broken(records: pd.DataFrame) -> list[str]:
    fell = records["clean_ok"].astype(bool) & records["success"].astype(bool)
    return list(records.loc[fell, "sample_id"])


def _settings(run: Run) -> dict[str, Any]:
    searched = {key: run.spec["model"][key] for key in SEARCH if key in run.spec["model"]}
    return {**run.spec["attack"], **searched, "seed": run.spec["seed"]}


def _varied(namesakes: Sequence[Run]) -> list[str]:
    settings = [_settings(run) for run in namesakes]
    every = dict.fromkeys(key for one in settings for key in one)
    return [key for key in every if len({json.dumps(one.get(key)) for one in settings}) > 1]


def _label(run: Run, varied: Sequence[str]) -> str:
    settings = _settings(run)
    told = ", ".join(f"{key} {settings[key]}" for key in varied if key in settings)
    return f"{run.attack} ({told})" if told else run.attack
