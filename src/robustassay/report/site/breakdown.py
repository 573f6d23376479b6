"""What each attack added to the worst case of a model, and which classes its broken samples were taken for."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import final

import pandas as pd

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
    """Split the broken samples of one model by attack and by class; the first attack that broke a sample counts."""
    steps: list[AddedBy] = []
    broken: list[pd.DataFrame] = []
    left, total, seen = result.clean.count, result.clean.total, set[str]()
    for attack in sorted(result.counted, key=lambda one: bool(one.stages)):  # composed attacks last
        records = frames[attack.key]
        won = records[records["clean_ok"].astype(bool) & records["success"].astype(bool)]
        fresh = won[~won["sample_id"].isin(seen)]
        seen.update(fresh["sample_id"])
        broken.append(fresh)
        for name, added in _parts(attack, fresh):
            steps.append(AddedBy(name, attack.run.page, added, Rate(left, total), Rate(left - added, total)))
            left -= added
    return Breakdown(tuple(steps), tuple(confusions(broken)))


def _parts(attack: AttackSummary, fresh: pd.DataFrame) -> Iterator[tuple[str, int]]:
    """Name each stage of a composed attack that broke new samples; any other attack is one part."""
    by_stage = Counter(str(stage) for stage in fresh["claimed_by"].dropna())
    stages = [(stage, by_stage[stage]) for stage in attack.stages if by_stage[stage]]
    yield from ((f"{attack.label}: {stage}", many) for stage, many in stages)
    rest = len(fresh) - sum(many for _, many in stages)
    if rest or not stages:
        yield attack.label, rest


def confusions(broken: Iterable[pd.DataFrame]) -> Iterator[Confusion]:
    """Count what the broken samples of each class were taken for, the most frequent pair first."""
    counts: Counter[tuple[int, int]] = Counter()
    for records in broken:
        known = records[records["adv_label"].notna()]
        counts.update(zip(known["label"].astype(int), known["adv_label"].astype(int), strict=True))
    own: Counter[int] = Counter()
    for (truth, _), many in counts.items():
        own[truth] += many
    for (truth, predicted), many in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield Confusion(truth, predicted, many, own[truth])
