"""Datasets with stable sample ids: `load` one by name or path, or wrap your own arrays with `from_arrays`."""

import os
import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from robustassay.errors import BadData, BadRequest, UnknownName

if TYPE_CHECKING:
    from robustassay.data.arrays import from_arrays
    from robustassay.data.dataset import Dataset

__all__ = ["Dataset", "describe", "from_arrays", "load", "names", "names_no_path"]


@dataclass(frozen=True)
class Source:
    """One kind of dataset: a line about it and the module whose `read` makes it a Dataset."""

    about: str
    module: str


# The whole list: a row here is all it takes to make a reader known to load(), the command line and the docs.
SOURCES = MappingProxyType(
    {
        "cifar10-1k": Source(
            "1,000 images of the CIFAR-10 test set, 100 a class, embedded in assay", "robustassay.data.embedded"
        ),
        "cifar10": Source(
            "the CIFAR-10 test split, where its files are found in ./data or the folder ASSAY_DATA names",
            "robustassay.data.cifar10_by_name",
        ),
        "cifar10:PATH": Source(
            "the CIFAR-10 test split from its official python or binary files", "robustassay.data.cifar10"
        ),
        "imagenet": Source(
            "ImageNet photographs in the folder that ASSAY_IMAGENET names, or ./data/imagenet",
            "robustassay.data.imagenet_by_name",
        ),
        "imagenet:PATH": Source(
            "ImageNet photographs: folders by synset, or a flat folder with a label file", "robustassay.data.imagenet"
        ),
        "nips2017:PATH": Source(
            "photographs and a CSV with true and target classes, as in the NIPS 2017 competition",
            "robustassay.data.nips2017",
        ),
        "folder:PATH": Source(
            "a folder with one sub-folder of equally large images per class", "robustassay.data.folder"
        ),
        "npz:PATH": Source(
            "an .npz file with images x (uint8, or float in [0, 1]) and labels y", "robustassay.data.npz"
        ),
    }
)

# torch takes seconds to import, and listing datasets needs none of it.
_LAZY = {"Dataset": "robustassay.data.dataset", "from_arrays": "robustassay.data.arrays"}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def names() -> tuple[str, ...]:
    """Every way to name a dataset; PATH stands for a file or folder of yours."""
    return tuple(SOURCES)


def describe(name: str) -> str:
    """Say in one line what a name of `names()` gives."""
    if name not in SOURCES:
        raise UnknownName("dataset", name, names())
    return SOURCES[name].about


def load(spec: str | os.PathLike[str]) -> "Dataset":
    """Load a dataset by one of `names()`, or by the plain path of a folder or an .npz file.

    A corruption may stand before it, as in "fog:severity=3|cifar10-1k", or a frame for photographs, as in
    "frame:size=224,resize=256|imagenet:FOLDER".
    """
    text = os.fspath(spec)
    corruption, bar, inner = text.partition("|")
    if bar and not os.path.exists(os.path.expanduser(text)):
        if corruption.strip().startswith("frame:"):
            from robustassay.data.frame import Frame
            from robustassay.data.photo_frames import apply_frame

            return apply_frame(load(inner.strip()), Frame.parse(corruption.strip()))
        from robustassay.data.corruptions import corrupt

        return corrupt(load(inner.strip()), corruption.strip())
    kind, _, rest = text.partition(":")
    if f"{kind}:PATH" in SOURCES and kind != text:
        return _read(f"{kind}:PATH", rest)
    if text in SOURCES:
        return _read(text)
    if os.path.isdir(os.path.expanduser(text)):
        return _read("folder:PATH", text)
    if text.lower().endswith(".npz"):
        return _read("npz:PATH", text)
    if os.path.exists(os.path.expanduser(text)):
        raise BadRequest(
            f"{text} is neither a folder nor an .npz file: say what it is with one of {', '.join(names())}."
        )
    if any(separator in text for separator in (os.sep, "/", "~")):
        raise _missing(text)
    raise UnknownName("dataset", text, names())


def names_no_path(spec: str) -> bool:
    """Say whether a dataset is named without a path, behind at most one corruption; a stranger's manifest must be."""
    corruption, bar, inner = spec.rpartition("|")
    if bar:
        from robustassay.data.corruptions import KINDS

        found = re.fullmatch(r"([a-z0-9-]{1,40}):severity=[1-5]", corruption)
        if found is None or found[1] not in KINDS:
            return False
    return inner in SOURCES and not inner.endswith(":PATH")


def _read(name: str, path: str | None = None) -> "Dataset":
    place = () if path is None else (_existing(path),)
    dataset: Dataset = import_module(SOURCES[name].module).read(*place)
    return dataset


def _existing(path: str) -> Path:
    if not path:
        raise BadRequest("The dataset names no path: write it after the colon, as in folder:my/images.")
    place = os.path.expanduser(path)
    # os.path, unlike pathlib, answers False for names no file can have.
    if not os.path.exists(place):
        raise _missing(path)
    return Path(place)


def _missing(path: str) -> BadData:
    return BadData(f"There is no file or folder {path!r}: check the path and where it starts.")
