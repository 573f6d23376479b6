"""Boards: all entries under one threat, the most robust first, and which of them cannot be told apart."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from robustassay.analysis.ranks import Ranks, rank
from robustassay.leaderboard.entry import Arena, Entry, with_external

CLOSE: Final = 0.02
"""Published radii that differ by no more than this part of a board's stand on it, as 0.031 does beside 8/255."""


@final
@dataclass(frozen=True, eq=False)
class Board:
    """One table of the leaderboard."""

    arena: Arena
    entries: tuple[Entry, ...]
    ranks: Ranks | None  # of the measured entries that share samples; None where there are none
    samples: int  # which those are so many of

    def place(self, entry: Entry) -> tuple[int, int] | None:
        """Return the best and the worst rank an entry may have among those it can be compared with."""
        found = self.ranks and next((one for one in self.ranks.places if one.name == entry.card.name), None)
        return (found.best, found.worst) if found and entry.kind == "measured" else None

    def group(self, entry: Entry) -> str:
        """Return the letters of its groups: entries that share one cannot be told apart."""
        return self.ranks.letters().get(entry.card.name, "") if self.ranks and entry.kind == "measured" else ""


def boards(entries: Iterable[Entry]) -> list[Board]:
    """Sort entries into boards; a model's published accuracy lowers what is known of it where it was measured too."""
    known = list(entries)
    local = {entry.arena for entry in known if entry.kind == "measured"}
    by_arena: dict[Arena, list[Entry]] = defaultdict(list)
    for entry in known:
        by_arena[_seat(entry, local)].append(entry)
    return [_board(arena, together) for arena, together in sorted(by_arena.items(), key=lambda item: _order(item[0]))]


def _board(arena: Arena, together: Sequence[Entry]) -> Board:
    published = {entry.card.name: entry for entry in together if entry.kind == "published"}
    entries = [_lowered(entry, published) for entry in _told_apart(together)]
    ordered = sorted(entries, key=lambda entry: (-entry.best_known.value, -entry.clean.value, entry.card.name))
    return Board(arena, tuple(ordered), *_ranks(ordered))


def _seat(entry: Entry, local: Iterable[Arena]) -> Arena:
    """Say on which board an entry stands: a published one on that of the nearest radius measured here."""
    if entry.kind == "measured" or entry.arena.eps is None:
        return entry.arena
    own = entry.arena
    near = [
        arena
        for arena in local
        if (arena.dataset, arena.norm, arena.target, arena.query_budget) == (own.dataset, own.norm, None, None)
        and own.eps is not None
        and arena.eps is not None
        and abs(arena.eps - own.eps) <= CLOSE * arena.eps
    ]
    return min(near, key=lambda arena: abs((arena.eps or 0) - (own.eps or 0)), default=own)


def _told_apart(entries: Sequence[Entry]) -> list[Entry]:
    """Keep one of each name and kind: two models of one name must have been told apart before."""
    return list({(entry.kind, entry.card.name): entry for entry in entries}.values())


def _lowered(entry: Entry, published: Mapping[str, Entry]) -> Entry:
    name = entry.card.name.removeprefix("robustbench:").partition(":")[0]
    if entry.kind == "published" or name not in published:
        return entry
    other = published[name].best_known
    return with_external(entry, other.value, f"{other.by} (published)")


def _ranks(entries: Sequence[Entry]) -> tuple[Ranks | None, int]:
    """Rank the measured entries on the samples that most of them have; who lacks some is not compared."""
    stands = {entry.card.name: entry.standing for entry in entries if entry.standing is not None}
    if not stands:
        return None, 0
    counted = Counter(frozenset(one.index) for one in stands.values())
    common = max(counted, key=lambda ids: (counted[ids], len(ids)))
    order = sorted(common)
    whole = {name: one.loc[order] for name, one in stands.items() if common <= set(one.index)}
    return rank(whole), len(order)


def _order(arena: Arena) -> tuple[str, str, float, str, int]:
    return arena.dataset, arena.norm, arena.eps or 0.0, arena.target or "", arena.query_budget or 0
