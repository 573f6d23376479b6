"""Folders of images, one sub-folder per class; images are decoded on demand."""

import hashlib
import io
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from robustassay.data.dataset import Dataset, identity
from robustassay.data.safe_files import read_file
from robustassay.errors import BadData

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
# Only these decoders are tried, whatever the suffix: rarer decoders have more defects.
FORMATS = ("PNG", "JPEG", "BMP", "WEBP")
GREY_MODES = ("1", "L", "LA")
COLOUR_MODES = ("P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")


@dataclass(frozen=True)
class Header:
    """Size, mode and digest of an image file."""

    size: tuple[int, int]
    mode: str
    digest: bytes


@dataclass(frozen=True)
class FolderReader:
    """Decodes images on request, and refuses files that changed since they were listed."""

    root: Path
    files: tuple[str, ...]
    digests: tuple[bytes, ...]
    size: tuple[int, int]
    mode: str

    def __call__(self, rows: Sequence[int]) -> Tensor:
        """Decode these files, each checked against the digest taken when it was listed."""
        width, height = self.size
        channels = 1 if self.mode == "L" else 3
        pixels = np.empty((len(rows), height, width, channels), np.uint8)
        for slot, row in enumerate(rows):
            path = self.root / self.files[row]
            content = read_file(path)
            if hashlib.sha256(content).digest() != self.digests[row]:
                raise BadData(f"{path} changed after the dataset was loaded: restore it and start again.")
            pixels[slot] = _decode(content, path, self.mode).reshape(height, width, channels)
        return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous().float().div_(255)


def read(path: Path) -> Dataset:
    """List a folder: classes are its sub-folders in order of name, ids the paths below it.

    Samples alternate between the classes (the first of each, the second of each, ...), so that the first n are
    balanced. If all images are grey there is one channel, otherwise every image is read as RGB. Transparency and the
    orientation tag of cameras are ignored. The identity is that of the encoded files.
    """
    root = path.resolve()
    classes, files = list_images(root)
    number = {name: label for label, name in enumerate(classes)}
    labels = torch.tensor([number[file.partition("/")[0]] for file in files])
    headers = [read_header(root / file) for file in files]
    for file, header in zip(files, headers, strict=True):
        if header.size != headers[0].size:
            raise BadData(
                f"{root / files[0]} is {_size_text(headers[0].size)} but {root / file} is {_size_text(header.size)}: "
                "resize all images to one size."
            )
    mode = "L" if all(header.mode in GREY_MODES for header in headers) else "RGB"
    digests = tuple(header.digest for header in headers)
    reader = FolderReader(root, files, digests, headers[0].size, mode)
    return Dataset(root.name, files, labels, classes, identity("files", files, labels, digests), reader)


def list_images(root: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the class names and the paths of all images, alternating between the classes."""
    _, subfolders, _ = next(os.walk(root, onerror=_refuse_folder))
    classes = tuple(sorted(filter(_visible, subfolders)))
    by_class: dict[str, list[str]] = {name: [] for name in classes}
    for file in sorted(_images_below(root)):
        name, inside, _ = file.partition("/")
        if not inside:
            raise BadData(f"{root / file} is in no class folder: move it into the sub-folder of its class.")
        by_class[name].append(file)
    turns = [(turn, file) for members in by_class.values() for turn, file in enumerate(members)]
    if not turns:
        raise BadData(f"{root} holds no images: make one sub-folder per class, with {', '.join(SUFFIXES)} files in it.")
    # Sorting is stable, so within a turn the classes keep their order.
    return classes, tuple(file for _, file in sorted(turns, key=lambda entry: entry[0]))


def _images_below(root: Path) -> Iterator[str]:
    for folder, subfolders, files in os.walk(root, onerror=_refuse_folder):
        subfolders[:] = filter(_visible, subfolders)
        images = [file for file in files if _visible(file) and file.lower().endswith(SUFFIXES)]
        _check_links(root, (Path(folder, name) for name in (*subfolders, *images)))
        for image in images:
            yield _portable(Path(folder, image).relative_to(root))


def _visible(name: str) -> bool:
    # Desktop systems write hidden files such as ._cat.png beside images.
    return not name.startswith(".")


def _check_links(root: Path, paths: Iterable[Path]) -> None:
    for path in paths:
        inside = Path(os.path.realpath(path)).is_relative_to(root)
        if path.is_symlink() and (path.is_dir() or not inside):
            raise BadData(f"{path} is a link to a folder or out of {root}: replace it by a copy.")


def _portable(path: Path) -> str:
    name = path.as_posix()
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise BadData(f"The file name {name!r} is not valid UTF-8: rename it.") from error
    return name


def _refuse_folder(error: OSError) -> NoReturn:
    raise BadData(f"{error.filename} cannot be listed ({error.strerror}): check that it is yours to read.")


def read_header(path: Path) -> Header:
    """Read the header of an image file without decoding the image; raise BadData if it is not usable."""
    content = read_file(path)
    try:
        with warnings.catch_warnings():
            # Pillow only warns about an image that is merely very large.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                size, mode = image.size, image.mode
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BadData(f"{path} would decode to too many pixels ({error}): remove or shrink it.") from error
    except Exception as error:  # a damaged image can raise any exception
        raise unreadable(path, error) from error
    if mode not in GREY_MODES + COLOUR_MODES:
        raise BadData(f"{path} has pixels of mode {mode}: save it with 8 bits per channel.")
    return Header(size, mode, hashlib.sha256(content).digest())


def _decode(content: bytes, path: Path, mode: str) -> npt.NDArray[np.uint8]:
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            # Pillow wants a transparent palette resolved before the transparency is dropped.
            opaque = image.convert("RGBA") if "transparency" in image.info else image
            return np.asarray(opaque.convert(mode))
    except Exception as error:  # as above
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> BadData:
    """Return the error for a file that cannot be decoded."""
    return BadData(f"{path} cannot be read as an image ({error}): repair or remove it.")


def _size_text(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
