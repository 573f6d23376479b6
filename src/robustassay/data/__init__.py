"""Datasets with stable sample ids: `load` one by name or path, or wrap your own arrays with `from_arrays`."""

import difflib
import os
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from robustassay.data.readers import SOURCES
from robustassay.errors import BadData, BadRequest, UnknownName

if TYPE_CHECKING:
    from robustassay.data.arrays import from_arrays
    from robustassay.data.dataset import Dataset

__all__ = ["Dataset", "describe", "from_arrays", "load", "names", "names_no_path"]


# torch takes seconds to import, and listing datasets needs none of it.
_LAZY = {"Dataset": "robustassay.data.dataset", "from_arrays": "robustassay.data.arrays"}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def names() -> tuple[str, ...]:
    """Return all forms of dataset names; PATH stands for a file or folder."""
    return tuple(SOURCES)


def describe(name: str) -> str:
    """Return the description of one of `names()`."""
    if name not in SOURCES:
        raise UnknownName("dataset", name, names())
    return SOURCES[name].about


def load(spec: str | os.PathLike[str]) -> "Dataset":
    """Load a dataset by one of `names()`, or by the plain path of a folder or an .npz file.

    A corruption in front is applied to the images, as in "fog:severity=3|cifar10-1k"; a frame resizes and crops
    photographs, as in "frame:size=224,resize=256|imagenet:FOLDER".
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
            f"{text} is neither a folder nor an .npz file: give its kind with one of {', '.join(names())}."
        )
    if any(separator in text for separator in (os.sep, "/", "~")):
        raise _missing(text)
    plain = [name for name in names() if ":" not in name]
    if difflib.get_close_matches(text.lower(), plain, n=1):
        raise UnknownName("dataset", text, plain)
    raise BadRequest(
        f"There is no folder and no dataset {text!r}: check the path of the folder, or use one of {', '.join(plain)}."
    )


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
    module, _, function = SOURCES[name].reader.partition(":")
    arguments = () if path is None else (_existing(path),)
    dataset: Dataset = getattr(import_module(module), function)(*arguments)
    return dataset


def _existing(path: str) -> Path:
    if not path:
        raise BadRequest("The dataset has no path: write it after the colon, as in folder:my/images.")
    expanded = os.path.expanduser(path)
    # os.path, unlike pathlib, answers False for names no file can have.
    if not os.path.exists(expanded):
        raise _missing(path)
    return Path(expanded)


def _missing(path: str) -> BadData:
    return BadData(f"There is no file or folder {path!r}: check the path.")
