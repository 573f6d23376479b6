"""Training and test images with labels, in memory as uint8."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from robustassay.data.safe_files import check_unpacked
from robustassay.errors import BadData


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Images as uint8 [n, 3, height, width] and labels as int64 [n]; the test part is used only for measurements."""

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    dataset: str = "cifar10"
    source: str = "CIFAR-10 training set, 50,000 images (Krizhevsky 2009)"

    def __post_init__(self) -> None:
        for x, y in ((self.x_train, self.y_train), (self.x_test, self.y_test)):
            if x.dtype != torch.uint8 or x.ndim != 4 or x.shape[1] != 3:
                raise BadData(f"Images must be uint8 [n, 3, height, width], not {x.dtype} {list(x.shape)}.")
            if not len(x):
                raise BadData("There must be images to train on and images to test on: give at least one of each.")
            if y.dtype != torch.int64 or y.shape != x.shape[:1]:
                raise BadData(f"{len(x)} images need as many int64 labels, not {y.dtype} {list(y.shape)}.")
        if int(self.y_test.max()) >= self.classes or min(int(self.y_train.min()), int(self.y_test.min())) < 0:
            raise BadData("Labels must count from 0, and each one to test on must occur among those to train on.")

    @property
    def classes(self) -> int:
        """The number of classes of the training labels."""
        return int(self.y_train.max()) + 1


def read_npz(path: Path) -> TrainingData:
    """Read x_train, y_train, x_test and y_test from one .npz file; images may be NHWC or NCHW."""
    check_unpacked(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            x_train, y_train, x_test, y_test = (file[key] for key in ("x_train", "y_train", "x_test", "y_test"))
        tensors = _images(x_train), _labels(y_train), _images(x_test), _labels(y_test)
    except Exception as error:  # zip, header and decompression errors mean the same to the user
        raise BadData(f"{path.name} is not an .npz file with x_train, y_train, x_test and y_test.") from error
    return TrainingData(*tensors)


def _images(array: np.ndarray) -> Tensor:
    x = torch.from_numpy(array)
    return x.permute(0, 3, 1, 2).contiguous() if x.ndim == 4 and x.shape[1] != 3 else x


def _labels(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array.astype(np.int64))
