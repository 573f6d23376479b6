"""Writes a leaderboard: board.json, board.csv, board.md, and one file per entry in RobustBench's form."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pandas as pd

from robustassay.errors import StoreFailed
from robustassay.files import write_atomically
from robustassay.leaderboard.board import Board
from robustassay.leaderboard.entry import Accuracy, Entry, EntryRun
from robustassay.leaderboard.model_info import to_model_info
from robustassay.names import slug

FORMAT: Final = "assay-leaderboard-1"
HEADING: Final = (
    "rank", "group", "model", "clean", "robust", "best known", "warnings", "extra data", "architecture", "venue", "n",
)  # fmt: skip


def write(made: Sequence[Board], out: Path, problems: Iterable[str] = ()) -> None:
    """Write all boards to a folder."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        content = {"format": FORMAT, "boards": [to_dict(board) for board in made], "left_out": list(problems)}
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
        write_atomically(out / "board.json", text + "\n")
        rows = pd.DataFrame([{k: _as_text(v) for k, v in row.items()} for board in made for row in _rows(board)])
        write_atomically(out / "board.csv", rows.to_csv(index=False))
        write_atomically(out / "board.md", _markdown(made, list(problems)))
        shared = Counter((board.threat.dataset, board.threat.norm) for board in made)
        for board in made:
            several = shared[board.threat.dataset, board.threat.norm] > 1
            for entry in board.entries:
                _write_info(entry, out / "model_info", f"_eps{entry.threat.eps:.4g}" if several else "")
    except OSError as error:
        raise StoreFailed(f"{out} cannot be written ({error.strerror or error}): choose another place.") from error


def to_dict(board: Board) -> dict[str, Any]:
    """Return a board as plain data; each entry has all of RobustBench's fields and ours."""
    threat = board.threat
    return {
        "dataset": threat.dataset,
        "norm": threat.norm,
        "eps": threat.eps,
        "target": threat.target,
        "query_budget": threat.query_budget,
        "compared_on": board.samples,
        "groups": [list(group) for group in board.ranks.groups] if board.ranks else [],
        "entries": [_entry(board, at, entry) for at, entry in enumerate(board.entries, 1)],
    }


def lines(board: Board) -> list[list[str]]:
    """Return the lines of a table of a board, under `HEADING`."""
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


def _attack(one: EntryRun) -> dict[str, Any]:
    fields = asdict(one)
    return fields | {key: None for key in ("forwards", "backwards") if math.isnan(fields[key])}


def _rows(board: Board) -> Iterable[dict[str, Any]]:
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
            "best_known_external": known.external,
            "flags": " ".join(entry.flags),
            "doubtful": entry.doubtful,
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
        ", ".join(notes) or "none",
        {True: "yes", False: "no", None: "?"}[card.additional_data],
        card.architecture,
        card.venue,
        "" if entry.robust.samples is None else f"{entry.robust.samples:,}",
    ]


def _spanned(number: Accuracy) -> str:
    reach = "" if number.low is None or number.high is None else f" ({100 * number.low:.1f}–{100 * number.high:.1f})"
    return f"{number.value:.1%}{reach}"


def _markdown(made: Sequence[Board], problems: Sequence[str]) -> str:
    text = ["# Leaderboard", ""]
    for board in made:
        text += [f"## {board.threat}", "", *_explanation(board), ""]
        rows = [HEADING, ["---"] * len(HEADING), *lines(board)]
        text += [f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
        flags = {name: text for entry in board.entries for name, text in entry.flags.items()}
        text += ["", *(f"- {name}: {why}" for name, why in flags.items()), ""]
        text += [line for entry in board.entries for line in _breakdown(entry)] + [""]
    if problems:
        text += ["## Left out", "", *(f"- {problem}" for problem in problems), ""]
    # Names and remarks come from others: kept on one line, without HTML, links and images.
    return "\n".join(" ".join(line.split()).replace("<", "&lt;").replace("[", "&#91;") for line in text)


def _as_text(value: Any) -> Any:
    """Return a cell that a spreadsheet does not take for a formula."""
    return f"'{value}" if isinstance(value, str) and value.lstrip()[:1] in tuple("=+-@") else value


def _explanation(board: Board) -> list[str]:
    text = "Sorted by the best known accuracy: the lowest over all evaluations, an upper bound. Intervals are 95 %."
    if board.ranks:
        text += (
            f" Models that share a letter do not differ significantly on the {board.samples:,} samples that all "
            "of them have (exact McNemar tests, Holm-corrected); a rank is a range where more than one is possible."
        )
    if any(entry.kind == "published" for entry in board.entries):
        text += " Published entries are shown as others reported them, on other samples; they have no rank here."
    return [text]


def _breakdown(entry: Entry) -> list[str]:
    """Write one line per run: its robust accuracy and its cost."""
    found = []
    for one in entry.attacks:
        stages = ", ".join(f"{name} {accuracy:.1%}" for name, accuracy in one.stages.items())
        cost = f"{one.forwards:,.0f} forwards and {one.backwards:,.0f} backwards per image, {one.seconds:,.0f} s"
        place = f"{one.hardware}, {one.date}"
        after = f"; after each stage: {stages}" if stages else ""
        found.append(f"- {entry.card.name}, {one.robust.by}: {_spanned(one.robust)}{after} ({cost}; {place})")
    return found


def _write_info(entry: Entry, folder: Path, ending: str) -> None:
    """Write a file in RobustBench's form; it has none for threats with targets or query budgets."""
    threat = entry.threat
    if entry.kind == "published" or threat.target or threat.query_budget:
        return
    dataset, norm, name = map(slug, (threat.dataset, threat.norm, entry.card.name))
    path = folder / dataset / norm / f"{name}{ending}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(to_model_info(entry), indent=2, ensure_ascii=False) + "\n")
