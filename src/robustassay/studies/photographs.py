"""Photographs in studies: every model sees them at its own size, and those of ImageNet are found by what is at hand."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal

from robustassay import models
from robustassay.data import Dataset
from robustassay.data.frame import Frame
from robustassay.data.photo_frames import apply_frame, photo_reader_of
from robustassay.errors import BadRequest
from robustassay.models.architectures.imagenet.catalogue import BY_NAME, Entry
from robustassay.models.input_frame import input_frame

DatasetName = Literal["cifar10", "imagenet"]
IMAGENET: Final = "imagenet:"


def networks(names: Sequence[str] | None) -> list[str]:
    """Return models for ImageNet as they are spelled: those asked for, or all whose weights are at hand."""
    from robustassay.models.sources.imagenet import FOLDER, available

    if names:
        return [f"{IMAGENET}{name}" if name in BY_NAME else name for name in names]
    found = [f"{IMAGENET}{name}" for name in available()]
    if not found:
        raise BadRequest(
            f"No weights of a network for ImageNet are at hand: name their folder with --weights or in {FOLDER}, or "
            "models from elsewhere with --models, such as torchvision:resnet50."
        )
    return found


def at_hand(names: Sequence[str]) -> list[str]:
    """Return those of some networks whose weights are at hand, or say that there are none."""
    found = [name for name in networks(None) if {name, name.removeprefix(IMAGENET)} & set(names)]
    return found or networks(None)


def entry_of(model: str) -> Entry | None:
    """Return what the catalogue knows of a model, behind whatever defenses; None of models from elsewhere."""
    inner = model.rpartition("|")[2].strip()
    return BY_NAME.get(inner.removeprefix(IMAGENET).partition(":")[0]) if inner.startswith(IMAGENET) else None


def seen(model: str, dataset: Dataset) -> Dataset:
    """Return photographs as a model sees them; any other dataset as it is."""
    frame = None if photo_reader_of(dataset) is None else _frame(model)
    return dataset if frame is None else apply_frame(dataset, frame)


def pixels(model: str, dataset: Dataset) -> int:
    """Return how many pixels the images have that a model sees."""
    return int(seen(model, dataset).images(slice(0, 1))[0, 0].numel())


@lru_cache(maxsize=256)
def _frame(model: str) -> Frame | None:
    entry = entry_of(model)
    if entry is None:
        return input_frame(models.load(model.rpartition("|")[2].strip()))
    return Frame((entry.side, entry.side), entry.resize, "bicubic")
