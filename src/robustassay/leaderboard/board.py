"""Boards: all entries under one threat, the most robust first, and which of them do not differ significantly."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from robustassay.analysis.ranks import Ranks
from robustassay.leaderboard.entry import BoardThreat, Entry, with_external
from robustassay.results.ranking import rank_on_shared_samples

CLOSE: Final = 0.02
"""Relative tolerance of published radii: an entry at 0.031 is on the board of 8/255."""


@final
@dataclass(frozen=True, eq=False)
class Board:
    """One table of the leaderboard."""

    threat: BoardThreat
    entries: tuple[Entry, ...]
    ranks: Ranks | None  # of the measured entries that share samples; None where there are none
    samples: int  # the number of shared samples

    def place(self, entry: Entry) -> tuple[int, int] | None:
        """Return the best and the worst rank of an entry; None if it was not compared."""
        found = self.ranks and next((one for one in self.ranks.places if one.name == entry.card.name), None)
        return (found.best, found.worst) if found and entry.kind == "measured" else None

    def group(self, entry: Entry) -> str:
        """Return the letters of its groups: entries that share one do not differ significantly."""
        return self.ranks.letters().get(entry.card.name, "") if self.ranks and entry.kind == "measured" else ""


def boards(entries: Iterable[Entry]) -> list[Board]:
    """Sort entries into boards; a published accuracy may lower the best known one of a model measured here."""
    known = list(entries)
    local = {entry.threat for entry in known if entry.kind == "measured"}
    usual = Counter(entry.threat for entry in known if entry.kind == "published")
    by_threat: dict[BoardThreat, list[Entry]] = defaultdict(list)
    for entry in known:
        by_threat[_board_of(entry, local, usual)].append(entry)
    return [
        _board(threat, together) for threat, together in sorted(by_threat.items(), key=lambda item: _order(item[0]))
    ]


def _board(threat: BoardThreat, together: Sequence[Entry]) -> Board:
    published = {entry.card.name: entry for entry in together if entry.kind == "published"}
    entries = [_lowered(entry, published) for entry in _unique(together)]
    ordered = sorted(entries, key=lambda entry: (-entry.best_known.value, -entry.clean.value, entry.card.name))
    robust = {entry.card.name: entry.robust_samples for entry in ordered if entry.robust_samples is not None}
    return Board(threat, tuple(ordered), *rank_on_shared_samples(robust))


def _board_of(entry: Entry, local: Iterable[BoardThreat], usual: Mapping[BoardThreat, int]) -> BoardThreat:
    """Return the board of an entry; for a published one, that of the nearest radius measured here, or the usual one."""
    own = entry.threat
    if entry.kind == "measured" or own.eps is None:
        return own
    if near := [threat for threat in local if _is_near(threat, own)]:
        return min(near, key=lambda threat: abs((threat.eps or 0) - (own.eps or 0)))
    return max((threat for threat in usual if _is_near(threat, own)), key=lambda threat: usual[threat], default=own)


def _is_near(threat: BoardThreat, own: BoardThreat) -> bool:
    alike = (threat.dataset, threat.norm, threat.target, threat.query_budget) == (own.dataset, own.norm, None, None)
    radii = threat.eps, own.eps
    return alike and radii[0] is not None and radii[1] is not None and abs(radii[0] - radii[1]) <= CLOSE * radii[0]


def _unique(entries: Sequence[Entry]) -> list[Entry]:
    """Keep one entry per name and kind; two models of one name were renamed before."""
    return list({(entry.kind, entry.card.name): entry for entry in entries}.values())


def _lowered(entry: Entry, published: Mapping[str, Entry]) -> Entry:
    name = entry.card.name.removeprefix("robustbench:").partition(":")[0]
    if entry.kind == "published" or name not in published:
        return entry
    other = published[name].best_known
    return with_external(entry, other.value, f"{other.by} (published)")


def _order(threat: BoardThreat) -> tuple[str, str, float, str, int]:
    return threat.dataset, threat.norm, threat.eps or 0.0, threat.target or "", threat.query_budget or 0
