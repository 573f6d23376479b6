"""Datasets from `torch.utils.data`: a Dataset, a Subset, a DataLoader, or any sequence or stream of samples."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, Subset, default_collate

from robustassay.data.arrays import check_range, checked_labels, from_arrays
from robustassay.data.dataset import Dataset, identity
from robustassay.errors import BadData

LARGE: Final = 10_000
"""Samples above which a dataset is read, and identified, only as far as the limit: reading all of it takes long."""

IMAGE_KEYS: Final = ("image", "img", "pixel_values", "x", "input", "inputs")
LABEL_KEYS: Final = ("label", "labels", "y", "target", "targets", "fine_label")


def is_samples(data: object) -> bool:
    """Say whether data are samples one by one: with indices and a length, or a stream."""
    if isinstance(data, str | bytes | Mapping | Tensor | np.ndarray):
        return False
    return isinstance(data, Iterable) or (hasattr(data, "__getitem__") and hasattr(data, "__len__"))


def from_torch(data: Any, limit: int | None = None) -> Dataset:
    """Wrap samples (image, label), or dicts with such keys; images in [0, 1], or uint8, or PIL images.

    The id of a sample is its index; in a Subset, that of the dataset below it, so that ids do not depend on the choice.
    All samples are read once to identify them, and again when they are attacked. A stream is kept in memory.
    """
    loaded = data.dataset if isinstance(data, DataLoader) else data
    if isinstance(loaded, IterableDataset) or not hasattr(loaded, "__getitem__"):
        return _from_stream(data, limit)
    samples, rows = _indexed(data)
    name = _name(samples)
    kept = rows[:limit] if limit is not None and len(rows) > LARGE else rows
    if not kept:
        raise BadData(f"Dataset {name!r} is empty: give at least one sample.")
    labels, digests = [], []
    for row in kept:
        sample = samples[row]
        labels.append(_label(sample, name))
        digests.append(_digest(_checked_image(sample, samples, name)))
    ids, checked = tuple(map(str, kept)), checked_labels(labels, name, len(kept))
    sha256 = identity("float32 samples", ids, checked, digests)
    classes = _class_names(samples, int(checked.max()))
    return Dataset(name, ids, checked, classes, sha256, SampleReader(samples, tuple(kept), tuple(digests), name))


@final
@dataclass(frozen=True)
class SampleReader:
    """Reads images when they are needed, and refuses those that differ from the first time."""

    samples: Any
    rows: tuple[int, ...]
    digests: tuple[bytes, ...]
    name: str

    def __call__(self, rows: Sequence[int]) -> Tensor:
        """Return images as float32 in [0, 1]."""
        images = [_image(self.samples[self.rows[row]], self.name) for row in rows]
        for row, image in zip(rows, images, strict=True):
            if _digest(image) != self.digests[row]:
                raise BadData(
                    f"Sample {self.rows[row]} of dataset {self.name!r} differs each time it is read: "
                    "use a transform without random changes, as for testing."
                )
        return _stacked(images, self.name)


@final
@dataclass(frozen=True)
class _Collated:
    """Samples as the collate function of a loader returns them."""

    samples: Any
    collate: Any

    def __getitem__(self, row: int) -> Any:
        return next(_unbatched(self.collate([self.samples[row]])))


def _indexed(data: Any) -> tuple[Any, Sequence[int]]:
    """Return samples and the indices that are meant."""
    if isinstance(data, DataLoader):
        samples, rows = _indexed(data.dataset)
        if data.batch_size is not None and data.collate_fn is not default_collate:
            samples = _Collated(samples, data.collate_fn)
        everything = isinstance(data.sampler, SequentialSampler | RandomSampler) and data.batch_size is not None
        if everything:  # a shuffled order is put right
            return samples, rows
        batches = data.sampler if data.batch_sampler is None else (row for batch in data.batch_sampler for row in batch)
        return samples, [rows[row] for row in sorted(set(batches))]
    if type(data) is Subset:  # a class of its own may have its own transform
        samples, rows = _indexed(data.dataset)
        return samples, [rows[int(row)] for row in data.indices]
    return data, range(len(data))


def _from_stream(data: Any, limit: int | None) -> Dataset:
    name = _name(data.dataset if isinstance(data, DataLoader) else data)
    in_batches = isinstance(data, DataLoader) and data.batch_size is not None
    samples = (sample for batch in data for sample in _unbatched(batch)) if in_batches else iter(data)
    found = list(islice(samples, limit))
    if not found:
        raise BadData(f"Dataset {name!r} is empty: give at least one sample.")
    images = [_checked_image(sample, data, name) for sample in found]
    return from_arrays(_stacked(images, name), [_label(sample, name) for sample in found], name)


def _unbatched(batch: Any) -> Iterator[Any]:
    if isinstance(batch, Mapping):
        yield from ({key: batch[key][row] for key in batch} for row in range(len(next(iter(batch.values())))))
    else:
        yield from zip(*batch, strict=False)


def _name(samples: Any) -> str:
    inner = samples.samples if isinstance(samples, _Collated) else samples
    return "samples" if isinstance(inner, list | tuple) else type(inner).__name__


def _class_names(samples: Any, last: int) -> tuple[str, ...]:
    known = getattr(samples, "classes", None)
    if isinstance(known, Sequence) and not isinstance(known, str) and len(known) > last:
        return tuple(map(str, known))
    return tuple(map(str, range(last + 1)))


def _part(sample: Any, keys: Sequence[str], place: int, name: str) -> Any:
    if isinstance(sample, Mapping):
        for key in keys:
            if key in sample:
                return sample[key]
        raise BadData(
            f"The samples of dataset {name!r} have the keys {', '.join(map(str, sample))}, none of which is one of "
            f"{', '.join(keys)}: rename them, or give pairs (image, label)."
        )
    if isinstance(sample, tuple | list) and len(sample) >= 2:
        return sample[place]
    raise BadData(f"A sample of dataset {name!r} must be a pair (image, label) or a dict, not {type(sample).__name__}.")


def _label(sample: Any, name: str) -> int:
    label = _part(sample, LABEL_KEYS, 1, name)
    value = label.tolist() if isinstance(label, Tensor | np.ndarray | np.generic) else label
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadData(
            f"A label of dataset {name!r} is {value!r}, but must be a class number: convert it with a target_transform."
        )
    return value


def _checked_image(sample: Any, samples: Any, name: str) -> Tensor:
    image = _image(sample, name)
    try:
        check_range(image[None], name)
    except BadData as error:
        if (normalise := _normalise_in(getattr(samples, "transform", None))) is None:
            raise
        raise BadData(
            f"The transform of dataset {name!r} normalises images, so they leave [0, 1]: remove {normalise} from it, "
            f"and make it the first layer of the model, as in nn.Sequential({normalise}, model)."
        ) from error
    return image


def _normalise_in(transform: Any) -> str | None:
    """Return the spelling of the normalisation inside a transform; None where there is none."""
    if type(transform).__name__ == "Normalize":
        mean, std = ([round(float(value), 4) for value in getattr(transform, key)] for key in ("mean", "std"))
        return f"Normalize({mean}, {std})"
    inner = getattr(transform, "transforms", None) or ()
    return next((found for one in inner if (found := _normalise_in(one))), None)


def _image(sample: Any, name: str) -> Tensor:
    """Return one image as float32 [C, H, W] (or a vector)."""
    image = _part(sample, IMAGE_KEYS, 0, name)
    if hasattr(image, "convert") and hasattr(image, "mode"):  # PIL, which samples without a transform hold
        image = np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))
    pixels = torch.from_numpy(np.array(image)) if isinstance(image, np.ndarray) else image
    if not isinstance(pixels, Tensor):
        raise BadData(
            f"An image of dataset {name!r} is a {type(image).__name__}: add ToTensor() to its transform, or return a "
            "tensor or numpy array."
        )
    pixels = pixels.detach().cpu()
    if pixels.dim() == 2:
        pixels = pixels[None]
    elif pixels.dim() == 3 and isinstance(image, np.ndarray) and pixels.shape[0] > 4 >= pixels.shape[2]:
        pixels = pixels.permute(2, 0, 1)
    pixels = pixels.to(torch.float32, copy=True).div_(255) if pixels.dtype == torch.uint8 else pixels.to(torch.float32)
    return pixels.contiguous()


def _stacked(images: list[Tensor], name: str) -> Tensor:
    shapes = sorted({tuple(image.shape) for image in images})
    if len(shapes) > 1:
        raise BadData(
            f"The images of dataset {name!r} have different shapes, such as {shapes[0]} and {shapes[-1]}: "
            "resize and crop them in its transform."
        )
    return torch.stack(images)


def _digest(image: Tensor) -> bytes:
    return hashlib.sha256(f"{tuple(image.shape)}".encode() + image.numpy().astype("<f4", copy=False).tobytes()).digest()
