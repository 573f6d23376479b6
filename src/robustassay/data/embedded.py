"""The embedded sample of CIFAR-10: one lossless WebP sheet and a JSON file; README.md explains both."""

import io
import json
from importlib.resources import files

import numpy as np
import numpy.typing as npt
from PIL import Image

from robustassay.data.arrays import from_arrays
from robustassay.data.dataset import Dataset
from robustassay.data.readers.cifar10 import CLASSES
from robustassay.errors import BadData

NAME = "cifar10-1k"
SHEET_FILE = "cifar10_1k.webp"
RECORD_FILE = "cifar10_1k.json"
SIDE = 32


def read() -> Dataset:
    """Read the embedded sample."""
    here = files("robustassay.data")
    return decode((here / SHEET_FILE).read_bytes(), (here / RECORD_FILE).read_bytes())


def decode(sheet: bytes, record: bytes) -> Dataset:
    """Return the dataset in a sheet and its record; its identity must be the recorded one."""
    try:
        facts = json.loads(record)
        with Image.open(io.BytesIO(sheet), formats=("WEBP",)) as image:
            tiles = _split_sheet(np.asarray(image.convert("RGB")))
        dataset = from_arrays(tiles, facts["labels"], NAME, facts["indices"], CLASSES)
        recorded = facts["sha256"]
    except Exception as error:  # any error here means a damaged installation
        raise BadData(
            f"The embedded sample {NAME} cannot be read ({error}): install assay again, and a pillow with WebP."
        ) from error
    if dataset.sha256 != recorded:
        raise BadData(f"The embedded sample {NAME} differs from the published one: install assay again.")
    return dataset


def _split_sheet(sheet: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Convert a sheet [rows * 32, columns * 32, 3] to images [n, 3, 32, 32], in reading order."""
    rows, columns = sheet.shape[0] // SIDE, sheet.shape[1] // SIDE
    tiles = sheet.reshape(rows, SIDE, columns, SIDE, 3)
    return tiles.transpose(0, 2, 4, 1, 3).reshape(-1, 3, SIDE, SIDE)
