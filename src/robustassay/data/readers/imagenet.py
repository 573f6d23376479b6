"""ImageNet's validation photographs in the usual folder layouts, and its 1,000 classes in the usual order.

    FOLDER/n01440764/*.JPEG          one folder per synset; a part of the 1,000 is enough
    FOLDER/*.JPEG + a label file     lines `FILE CLASS`, or one synset per line for the files in order of name
    FOLDER with a CSV                as in the NIPS 2017 competition (see `robustassay.data.readers.nips2017`)

A class is a synset such as n01440764, or its number 0 to 999 in the order of the synsets. The numbers of ILSVRC's
development kit count from 1 in another order: a list of numbers alone is refused, because it would be read wrongly.
"""

import os
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from robustassay.data.dataset import Dataset
from robustassay.data.photos import photo_dataset
from robustassay.data.readers import nips2017
from robustassay.data.readers.folder import SUFFIXES, list_images
from robustassay.data.safe_files import read_file
from robustassay.errors import BadData

NAME: Final = "imagenet"
LABEL_SUFFIXES: Final = (".txt", ".csv")
IMAGE_FOLDERS: Final = ("", "val", "images", "validation")
"""Sub-folders that may hold the photographs of a label file."""

_SYNSET = re.compile(r"n\d{8}")


@cache
def synsets() -> dict[str, str]:
    """Return the name of each synset, in the order of the logits of networks."""
    lines = (files("robustassay.data") / "imagenet_classes.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split(" ", 1) for line in lines)


def class_names() -> tuple[str, ...]:
    """Return the names of the 1,000 classes."""
    return tuple(synsets().values())


def read(path: Path) -> Dataset:
    """Read a folder in one of the layouts, or a label file with its photographs in the same folder."""
    root = path.resolve()
    if root.is_file():
        return nips2017.read(root) if nips2017.is_list(root) else _flat(root.parent, root)
    if nips2017.find_list(root) is not None:
        return nips2017.read(root)
    for place in (root, root / "val", root / "validation"):
        if place.is_dir() and any(_SYNSET.fullmatch(name) for name in os.listdir(place)):
            return _by_synset(place)
    lists = sorted(entry for entry in root.iterdir() if entry.suffix.lower() in LABEL_SUFFIXES and entry.is_file())
    if len(lists) != 1:
        found = f"{len(lists)} text files" if lists else "neither folders named by synset nor a label file"
        raise BadData(
            f"{root} holds {found}: keep photographs in folders such as n01440764, or put one label file with lines "
            "`FILE CLASS` beside them, or name that file as imagenet:FILE."
        )
    return _flat(root, lists[0])


def read_default_folder() -> Dataset:
    """Read the folder in ASSAY_IMAGENET, or ./data/imagenet."""
    configured = os.environ.get("ASSAY_IMAGENET")
    folder = Path(configured).expanduser() if configured else Path("data/imagenet")
    if not folder.exists():
        raise BadData(
            f"ImageNet is not in {folder}: set ASSAY_IMAGENET to its folder, or use imagenet:FOLDER or nips2017:FOLDER."
        )
    return read(folder)


def _by_synset(root: Path) -> Dataset:
    names, listed = list_images(root)
    unknown = [name for name in names if name not in synsets()]
    if unknown:
        raise BadData(f"{root / unknown[0]} is no synset of ImageNet's thousand classes: move it elsewhere.")
    number = {name: at for at, name in enumerate(synsets())}
    labels = [number[file.partition("/")[0]] for file in listed]
    return photo_dataset(NAME, root, listed, labels, class_names(), precropped=False)


def _flat(root: Path, labels: Path) -> Dataset:
    place = next((root / name for name in IMAGE_FOLDERS if (root / name).is_dir() and _pictures(root / name)), None)
    if place is None:
        raise BadData(f"There are no photographs beside {labels}: put them into its folder, or into images/ in it.")
    pictures = _pictures(place)
    found = _labels(labels, pictures)
    ordered = [file for file in pictures if file in found]
    if not ordered:
        raise BadData(f"{labels} names none of the photographs in {place}: check that both belong together.")
    return photo_dataset(NAME, place, ordered, [found[file] for file in ordered], class_names(), precropped=False)


def _pictures(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.lower().endswith(SUFFIXES) and not name.startswith("."))


def _labels(path: Path, pictures: list[str]) -> dict[str, int]:
    """Read lines of a file and its class, separated by blanks or a comma, or a synset for each file in order."""
    text = read_file(path).decode("utf-8", errors="replace")
    lines = [re.split(r"[,\s]+", line.strip()) for line in text.splitlines() if line.strip()]
    if lines and lines[0][0].lower() in ("imageid", "file", "filename", "image"):
        lines = lines[1:]
    if all(len(line) == 1 for line in lines):
        return _in_order(path, [line[0] for line in lines], pictures)
    by_stem = {Path(name).stem: name for name in pictures}
    found = {}
    for at, line in enumerate(lines, 1):
        if len(line) < 2:
            raise BadData(f"Entry {at} of {path} has no class: write `FILE CLASS`.")
        # Kaggle's list has no suffixes, and a bounding box after each class.
        file = Path(line[0]).name
        name = by_stem.get(Path(file).stem if file.lower().endswith(SUFFIXES) else file)
        if name is not None:
            found[name] = _class(line[1], path, at)
    return found


def _in_order(path: Path, names: list[str], pictures: list[str]) -> dict[str, int]:
    if not all(_SYNSET.fullmatch(name) for name in names):
        raise BadData(
            f"{path} is a list of numbers, and ILSVRC's development kit numbers classes in another order than "
            "networks: write a synset such as n01440764 on each line, or lines `FILE CLASS`."
        )
    if len(names) != len(pictures):
        raise BadData(f"{path} has {len(names)} lines for {len(pictures)} photographs: write one line per photograph.")
    return {file: _class(name, path, at) for at, (file, name) in enumerate(zip(pictures, names, strict=True), 1)}


def _class(text: str, path: Path, at: int) -> int:
    if text in synsets():
        return list(synsets()).index(text)
    if text.isdecimal() and int(text) < len(synsets()):
        return int(text)
    raise BadData(f"Entry {at} of {path} has the class {text!r}: give a synset of ImageNet or a number 0 to 999.")
