"""The columns of a leaderboard: what its table, its CSV file and its JSON file show of each entry."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final

from robustassay.leaderboard.board import Board
from robustassay.leaderboard.entry import Accuracy, Entry, EntryRun
from robustassay.leaderboard.model_info import to_model_info


def with_interval(accuracy: Accuracy) -> str:
    """Write an accuracy in percent, with its interval where it has one."""
    low, high = accuracy.low, accuracy.high
    interval = "" if low is None or high is None else f" ({100 * low:.1f}–{100 * high:.1f})"
    return f"{accuracy.value:.1%}{interval}"


def _rank(board: Board, entry: Entry) -> str:
    place = board.place(entry)
    if place is None:
        return "–"
    return f"{place[0]}" if place[0] == place[1] else f"{place[0]}–{place[1]}"


def _model(board: Board, entry: Entry) -> str:
    return entry.card.name + (" (published)" if entry.kind == "published" else "")


def _best_known(board: Board, entry: Entry) -> str:
    external = entry.best_known.external and (entry.kind == "measured" or entry.best_known.value < entry.robust.value)
    return with_interval(entry.best_known) + (" external" if external else "")


def _warnings(board: Board, entry: Entry) -> str:
    if entry.kind == "published":
        return "flagged" if entry.unreliable else "none stated"
    in_doubt = [f"{entry.doubtful} in doubt"] if entry.doubtful else []
    earned = entry.evidence is None or entry.evidence.earned  # without an attack, nothing is to be earned
    return ", ".join([*entry.flags, *in_doubt]) or ("none" if earned else "see evidence")


def _evidence(board: Board, entry: Entry) -> str:
    if entry.evidence is None:
        return _without_attack(entry)
    rate = entry.evidence.self_test.rate
    return entry.evidence.label + (f", self-test {rate.count}/{rate.total}" if rate.total else ", no self-test")


def _without_attack(entry: Entry) -> str:
    return "as published" if entry.kind == "published" else "measured, no attack"


def _verified(board: Board, entry: Entry) -> str:
    """Say who stands for the number; RobustBench marks evaluations that only the authors made as unverified."""
    if entry.kind == "measured":
        return "records"
    return "unverified" if "unverified" in entry.card.footnote.lower() else "not stated"


def _reported(board: Board, entry: Entry) -> str:
    return "" if entry.card.reported is None else f"{entry.card.reported:.1%}"


def _samples(board: Board, entry: Entry) -> str:
    return "" if entry.robust.samples is None else f"{entry.robust.samples:,}"


COLUMNS: Final[Mapping[str, Callable[[Board, Entry], str]]] = {
    "rank": _rank,
    "group": lambda board, entry: board.group(entry),
    "model": _model,
    "clean": lambda board, entry: f"{entry.clean.value:.1%}",
    "robust": lambda board, entry: f"{with_interval(entry.robust)} {entry.robust.by}",
    "best known": _best_known,
    "reported": _reported,
    "evidence": _evidence,
    "warnings": _warnings,
    "extra data": lambda board, entry: {True: "yes", False: "no", None: "?"}[entry.card.additional_data],
    "architecture": lambda board, entry: entry.card.architecture,
    "venue": lambda board, entry: entry.card.venue,
    "verified": _verified,
    "signed by": lambda board, entry: entry.signed or "–",
    "n": _samples,
}
"""The columns of the table in board.md; a new column is one row here."""

HEADING: Final = tuple(COLUMNS)
SHORT_HEADING: Final = tuple(name for name in COLUMNS if name not in ("reported", "verified"))
"""The columns that fit into a terminal."""


def lines(board: Board, heading: Iterable[str] = HEADING) -> list[list[str]]:
    """Return the rows of a board's table, under `HEADING` or another choice of the columns."""
    chosen = [COLUMNS[name] for name in heading]
    return [[cell(board, entry) for cell in chosen] for entry in board.entries]


def json_entry(board: Board, position: int, entry: Entry) -> dict[str, Any]:
    """Return one entry of board.json: all fields of RobustBench and ours."""
    place = board.place(entry)
    return to_model_info(entry) | {
        "id": entry.card.name,
        "kind": entry.kind,
        "position": position,
        "rank": None if place is None else {"best": place[0], "worst": place[1]},
        "group": board.group(entry).split(),
        "clean": asdict(entry.clean),
        "robust": asdict(entry.robust),
        "best_known": asdict(entry.best_known),
        "flags": dict(entry.flags),
        "doubtful": entry.doubtful,
        "evidence": None if entry.evidence is None else entry.evidence.to_json(),
        "parameters": entry.card.parameters,
        "year": entry.card.year,
        "date": entry.date or None,
        "hardware": entry.hardware or None,
        "seconds": entry.seconds,
        "signed_by": entry.signed or None,
        "attacks": [_attack(one) for one in entry.attacks],
        "externals": [asdict(one) for one in entry.card.external],
    }


def _attack(one: EntryRun) -> dict[str, Any]:
    fields = asdict(one)
    return fields | {key: None for key in ("forwards", "backwards") if math.isnan(fields[key])}


def csv_rows(board: Board) -> Iterable[dict[str, Any]]:
    """Return the rows of board.csv."""
    for at, entry in enumerate(board.entries, 1):
        place, (clean, robust, known) = board.place(entry), (entry.clean, entry.robust, entry.best_known)
        yield {
            "board": str(board.threat),
            "position": at,
            "rank_best": None if place is None else place[0],
            "rank_worst": None if place is None else place[1],
            "group": board.group(entry),
            "id": entry.card.name,
            "name": entry.card.title or entry.card.name,
            "kind": entry.kind,
            "clean": clean.value,
            "robust": robust.value,
            "robust_low": robust.low,
            "robust_high": robust.high,
            "robust_by": robust.by,
            "samples": robust.samples,
            "best_known": known.value,
            "best_known_by": known.by,
            "best_known_external": known.external and known.value < robust.value,
            "reported": entry.card.reported,
            "verified": _verified(board, entry),
            "flags": " ".join(entry.flags),
            "doubtful": entry.doubtful,
            "evidence": _without_attack(entry) if entry.evidence is None else entry.evidence.label,
            "self_test_found": None if entry.evidence is None else entry.evidence.self_test.rate.count,
            "self_test_planted": None if entry.evidence is None else entry.evidence.self_test.rate.total,
            "unreliable": entry.unreliable,
            "additional_data": entry.card.additional_data,
            "architecture": entry.card.architecture,
            "parameters": entry.card.parameters,
            "venue": entry.card.venue,
            "link": entry.card.link,
            "eps": entry.threat.eps,
            "date": entry.date,
            "hardware": entry.hardware,
            "seconds": entry.seconds,
            "signed_by": entry.signed,
            "attacks": "; ".join(f"{one.robust.by} {one.robust.value:.4f}" for one in entry.attacks),
        }
