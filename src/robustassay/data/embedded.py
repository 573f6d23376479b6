"""The embedded sample of CIFAR-10: one lossless WebP sheet and a JSON record, explained in README.md."""

import io
import json
from importlib.resources import files

import numpy as np
import numpy.typing as npt
from PIL import Image

from robustassay.data.arrays import from_arrays
from robustassay.data.cifar10 import CLASSES
from robustassay.data.dataset import Dataset
from robustassay.errors import BadData

NAME = "cifar10-1k"
SHEET_FILE = "cifar10_1k.webp"
RECORD_FILE = "cifar10_1k.json"
SIDE = 32


def read() -> Dataset:
    """Read the sample that comes with assay."""
    here = files("robustassay.data")
    return decode((here / SHEET_FILE).read_bytes(), (here / RECORD_FILE).read_bytes())


def decode(sheet: bytes, record: bytes) -> Dataset:
    """Make the dataset of a sheet and its record, and check that its identity is the recorded one."""
    try:
        facts = json.loads(record)
        with Image.open(io.BytesIO(sheet), formats=("WEBP",)) as image:
            tiles = _cut(np.asarray(image.convert("RGB")))
        dataset = from_arrays(tiles, facts["labels"], NAME, facts["indices"], CLASSES)
        recorded = facts["sha256"]
    except Exception as error:  # whatever breaks here, the installation is what needs repair
        raise BadData(
            f"The embedded sample {NAME} cannot be read ({error}): install assay again, and a pillow that reads WebP."
        ) from error
    if dataset.sha256 != recorded:
        raise BadData(f"The embedded sample {NAME} is not the one that was published: install assay again.")
    return dataset


def _cut(sheet: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Sheet [rows * 32, columns * 32, 3] to images [n, 3, 32, 32], in reading order."""
    rows, columns = sheet.shape[0] // SIDE, sheet.shape[1] // SIDE
    tiles = sheet.reshape(rows, SIDE, columns, SIDE, 3)
    return tiles.transpose(0, 2, 4, 1, 3).reshape(-1, 3, SIDE, SIDE)
