"""The layout of the NIPS 2017 competition: photographs of 299 x 299, and a CSV with a true and a target class for each.

The file of the competition numbers classes from 1, because its networks have a background class 0; its columns are
TrueLabel and TargetClass. Files with the columns true_label and target_label count from 0.
"""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from robustassay.data.dataset import Dataset
from robustassay.data.photos import Credit, photo_dataset
from robustassay.data.readers.folder import SUFFIXES
from robustassay.data.safe_files import read_file
from robustassay.errors import BadData

NAME: Final = "nips2017"
CLASSES: Final = 1000
COLUMNS: Final = (("ImageId", "TrueLabel", "TargetClass", 1), ("file", "true_label", "target_label", 0))
"""Names of the columns with the file, the true and the target class, and the number of the first class."""

CREDITS: Final = (("Author", "License", "OriginalLandingURL"), ("author", "license", "landing_url"))
"""Names of the columns with the author, the licence and the source of a photograph, if there are any."""

IMAGE_FOLDERS: Final = ("images", "", "dataset")


def is_list(path: Path) -> bool:
    """Return whether a file is a CSV with true and target classes."""
    if path.suffix.lower() != ".csv":
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        heading = next(csv.reader(file), [])
    return any({name, true, target} <= set(heading) for name, true, target, _ in COLUMNS)


def find_list(folder: Path) -> Path | None:
    """Return the CSV in a folder, or None."""
    return next((path for path in sorted(folder.glob("*.csv")) if is_list(path)), None)


def read(path: Path) -> Dataset:
    """Read a folder with such a CSV, or the CSV itself; samples are in its order."""
    from robustassay.data.readers.imagenet import class_names

    root = path.resolve()
    labels = root if root.is_file() else find_list(root)
    if labels is None or not is_list(labels):
        heading = " or ".join(", ".join(map(str, columns[:3])) for columns in COLUMNS)
        raise BadData(f"{path} is, or contains, no CSV with the columns {heading}: give that file.")
    folder = labels.parent
    rows = list(csv.DictReader(io.StringIO(read_file(labels).decode("utf-8", errors="replace"))))
    name, true, target, first = next(one for one in COLUMNS if one[0] in rows[0]) if rows else COLUMNS[0]
    if not rows:
        raise BadData(f"{labels} lists no photographs: write one line per photograph.")
    place, files = _files(folder, [row[name] for row in rows])
    return photo_dataset(
        NAME,
        place,
        files,
        [_number(row, true, first, labels) for row in rows],
        class_names(),
        precropped=True,
        targets=[_number(row, target, first, labels) for row in rows],
        credits=_credits(rows),
    )


def _files(folder: Path, names: list[str]) -> tuple[Path, list[str]]:
    """Find the photographs in images/ or in the folder of the CSV; add a suffix if the CSV has none."""
    for place in (folder / name for name in IMAGE_FOLDERS):
        for suffix in ("", *SUFFIXES):
            if (place / f"{names[0]}{suffix}").is_file():
                return place, [f"{name}{suffix}" for name in names]
    raise BadData(f"The photograph {names[0]} is not in {folder} or images/ in it: put the photographs there.")


def _credits(rows: list[dict[str, str]]) -> list[Credit] | None:
    columns = next((names for names in CREDITS if set(names) <= set(rows[0])), None)
    return None if columns is None else [Credit(*((row[name] or "").strip() for name in columns)) for row in rows]


def _number(row: Mapping[str, str], column: str, first: int, path: Path) -> int:
    text = (row[column] or "").strip()
    if not text.isdecimal() or not first <= int(text) < CLASSES + first:
        raise BadData(
            f"{path} has the class {text!r} in column {column}: classes are {first} to {CLASSES + first - 1}."
        )
    return int(text) - first
