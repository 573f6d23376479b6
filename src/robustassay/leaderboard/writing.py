"""Writes a leaderboard: board.json, board.csv, board.md, and one file per entry in RobustBench's form."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd

from robustassay.leaderboard.board import Board
from robustassay.leaderboard.columns import HEADING, csv_rows, json_entry, lines, with_interval
from robustassay.leaderboard.entry import Entry
from robustassay.leaderboard.model_info import to_model_info
from robustassay.names import slug
from robustassay.output_files import write_output
from robustassay.printable import cell

FORMAT: Final = "assay-leaderboard-1"
LIST: Final = ".assay-board.json"
"""Lists the files of the board, so that building again removes stale ones and touches nothing else."""


def write(made: Sequence[Board], out: Path, problems: Iterable[str] = ()) -> None:
    """Write all boards to a folder; files there that no earlier board wrote are not replaced."""
    files = dict(_files(made, list(problems)))
    write_output(out, files.items(), LIST, files if _is_board_without_list(out) else ())


def _files(made: Sequence[Board], problems: list[str]) -> Iterator[tuple[str, str]]:
    content = {"format": FORMAT, "left_out": problems, "boards": [to_dict(board) for board in made]}
    yield "board.json", board_json(content)
    rows = pd.DataFrame([{k: cell(v) for k, v in row.items()} for board in made for row in csv_rows(board)])
    yield "board.csv", rows.to_csv(index=False)
    yield "board.md", _markdown(made, problems)
    shared = Counter((board.threat.dataset, board.threat.norm) for board in made)
    for board in made:
        several = shared[board.threat.dataset, board.threat.norm] > 1
        for entry in board.entries:
            yield from _info(entry, f"_eps{entry.threat.eps:.4g}" if several else "")


def board_json(content: dict[str, Any]) -> str:
    """Write one entry per line: a change of one is a change of one line, in half the bytes of a value per line."""
    boards = [_with_lines(board, "entries", map(_text, board["entries"])) for board in content["boards"]]
    return _with_lines(content, "boards", boards) + "\n"


def _with_lines(held: dict[str, Any], name: str, lines: Iterable[str]) -> str:
    """Write fields in one line, and one of them, last, in the given lines."""
    rest = _text({key: value for key, value in held.items() if key != name}).removesuffix("}")
    within = ",\n".join(lines)
    return f'{rest}, "{name}": [\n{within}\n]}}'


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _is_board_without_list(out: Path) -> bool:
    """Say whether version 0.1.0, which wrote no list, has written a board here."""
    try:
        held = json.loads((out / "board.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(held, dict) and held.get("format") == FORMAT and not (out / LIST).exists()


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
        "entries": [json_entry(board, at, entry) for at, entry in enumerate(board.entries, 1)],
    }


def _markdown(made: Sequence[Board], problems: Sequence[str]) -> str:
    text = ["# Leaderboard", ""]
    for board in made:
        text += [f"## {board.threat}", "", *_explanation(board), ""]
        rows = [HEADING, ["---"] * len(HEADING), *lines(board)]
        text += [f"| {' | '.join(str(text).replace('|', '&#124;') for text in row)} |" for row in rows]
        flags = {name: text for entry in board.entries for name, text in entry.flags.items()}
        text += ["", *(f"- {name}: {why}" for name, why in flags.items()), ""]
        text += [line for entry in board.entries for line in _breakdown(entry)] + [""]
    if problems:
        text += ["## Left out", "", *(f"- {problem}" for problem in problems), ""]
    # Names and remarks come from others: kept on one line, without HTML, links and images.
    return "\n".join(" ".join(line.split()).replace("<", "&lt;").replace("[", "&#91;") for line in text)


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
        found.append(f"- {entry.card.name}, {one.robust.by}: {with_interval(one.robust)}{after} ({cost}; {place})")
    return found


def _info(entry: Entry, ending: str) -> Iterator[tuple[str, str]]:
    """Give a file in RobustBench's form, which has none for threats with targets or query budgets."""
    threat = entry.threat
    if entry.kind == "published" or threat.target or threat.query_budget:
        return
    dataset, norm, name = map(slug, (threat.dataset, threat.norm, entry.card.name))
    text = json.dumps(to_model_info(entry), indent=2, ensure_ascii=False) + "\n"
    yield f"model_info/{dataset}/{norm}/{name}{ending}.json", text
