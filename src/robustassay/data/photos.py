"""Photographs in files, decoded on demand by several threads; only the requested rows are in memory."""

import hashlib
import io
import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeVar, final

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from robustassay.data.dataset import Dataset, identity
from robustassay.data.frame import Frame
from robustassay.data.readers.folder import FORMATS, Header, read_header, unreadable
from robustassay.data.safe_files import read_file
from robustassay.errors import BadData

THREADS: Final = 8
"""Maximum number of threads that read and decode files; PIL and hashing release the GIL."""

KEPT: Final = 256
KEPT_PIXELS: Final = 320 * 320
"""Decoded photographs that stay in memory where that is asked for, and their largest frame: at most 80 MB."""

DEFAULT_FRAME: Final = Frame((224, 224), 256, "bilinear")
"""The frame for photographs of different sizes, if the network does not define one."""

In = TypeVar("In")
Out = TypeVar("Out")


@final
@dataclass(frozen=True)
class Credit:
    """Who made a photograph, under which licence, and where it was published; empty where it is not known."""

    author: str
    licence: str
    source: str


@final
@dataclass(frozen=True)
class PhotoReader:
    """Decodes photographs, applies a frame, and refuses files that changed since they were listed.

    Without a frame, photographs of one size are read unchanged; those of different sizes get the default frame.
    """

    root: Path
    files: tuple[str, ...] = field(repr=False)
    digests: tuple[bytes, ...] = field(repr=False)
    size: tuple[int, int] | None  # height and width, if all photographs have the same
    precropped: bool  # the files are cropped already
    targets: tuple[int, ...] | None = field(default=None, repr=False)
    frame: Frame | None = None
    credits: tuple[Credit, ...] | None = field(default=None, repr=False)
    kept: bool = False  # whether the last ones stay decoded, for one attack after the other

    def __call__(self, rows: Sequence[int]) -> Tensor:
        """Read these photographs as float32 [n, 3, height, width] in [0, 1]."""
        frame = self.frame
        if frame is None and self.size is None:
            frame = DEFAULT_FRAME
        images = torch.empty(len(rows), 3, *(frame.size if frame else self.size or ()))

        def put(slot: int) -> None:
            pixels = self._decode(rows[slot], frame)
            images[slot] = torch.from_numpy(pixels).permute(2, 0, 1)

        map_in_threads(put, range(len(rows)))
        return images.div_(255)

    def _decode(self, row: int, frame: Frame | None) -> npt.NDArray[np.uint8]:
        path = self.root / self.files[row]
        content = read_file(path)
        if hashlib.sha256(content).digest() != self.digests[row]:
            raise BadData(f"{path} changed after the dataset was loaded: restore it and start again.")
        small = self.kept and frame is not None and math.prod(frame.size) <= KEPT_PIXELS
        try:
            return (_kept_pixels if small else _pixels)(content, frame, self.precropped)
        except Exception as error:  # a damaged image can raise any exception
            raise unreadable(path, error) from error


def _pixels(content: bytes, frame: Frame | None, precropped: bool) -> npt.NDArray[np.uint8]:
    """Decode a photograph and cut it to its frame."""
    with Image.open(io.BytesIO(content), formats=FORMATS) as image:
        # Pillow wants a transparent palette resolved before the transparency is dropped.
        opaque = image.convert("RGBA") if "transparency" in image.info else image
        colours = opaque.convert("RGB")
    pixels = np.asarray(colours) if frame is None else frame.apply(colours, precropped)
    return np.ascontiguousarray(pixels).copy()


_kept_pixels: Final = lru_cache(maxsize=KEPT)(_pixels)
"""The same, kept; nobody changes the arrays."""


def photo_dataset(
    name: str,
    root: Path,
    files: Sequence[str],
    labels: Sequence[int],
    classes: Sequence[str],
    *,
    precropped: bool,
    targets: Sequence[int] | None = None,
    credits: Sequence[Credit] | None = None,
) -> Dataset:
    """Return a dataset of the listed files; its identity is that of the encoded files, independent of the frame."""
    headers: list[Header] = map_in_threads(lambda file: read_header(root / file), files)
    sizes = {header.size for header in headers}
    shared = next(iter(sizes))[::-1] if len(sizes) == 1 else None
    digests = tuple(header.digest for header in headers)
    numbers = torch.tensor(labels, dtype=torch.int64)
    reader = PhotoReader(
        root,
        tuple(files),
        digests,
        shared,
        precropped,
        None if targets is None else tuple(targets),
        credits=None if credits is None else tuple(credits),
    )
    sha256 = identity("files", files, numbers, digests)
    return Dataset(name, tuple(files), numbers, tuple(classes), sha256, reader)


def map_in_threads(work: Callable[[In], Out], items: Iterable[In]) -> list[Out]:
    """Apply a function to each item in several threads; results keep the order, and the first error is raised."""
    with ThreadPoolExecutor(min(THREADS, max(1, os.cpu_count() or 1))) as pool:
        return list(pool.map(work, items))
