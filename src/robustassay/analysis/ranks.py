"""Ranks with statistical groups: entries that do not differ significantly share a group.

Each pair of entries is compared by the exact McNemar test, and the p-values are corrected by Holm (1979), so that
the chance of calling any equal pair different stays below 1 - confidence. Then two rules hold:

- entries share a group if, and only if, no two of them differ significantly (groups may overlap: A and B, and
  B and C, may not differ where A and C do);
- an entry's rank lies between one more than the number of significantly better entries, and the number of entries minus
  the significantly worse ones. All these ranges hold together, at the same confidence.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations
from typing import final

import numpy as np
import numpy.typing as npt
import pandas as pd

from robustassay.analysis.compare import pair, robust_samples
from robustassay.analysis.intervals import checked
from robustassay.analysis.rates import Rate
from robustassay.errors import BadRequest


@final
@dataclass(frozen=True)
class Place:
    """The rank of an entry, with its range."""

    name: str
    rate: Rate
    best: int
    worst: int


@final
@dataclass(frozen=True)
class Ranks:
    """Entries from the highest rate to the lowest, and which of them do not differ significantly."""

    places: tuple[Place, ...]
    groups: tuple[tuple[str, ...], ...]  # as many as can be alike; an entry may be in several
    chances: Mapping[frozenset[str], float]  # of each pair, corrected for the number of pairs

    def letters(self) -> dict[str, str]:
        """Return the groups of each entry as letters; entries that share one do not differ significantly."""
        return {
            place.name: " ".join(_letter(at) for at, group in enumerate(self.groups) if place.name in group)
            for place in self.places
        }


def rank_runs(parts: Mapping[str, pd.DataFrame], confidence: float = 0.95) -> Ranks:
    """Rank runs on the same samples by robust accuracy: models, or attacks on one model from the weakest on."""
    return rank({name: robust_samples(records) for name, records in parts.items()}, confidence)


def rank(outcomes: Mapping[str, pd.Series], confidence: float = 0.95) -> Ranks:
    """Rank outcomes, true or false by sample id, on the same samples."""
    if not outcomes:
        raise BadRequest("There is nothing to rank: give at least one run.")
    first = next(iter(outcomes.values()))
    for name, outcome in outcomes.items():
        if set(outcome.index) != set(first.index) or not len(outcome):
            raise BadRequest(f"{name} covers other samples than the rest: rank runs on the same samples.")
    pairs = list(combinations(outcomes, 2))
    corrected = holm([pair(outcomes[one], outcomes[other]).chance for one, other in pairs])
    chances = {frozenset(names): chance for names, chance in zip(pairs, corrected, strict=True)}
    apart = {names for names, chance in chances.items() if chance <= 1 - checked(confidence)}

    rates = {name: Rate(int(outcome.sum()), len(outcome)) for name, outcome in outcomes.items()}
    order = sorted(outcomes, key=lambda name: (-rates[name].count, name))
    places = []
    for at, name in enumerate(order):
        better = sum(frozenset((name, other)) in apart for other in order[:at])
        worse = sum(frozenset((name, other)) in apart for other in order[at + 1 :])
        places.append(Place(name, rates[name], 1 + better, len(order) - worse))
    alike = {name: {other for other in order if other != name and {name, other} not in apart} for name in order}
    groups = [tuple(sorted(group, key=order.index)) for group in _cliques(alike, set(), set(order), set())]
    return Ranks(tuple(places), tuple(sorted(groups, key=lambda group: [*map(order.index, group)])), chances)


def holm(chances: Sequence[float]) -> list[float]:
    """Correct p-values for their number, by Holm's step-down method (1979)."""
    p = np.asarray(chances, np.float64)
    order = np.argsort(p, kind="stable")
    corrected: npt.NDArray[np.float64] = np.empty_like(p)
    corrected[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return [float(chance) for chance in corrected]


def _cliques(alike: Mapping[str, Set[str]], group: set[str], more: set[str], seen: set[str]) -> list[set[str]]:
    """Find all largest groups in which no two differ (Bron & Kerbosch 1973, with a pivot)."""
    if not more and not seen:
        return [group]
    pivot = max(sorted(more | seen), key=lambda name: len(alike[name] & more))
    found = []
    for name in sorted(more - alike[pivot]):
        found += _cliques(alike, group | {name}, more & alike[name], seen & alike[name])
        more, seen = more - {name}, seen | {name}
    return found


def _letter(at: int) -> str:
    return _letter(at // 26 - 1) + chr(ord("a") + at % 26) if at >= 26 else chr(ord("a") + at)
