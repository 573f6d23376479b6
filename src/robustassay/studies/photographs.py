"""ImageNet in studies: networks whose weights are here, and photographs at the input size of each network."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from robustassay import models
from robustassay.data import Dataset
from robustassay.data.frame import Frame
from robustassay.data.photo_frames import apply_frame, photo_reader_of
from robustassay.errors import BadRequest
from robustassay.models.architectures.imagenet.catalogue import BY_NAME, PublishedNetwork
from robustassay.models.input_frame import input_frame

IMAGENET: Final = "imagenet:"
"""Prefix of the names of networks in the catalogue."""


def networks(names: Sequence[str] | None) -> list[str]:
    """Return full names of networks for ImageNet: those asked for, or all whose weights are here."""
    from robustassay.models.sources.imagenet import FOLDER, available

    if names:
        return [f"{IMAGENET}{name}" if name in BY_NAME else name for name in names]
    found = [f"{IMAGENET}{name}" for name in available()]
    if not found:
        raise BadRequest(
            f"No weights of a network for ImageNet were found: name their folder with --weights or in {FOLDER}, or "
            "models from elsewhere with --models, such as torchvision:resnet50."
        )
    return found


def available_networks(names: Sequence[str]) -> list[str]:
    """Return those of some networks whose weights are here; where none are, all other networks that are."""
    found = [name for name in networks(None) if {name, name.removeprefix(IMAGENET)} & set(names)]
    return found or networks(None)


def entry_of(model: str) -> PublishedNetwork | None:
    """Return the catalogue entry of a model, without its defenses; None for models from elsewhere."""
    inner = model.rpartition("|")[2].strip()
    return BY_NAME.get(inner.removeprefix(IMAGENET).partition(":")[0]) if inner.startswith(IMAGENET) else None


def as_seen_by(model: str, dataset: Dataset) -> Dataset:
    """Return photographs at the input size of a model; any other dataset unchanged."""
    frame = None if photo_reader_of(dataset) is None else _frame(model)
    return dataset if frame is None else apply_frame(dataset, frame)


def pixels(model: str, dataset: Dataset) -> int:
    """Return the number of pixels (height times width) of a model's input."""
    return int(as_seen_by(model, dataset).images(slice(0, 1))[0, 0].numel())


@lru_cache(maxsize=256)
def _frame(model: str) -> Frame | None:
    entry = entry_of(model)
    if entry is None:
        return input_frame(models.load(model.rpartition("|")[2].strip()))
    return Frame((entry.side, entry.side), entry.resize, "bicubic")
