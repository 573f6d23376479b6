"""Datasets from arrays in memory; the arrays are checked once, before any number is computed from them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from robustassay.data.dataset import Dataset, identity
from robustassay.errors import BadData

Array = Tensor | npt.NDArray[Any]

# More than any real label set; a larger label is a mistake, and a list of its classes would fill the memory.
MAX_CLASSES = 1_000_000
HASHED_ROWS = 256


@dataclass(frozen=True)
class ArrayReader:
    """Images held in memory, as float32 or, four times smaller, as uint8."""

    pixels: Tensor

    def __call__(self, rows: Sequence[int]) -> Tensor:
        """Return a copy of the rows as float32."""
        # Indexing copies, so a caller that writes to its images cannot change the dataset.
        chosen = self.pixels[torch.as_tensor(rows, dtype=torch.int64)]
        return chosen.float().div_(255) if chosen.dtype == torch.uint8 else chosen


def from_arrays(
    x: Array,
    y: Array | Sequence[int],
    name: str = "arrays",
    ids: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
) -> Dataset:
    """Wrap a copy of images [N, C, H, W] (or vectors [N, d]) in [0, 1], or uint8, and their labels [N].

    Without `ids` the position is the id; without `classes` the label is the class name.
    """
    pixels = _checked_pixels(x, name)
    labels = checked_labels(y, name, len(pixels))
    last = int(labels.max())
    class_names = tuple(map(str, range(last + 1) if classes is None else classes))
    if last >= len(class_names):
        raise BadData(
            f"Dataset {name!r} has label {last} but only {len(class_names)} classes: "
            "count labels from 0, or name every class."
        )
    sample_ids = _checked_ids(range(len(pixels)) if ids is None else ids, name, len(pixels))
    read = ArrayReader(pixels)
    # Identity is that of the images as read, so uint8 and float copies of the same images are one dataset.
    content = "float32 " + "x".join(map(str, pixels.shape))
    sha256 = identity(content, sample_ids, labels, _image_bytes(read, len(pixels)))
    return Dataset(name, sample_ids, labels, class_names, sha256, read)


def _image_bytes(read: ArrayReader, count: int) -> Iterator[bytes]:
    for start in range(0, count, HASHED_ROWS):
        images = read(range(start, min(start + HASHED_ROWS, count)))
        yield images.numpy().astype("<f4", copy=False).tobytes()


def _checked_pixels(x: Array, name: str) -> Tensor:
    pixels = _as_pixels(x, name)
    shape = list(pixels.shape)
    if pixels.ndim not in (2, 4):
        raise BadData(
            f"The images of dataset {name!r} have shape {shape}, but must be [N, C, H, W] (or [N, d] for "
            "vectors): grey images need a channel, as in x[:, None], a single image needs x[None]."
        )
    if pixels.numel() == 0:
        raise BadData(f"Dataset {name!r} is empty, its images have shape {shape}: give at least one sample.")
    if pixels.ndim == 4 and shape[3] in (1, 3, 4) and min(shape[1], shape[2]) > 4:
        raise BadData(
            f"The images of dataset {name!r} have shape {shape}, with channels last: "
            "move them to [N, C, H, W] with permute(0, 3, 1, 2) (numpy: transpose)."
        )
    if pixels.dtype == torch.float32:
        check_range(pixels, name)
    return pixels


def _as_pixels(x: Array, name: str) -> Tensor:
    """Copy to contiguous uint8 or float32 on the CPU; a copy, so that the identity stays true."""
    if isinstance(x, Tensor) and (x.is_floating_point() or x.dtype == torch.uint8):
        dtype = torch.float32 if x.is_floating_point() else torch.uint8
        return x.detach().to("cpu", dtype, copy=True, memory_format=torch.contiguous_format)
    if isinstance(x, np.ndarray) and (x.dtype.kind == "f" or x.dtype == np.uint8):
        # Values that overflow float32 become infinite and are refused later.
        with np.errstate(over="ignore"):
            return torch.from_numpy(np.array(x, np.float32 if x.dtype.kind == "f" else np.uint8, order="C"))
    kind = str(x.dtype) if isinstance(x, Tensor | np.ndarray) else type(x).__name__
    raise BadData(
        f"The images of dataset {name!r} are {kind}: "
        "give a tensor or numpy array of floats in [0, 1], or of uint8 in 0..255."
    )


def check_range(pixels: Tensor, name: str) -> None:
    """Refuse pixels outside [0, 1]."""
    # aminmax returns NaN if there is one, so one pass over the pixels finds everything.
    low, high = (float(extreme) for extreme in pixels.aminmax())
    if not (np.isfinite(low) and np.isfinite(high)):
        first = int((~pixels.flatten(1).isfinite()).any(1).nonzero()[0])
        raise BadData(
            f"The images of dataset {name!r} hold NaN or infinity, first in row {first}: repair or remove such samples."
        )
    if low < 0:
        raise BadData(
            f"The images of dataset {name!r} go down to {low:.4g}, but must be in [0, 1]: "
            "undo the normalisation, and make it the first layer of the model instead."
        )
    if high > 1:
        advice = "divide by 255" if high <= 255 else "scale them by their largest possible value"
        raise BadData(f"The images of dataset {name!r} go up to {high:.4g}, but must be in [0, 1]: {advice}.")


def checked_labels(y: Array | Sequence[int], name: str, count: int) -> Tensor:
    """Return labels as int64, or refuse them."""
    try:
        labels = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    except (TypeError, ValueError) as error:
        raise BadData(f"The labels of dataset {name!r} are not an array ({error}): give N integers.") from error
    if labels.ndim != 1:
        raise BadData(
            f"The labels of dataset {name!r} have shape {list(labels.shape)}, but must be [N]: "
            "turn one-hot rows into class numbers with argmax(1), flatten a column with y[:, 0]."
        )
    if len(labels) != count:
        raise BadData(f"Dataset {name!r} has {count} images but {len(labels)} labels: give one label per image.")
    if labels.dtype.kind not in "iu":
        raise BadData(
            f"The labels of dataset {name!r} are {labels.dtype}, but must be integers: "
            "convert class numbers with y.long() (numpy: y.astype('int64'))."
        )
    if labels.min() < 0:
        raise BadData(
            f"The labels of dataset {name!r} go down to {labels.min()}, but classes count from 0: "
            "remove samples without a label, or shift the labels."
        )
    if labels.max() >= MAX_CLASSES:
        raise BadData(
            f"The labels of dataset {name!r} go up to {labels.max()}, which is not a class number: "
            "number the classes 0, 1, 2, ..."
        )
    return torch.from_numpy(labels.astype(np.int64))


def _checked_ids(ids: Sequence[object], name: str, count: int) -> tuple[str, ...]:
    sample_ids = tuple(map(str, ids))
    if len(sample_ids) != count:
        raise BadData(f"Dataset {name!r} has {count} images but {len(sample_ids)} ids: give one id per image.")
    if any("\ud800" <= letter <= "\udfff" for sample in sample_ids for letter in sample):
        raise BadData(f"An id of dataset {name!r} cannot be written to a file as UTF-8: give plain text as ids.")
    if len(set(sample_ids)) < count:
        duplicate = Counter(sample_ids).most_common(1)[0][0]
        raise BadData(f"The id {duplicate!r} of dataset {name!r} occurs twice: give each sample its own id.")
    return sample_ids
