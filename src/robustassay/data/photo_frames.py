"""Applies frames to datasets of photographs: the same samples at the input size of a network."""

import hashlib
import json
from dataclasses import asdict, is_dataclass, replace
from typing import Any, Final

from robustassay.data.dataset import Dataset, Reader
from robustassay.data.frame import Frame
from robustassay.data.photos import Credit, PhotoReader

VERSION: Final = "assay-frame-1"
"""Increase this if the same frame gives other pixels than before."""


def apply_frame(dataset: Dataset, frame: Frame, kept: bool = False) -> Dataset:
    """Return a dataset of photographs with a frame; other datasets, and those with a frame, are returned unchanged.

    Where `kept`, the last photographs that were read stay decoded in memory.
    """
    read = _with_frame(dataset.read, frame, kept)
    if read is dataset.read:
        return dataset
    identity = json.dumps([VERSION, dataset.sha256, asdict(frame)], separators=(",", ":"))
    return replace(
        dataset,
        name=f"{dataset.name} at {frame}",
        sha256=hashlib.sha256(identity.encode()).hexdigest(),
        read=read,
        part_of=None if dataset.part_of is None else apply_frame(dataset.part_of, frame, kept),
    )


def photo_reader_of(dataset: Dataset) -> PhotoReader | None:
    """Return the reader of photographs inside a dataset, or None."""
    read: Any = dataset.whole.read
    while read is not None and not isinstance(read, PhotoReader):
        read = getattr(read, "read", None)
    return read


def target_labels_of(dataset: Dataset) -> dict[str, int] | None:
    """Return the target class per sample if the files contain one."""
    photos = photo_reader_of(dataset)
    if photos is None or photos.targets is None:
        return None
    return dict(zip(dataset.whole.ids, photos.targets, strict=True))


def credits_of(dataset: Dataset) -> dict[str, Credit]:
    """Return who made each photograph, if a file says so."""
    photos = photo_reader_of(dataset)
    if photos is None or photos.credits is None:
        return {}
    return dict(zip(dataset.whole.ids, photos.credits, strict=True))


def _with_frame(read: Reader, frame: Frame, kept: bool) -> Reader:
    """Set the frame of the reader of photographs, which may be inside other readers, such as a selection of rows."""
    if isinstance(read, PhotoReader):
        return read if read.frame is not None else replace(read, frame=frame, kept=kept)
    inner = getattr(read, "read", None)
    if inner is None or not is_dataclass(read) or isinstance(read, type):
        return read
    changed = _with_frame(inner, frame, kept)
    return read if changed is inner else replace(read, read=changed)
