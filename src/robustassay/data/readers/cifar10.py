"""The official CIFAR-10 files: https://www.cs.toronto.edu/~kriz/cifar.html."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from robustassay.data.arrays import from_arrays
from robustassay.data.dataset import Dataset
from robustassay.data.readers.cifar10_pickle import PIXELS, parse_batch
from robustassay.data.safe_files import read_file
from robustassay.errors import BadData

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

# Usual places of the test split in a folder.
TEST_FILES = (
    "test_batch",
    "test_batch.bin",
    "cifar-10-batches-py/test_batch",
    "cifar-10-batches-bin/test_batch.bin",
)


def read(path: Path) -> Dataset:
    """Read the test split of a folder, or the one file given, in the python or the binary version."""
    file = _test_file(path) if path.is_dir() else path
    parse = parse_binary if file.suffix == ".bin" else parse_batch
    x, y = parse(read_file(file), str(file))
    name = "cifar10" if file.stem == "test_batch" else f"cifar10-{file.stem}"
    return from_arrays(x.reshape(-1, 3, 32, 32), y, name=name, classes=CLASSES)


def read_default_folder() -> Dataset:
    """Read the test split from the folder in ASSAY_DATA, or from ./data, the folder that torchvision uses."""
    configured = os.environ.get("ASSAY_DATA")
    for folder in ([Path(configured).expanduser()] if configured else []) + [Path("data")]:
        for place in (folder, folder / "cifar10", folder / "cifar-10"):
            if any((place / name).is_file() for name in TEST_FILES):
                return read(place)
    raise BadData(
        "CIFAR-10 was not found: unpack cifar-10-python.tar.gz into ./data, set ASSAY_DATA to its folder, use "
        "cifar10:FOLDER, or use the 1,000 embedded images, cifar10-1k."
    )


def parse_binary(content: bytes, file: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
    """Split rows of one label byte and 3,072 pixel bytes."""
    if not content or len(content) % (1 + PIXELS):
        raise BadData(
            f"{file} has {len(content)} bytes, which is not a multiple of {1 + PIXELS} (a label and an image): "
            "unpack cifar-10-binary.tar.gz again; for CIFAR-100 use cifar100:FOLDER."
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + PIXELS)
    return rows[:, 1:], rows[:, 0]


def _test_file(folder: Path) -> Path:
    for name in TEST_FILES:
        if (folder / name).is_file():
            return folder / name
    raise BadData(
        f"{folder} holds neither test_batch nor test_batch.bin: "
        "give the folder that cifar-10-python.tar.gz or cifar-10-binary.tar.gz unpacks to."
    )
