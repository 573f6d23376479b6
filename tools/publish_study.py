"""Puts a finished study into the documentation: its page and its pictures.

python -m tools.publish_study runs/studies/su2018 su2018-imagenet "one NVIDIA H200, in 15 minutes"
"""

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tools.pictures import shrink

STUDIES: Final = Path("docs/studies")


def publish(study: Path, place: Path, where: str) -> None:
    """Write the page, with a line that says where it comes from, and the pictures it shows."""
    title, rest = (study / "study.md").read_text(encoding="utf-8").split("\n", 1)
    when = datetime.fromtimestamp((study / "study.md").stat().st_mtime, UTC).date()
    (place / "figures").mkdir(parents=True, exist_ok=True)
    source = f"Measured on {where}, by `assay study {place.name.replace('-', ' --dataset ')}`; written on {when}."
    (place / "study.md").write_text(f"{title}\n\n{source}\n{rest.rstrip()}\n", encoding="utf-8")
    for picture in sorted((study / "figures").glob("*.png")):
        shrink(picture, place / "figures" / picture.name)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path, help="the folder of the finished study")
    parser.add_argument("name", help="of its page: STUDY or STUDY-DATASET")
    parser.add_argument("where", help="machine and time, in words")
    asked = parser.parse_args()
    publish(asked.study, STUDIES / asked.name, asked.where)


if __name__ == "__main__":
    main()
