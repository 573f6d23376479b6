"""Datasets of photographs as seen in a frame: the same samples at whatever size a network wants."""

import hashlib
import json
from dataclasses import asdict, is_dataclass, replace
from typing import Any, Final

from robustassay.data.dataset import Dataset, Reader
from robustassay.data.frame import Frame
from robustassay.data.photos import PhotoReader

VERSION: Final = "assay-frame-1"
"""Raise this whenever the same frame would give other pixels than before."""


def apply_frame(dataset: Dataset, frame: Frame) -> Dataset:
    """Return a dataset of photographs as seen in a frame; other datasets, and framed ones, as they are."""
    read = _reframed(dataset.read, frame)
    if read is dataset.read:
        return dataset
    identity = json.dumps([VERSION, dataset.sha256, asdict(frame)], separators=(",", ":"))
    return replace(
        dataset,
        name=f"{dataset.name} at {frame}",
        sha256=hashlib.sha256(identity.encode()).hexdigest(),
        read=read,
        part_of=None if dataset.part_of is None else apply_frame(dataset.part_of, frame),
    )


def photo_reader_of(dataset: Dataset) -> PhotoReader | None:
    """Return the reader of photographs at the bottom of a dataset, if that is what it reads."""
    read: Any = dataset.whole.read
    while read is not None and not isinstance(read, PhotoReader):
        read = getattr(read, "read", None)
    return read


def target_labels_of(dataset: Dataset) -> dict[str, int] | None:
    """Return the target class of each sample, where the files name one."""
    photos = photo_reader_of(dataset)
    if photos is None or photos.targets is None:
        return None
    return dict(zip(dataset.whole.ids, photos.targets, strict=True))


def _reframed(read: Reader, frame: Frame) -> Reader:
    """Put a frame into the reader of photographs that others may stand around, such as a selection of rows."""
    if isinstance(read, PhotoReader):
        return read if read.frame is not None else replace(read, frame=frame)
    inner = getattr(read, "read", None)
    if inner is None or not is_dataclass(read) or isinstance(read, type):
        return read
    changed = _reframed(inner, frame)
    return read if changed is inner else replace(read, read=changed)
