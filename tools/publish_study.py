"""Copies a finished study into the documentation: its page, its tables as CSV, and its figures.

python -m tools.publish_study runs/su2018 su2018-imagenet "one NVIDIA H200, in 15 minutes"
"""

import argparse
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tools.pictures import shrink

STUDIES: Final = Path("docs/studies")


def publish(study: Path, place: Path, where: str) -> None:
    """Write the page, with a line that says where it comes from, and the tables and figures that it links to."""
    title, rest = (study / "study.md").read_text(encoding="utf-8").split("\n", 1)
    written = datetime.fromtimestamp((study / "study.md").stat().st_mtime, UTC).date()
    for folder in ("tables", "figures"):
        (place / folder).mkdir(parents=True, exist_ok=True)
    source = f"Measured on {where}, by `assay study {command_of(place.name)}`; written on {written}."
    (place / "study.md").write_text(f"{title}\n\n{source}\n{rest.rstrip()}\n", encoding="utf-8")
    for table in sorted((study / "tables").glob("*.csv")):
        shutil.copyfile(table, place / "tables" / table.name)
    for figure in sorted((study / "figures").glob("*.png")):
        shrink(figure, place / "figures" / figure.name)


def command_of(name: str) -> str:
    """Return the arguments of `assay study` for a page called PAPER or PAPER-DATASET."""
    paper, _, dataset = name.partition("-")
    return f"{paper} --dataset {dataset}" if dataset else paper


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path, help="folder of the finished study")
    parser.add_argument("name", help="name of its page: PAPER or PAPER-DATASET")
    parser.add_argument("where", help="machine and time, in words")
    arguments = parser.parse_args()
    publish(arguments.study, STUDIES / arguments.name, arguments.where)


if __name__ == "__main__":
    main()
