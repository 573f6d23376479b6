"""What each attack added to the worst case of a model, and which classes its broken samples were taken for."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import pandas as pd

from robustassay.analysis import rates
from robustassay.analysis.rates import Rate
from robustassay.results.models import AttackSummary, Frames, ModelResult


@final
@dataclass(frozen=True)
class AddedBy:
    """One step of the way from clean to robust accuracy: an attack, or one of its stages."""

    label: str
    page: str
    added: int  # samples that no attack before it broke
    before: Rate
    after: Rate


@final
@dataclass(frozen=True)
class Confusion:
    """How many broken samples of a class were taken for another."""

    truth: int
    predicted: int
    count: int
    of: int  # broken samples of the class


@final
@dataclass(frozen=True)
class Breakdown:
    """Where the lost accuracy of one model under one threat went."""

    steps: tuple[AddedBy, ...]  # from the weakest attack to the strongest, composed ones last
    confusions: tuple[Confusion, ...]  # the most frequent first


def break_down(result: ModelResult, frames: Frames) -> Breakdown:
    """Split the broken samples of one model by attack, and by class."""
    worst = rates.worst_case({one.key: frames[one.key] for one in result.counted})
    return Breakdown(tuple(_steps(result, frames)), tuple(confusions(worst)))


def _steps(result: ModelResult, frames: Frames) -> Iterator[AddedBy]:
    left, total = result.clean.count, result.clean.total
    seen: set[str] = set()
    for attack in sorted(result.counted, key=lambda one: bool(one.stages)):  # composed attacks last
        records = frames[attack.key]
        won = records[records["clean_ok"].astype(bool) & records["success"].astype(bool)]
        fresh = won[~won["sample_id"].isin(seen)]
        seen.update(fresh["sample_id"])
        for name, added in _parts(attack, fresh):
            yield AddedBy(name, attack.run.page, added, Rate(left, total), Rate(left - added, total))
            left -= added


def _parts(attack: AttackSummary, fresh: pd.DataFrame) -> Iterator[tuple[str, int]]:
    """Name each stage of a composed attack that broke new samples; any other attack is one part."""
    by_stage = Counter(str(stage) for stage in fresh["claimed_by"].dropna())
    stages = [(stage, by_stage[stage]) for stage in attack.stages if by_stage[stage]]
    yield from ((f"{attack.label}: {stage}", many) for stage, many in stages)
    rest = len(fresh) - sum(many for _, many in stages)
    if rest or not stages:
        yield attack.label, rest


def confusions(worst: pd.DataFrame) -> Iterator[Confusion]:
    """Count what the broken samples of each class were taken for, the most frequent pair first."""
    won = worst[worst["clean_ok"].astype(bool) & worst["success"].astype(bool) & worst["adv_label"].notna()]
    pairs: Any = zip(won["label"].astype(int), won["adv_label"].astype(int), strict=True)
    counts = Counter(pairs)
    own: Counter[int] = Counter()
    for (truth, _), many in counts.items():
        own[truth] += many
    for (truth, predicted), many in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield Confusion(truth, predicted, many, own[truth])
