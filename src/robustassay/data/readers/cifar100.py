"""The official CIFAR-100 files (https://www.cs.toronto.edu/~kriz/cifar.html), or a folder per class; fine labels."""

import os
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from robustassay.data.arrays import from_arrays
from robustassay.data.dataset import Dataset
from robustassay.data.readers import folder
from robustassay.data.readers.cifar10_pickle import PIXELS, parse_batch
from robustassay.data.safe_files import read_file
from robustassay.errors import BadData

CLASSES: Final = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish", "forest",
    "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion", "lizard",
    "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange", "orchid",
    "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy", "porcupine", "possum",
    "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper",
    "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone",
    "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf",
    "woman", "worm",
)  # fmt: skip
TEST_FILES: Final = ("test", "test.bin", "cifar-100-python/test", "cifar-100-binary/test.bin")
"""Usual places of the test split in a folder."""

ARCHIVES: Final = "cifar-100-python.tar.gz or cifar-100-binary.tar.gz"


def read(path: Path) -> Dataset:
    """Read the test split of a folder, the one file given, or a folder with one sub-folder per class."""
    file = path if path.is_file() else _test_file(path)
    if file is None:
        return _images(path)
    x, y = _parse_binary(file) if file.suffix == ".bin" else _parse_pickle(file)
    name = "cifar100" if file.stem == "test" else f"cifar100-{file.stem}"
    return from_arrays(x.reshape(-1, 3, 32, 32), y, name=name, classes=CLASSES)


def read_default_folder() -> Dataset:
    """Read the test split from the folder in ASSAY_DATA, or from ./data."""
    configured = os.environ.get("ASSAY_DATA")
    for place in ([Path(configured).expanduser()] if configured else []) + [Path("data")]:
        for inside in (place, place / "cifar100", place / "cifar-100"):
            if (file := _test_file(inside)) is not None:
                return read(file)
    raise BadData(
        f"CIFAR-100 was not found: unpack {ARCHIVES} into ./data, set ASSAY_DATA to its folder, or use cifar100:FOLDER."
    )


def _test_file(place: Path) -> Path | None:
    return next((place / name for name in TEST_FILES if (place / name).is_file()), None)


def _parse_pickle(file: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
    return parse_batch(read_file(file), str(file), labels="fine_labels", dataset="CIFAR-100")


def _parse_binary(file: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
    """Split rows of a coarse label, a fine label and 3,072 pixels, a byte each."""
    content = read_file(file)
    if not content or len(content) % (2 + PIXELS):
        raise BadData(
            f"{file} has {len(content)} bytes, which is not a multiple of {2 + PIXELS} (two labels and an image): "
            "unpack cifar-100-binary.tar.gz again; for CIFAR-10 use cifar10:FOLDER."
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, 2 + PIXELS)
    return rows[:, 2:], rows[:, 1]


def _images(path: Path) -> Dataset:
    """Read a folder with one sub-folder per class, whose names must be those of CIFAR-100."""
    below = {entry.name for entry in path.iterdir() if entry.is_dir()}
    if below != set(CLASSES):
        missing = sorted(set(CLASSES) - below)
        raise BadData(
            f"{path} holds neither the files of {ARCHIVES} nor one folder for each of the 100 classes "
            f"(such as {missing[0] if missing else CLASSES[0]!r}): give the folder that the archive unpacks to."
        )
    return folder.read(path)
