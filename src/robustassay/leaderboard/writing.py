"""Writes a leaderboard: board.json, board.csv, board.md, and one file an entry in RobustBench's form."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pandas as pd

from robustassay.errors import StoreFailed
from robustassay.leaderboard.board import Board
from robustassay.leaderboard.entry import Attacked, Entry, Number
from robustassay.leaderboard.model_info import to_model_info
from robustassay.names import slug

FORMAT: Final = "assay-leaderboard-1"
HEADING: Final = (
    "rank", "group", "model", "clean", "robust", "best known", "reliable", "extra data", "architecture", "venue", "n",
)  # fmt: skip


def write(made: Sequence[Board], out: Path, problems: Iterable[str] = ()) -> None:
    """Write all boards to a folder."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        content = {"format": FORMAT, "boards": [to_dict(board) for board in made], "left_out": list(problems)}
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
        (out / "board.json").write_text(text + "\n", encoding="utf-8")
        pd.DataFrame([row for board in made for row in _rows(board)]).to_csv(out / "board.csv", index=False)
        (out / "board.md").write_text(_markdown(made, list(problems)), encoding="utf-8")
        shared = Counter((board.arena.dataset, board.arena.norm) for board in made)
        for board in made:
            several = shared[board.arena.dataset, board.arena.norm] > 1
            for entry in board.entries:
                _write_info(entry, out / "model_info", f"_eps{entry.arena.eps:.4g}" if several else "")
    except OSError as error:
        raise StoreFailed(f"{out} cannot be written ({error.strerror or error}): choose another place.") from error


def to_dict(board: Board) -> dict[str, Any]:
    """Write a board as plain data; each entry has all of RobustBench's fields and ours beside them."""
    arena = board.arena
    return {
        "dataset": arena.dataset,
        "norm": arena.norm,
        "eps": arena.eps,
        "target": arena.target,
        "query_budget": arena.query_budget,
        "compared_on": board.samples,
        "groups": [list(group) for group in board.ranks.groups] if board.ranks else [],
        "entries": [_entry(board, at, entry) for at, entry in enumerate(board.entries, 1)],
    }


def lines(board: Board) -> list[list[str]]:
    """Write a board as the lines of a table that people read, under `HEADING`."""
    return [_line(board, at, entry) for at, entry in enumerate(board.entries, 1)]


def _entry(board: Board, position: int, entry: Entry) -> dict[str, Any]:
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
        "parameters": entry.card.parameters,
        "year": entry.card.year,
        "date": entry.date or None,
        "hardware": entry.hardware or None,
        "seconds": entry.seconds,
        "attacks": [_attack(one) for one in entry.attacks],
        "externals": [asdict(one) for one in entry.card.external],
    }


def _attack(one: Attacked) -> dict[str, Any]:
    told = asdict(one)
    return told | {key: None for key in ("forwards", "backwards") if math.isnan(told[key])}


def _rows(board: Board) -> Iterable[dict[str, Any]]:
    for at, entry in enumerate(board.entries, 1):
        place, (clean, robust, known) = board.place(entry), (entry.clean, entry.robust, entry.best_known)
        yield {
            "board": str(board.arena),
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
            "best_known_external": known.external,
            "flags": " ".join(entry.flags),
            "doubtful": entry.doubtful,
            "unreliable": entry.unreliable,
            "additional_data": entry.card.additional_data,
            "architecture": entry.card.architecture,
            "parameters": entry.card.parameters,
            "venue": entry.card.venue,
            "link": entry.card.link,
            "eps": entry.arena.eps,
            "date": entry.date,
            "hardware": entry.hardware,
            "seconds": entry.seconds,
            "attacks": "; ".join(f"{one.robust.by} {one.robust.value:.4f}" for one in entry.attacks),
        }


def _line(board: Board, position: int, entry: Entry) -> list[str]:
    place, card = board.place(entry), entry.card
    span = "" if place is None else f"{place[0]}" if place[0] == place[1] else f"{place[0]}–{place[1]}"
    notes = [*entry.flags, *([f"{entry.doubtful} in doubt"] if entry.doubtful else [])]
    if entry.kind == "published":
        notes = ["flagged"] * entry.unreliable
    return [
        span or "–",
        board.group(entry),
        card.name + (" (published)" if entry.kind == "published" else ""),
        f"{entry.clean.value:.1%}",
        f"{_spanned(entry.robust)} {entry.robust.by}",
        _spanned(entry.best_known) + (" external" if entry.best_known.external and entry.kind == "measured" else ""),
        ", ".join(notes) or "yes",
        {True: "yes", False: "no", None: "?"}[card.additional_data],
        card.architecture,
        card.venue,
        "" if entry.robust.samples is None else f"{entry.robust.samples:,}",
    ]


def _spanned(number: Number) -> str:
    reach = "" if number.low is None or number.high is None else f" ({100 * number.low:.1f}–{100 * number.high:.1f})"
    return f"{number.value:.1%}{reach}"


def _markdown(made: Sequence[Board], problems: Sequence[str]) -> str:
    text = ["# Leaderboard", ""]
    for board in made:
        text += [f"## {board.arena}", "", *_words(board), ""]
        rows = [HEADING, ["---"] * len(HEADING), *lines(board)]
        text += [f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
        told = {name: text for entry in board.entries for name, text in entry.flags.items()}
        text += ["", *(f"- {name}: {why}" for name, why in told.items()), ""]
        text += [line for entry in board.entries for line in _breakdown(entry)] + [""]
    if problems:
        text += ["## Left out", "", *(f"- {problem}" for problem in problems), ""]
    # Names and remarks come from others: none may be more than text, or more than its line.
    return "\n".join(" ".join(line.split()).replace("<", "&lt;") for line in text)


def _words(board: Board) -> list[str]:
    said = "Sorted by the best known accuracy: the worst case over all evaluations. Intervals are 95 % (Wilson)."
    if board.ranks:
        said += (
            f" Models that share a letter cannot be told apart on the {board.samples:,} samples they were all judged "
            "on (exact McNemar tests, Holm-corrected); a rank is a range where more than one is possible."
        )
    if any(entry.kind == "published" for entry in board.entries):
        said += " Published entries are shown as others reported them, on other samples; they have no rank here."
    return [said]


def _breakdown(entry: Entry) -> list[str]:
    """One line a run: what each attack left standing, and what it cost."""
    found = []
    for one in entry.attacks:
        stages = ", ".join(f"{name} {accuracy:.1%}" for name, accuracy in one.stages.items())
        cost = f"{one.forwards:,.0f} forwards and {one.backwards:,.0f} backwards an image, {one.seconds:,.0f} s"
        place = f"{one.hardware}, {one.date}"
        after = f"; after each stage: {stages}" if stages else ""
        found.append(f"- {entry.card.name}, {one.robust.by}: {_spanned(one.robust)}{after} ({cost}; {place})")
    return found


def _write_info(entry: Entry, folder: Path, ending: str) -> None:
    """Write the file RobustBench would have; threats that it cannot say, with targets or budgets, have none."""
    arena = entry.arena
    if entry.kind == "published" or arena.target or arena.query_budget:
        return
    said = (arena.dataset, arena.norm, entry.card.name)
    dataset, norm, name = map(slug, said)
    path = folder / dataset / norm / f"{name}{ending}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(to_model_info(entry), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
