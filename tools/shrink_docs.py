"""Writes the figures and tables of published studies as a study's writer does now: with few colours, in six digits.

    python -m tools.shrink_docs [FOLDER...]

Pages of earlier versions get smaller without a new measurement; a second call changes nothing.
"""

import csv
import io
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from PIL import Image

from robustassay.files import write_atomically
from robustassay.leaderboard.writing import board_json
from robustassay.report.charts.few_colours import COLOURS, shrink
from robustassay.studies.writer import few_digits

STUDIES: Final = Path(__file__).resolve().parents[1] / "docs" / "studies"
FRACTION: Final = re.compile(r"-?\d+\.\d+(e[+-]?\d+)?")
"""Cells that are numbers, but no counts, versions or dates."""


def main(folders: Sequence[Path] = ()) -> int:
    """Shrink all studies, or some folders; return the bytes saved."""
    saved = 0
    for folder in folders or sorted(path for path in STUDIES.iterdir() if path.is_dir()):
        for path in sorted(folder.rglob("*")):
            if path.suffix in HANDLERS and path.is_file():
                before = path.stat().st_size
                HANDLERS[path.suffix](path)
                saved += before - path.stat().st_size
    return saved


def picture(path: Path) -> None:
    """Shrink a drawing; photographs, which have no palette, stay."""
    with Image.open(path) as shown:
        colours = shown.convert("RGB").getcolors(1 << 24) if shown.mode == "P" else None
    if colours and len(colours) > COLOURS:
        shrink(path, path)


def table(path: Path) -> None:
    """Round the cells of a study's table."""
    if path.parent.name != "tables":
        return
    rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows([rounded(cell) for cell in row] for row in rows)
    write(path, out.getvalue())


def rounded(cell: str) -> str:
    """Round a cell, if it is a number."""
    return str(few_digits(float(cell))) if FRACTION.fullmatch(cell) else cell


def board(path: Path) -> None:
    """Write a leaderboard with one entry per line."""
    if path.name == "board.json":
        write(path, board_json(json.loads(path.read_text(encoding="utf-8"))))


def write(path: Path, text: str) -> None:
    """Replace a file whose text changes."""
    if text != path.read_text(encoding="utf-8"):
        write_atomically(path, text.encode())


HANDLERS: Final = {".png": picture, ".csv": table, ".json": board}


if __name__ == "__main__":
    print(f"{main([Path(word) for word in sys.argv[1:]]):,} bytes saved")
