"""ImageNet in studies: networks whose weights are here, and photographs at the input size of each network."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from torch import nn

from robustassay import models
from robustassay.data import Dataset
from robustassay.data.frame import Frame
from robustassay.data.photo_frames import apply_frame, photo_reader_of
from robustassay.errors import BadRequest
from robustassay.models.architectures.imagenet.catalogue import BY_NAME, PublishedNetwork
from robustassay.models.input_frame import input_frame
from robustassay.models.sources.preparation import Prepared

IMAGENET: Final = "imagenet:"
"""Prefix of the names of networks in the catalogue."""

COMMON: Final = Frame((224, 224), 256)
"""The frame of studies that show one and the same image to networks of different input sizes."""


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
    """Return those of some networks whose weights are here, in this order; where none are, all that are."""
    here = networks(None)
    found = [f"{IMAGENET}{name.removeprefix(IMAGENET)}" for name in names]
    return [name for name in found if name in here] or here


def entry_of(model: str) -> PublishedNetwork | None:
    """Return the catalogue entry of a model, without its defenses; None for models from elsewhere."""
    inner = model.rpartition("|")[2].strip()
    return BY_NAME.get(inner.removeprefix(IMAGENET).partition(":")[0]) if inner.startswith(IMAGENET) else None


def as_seen_by(model: str, dataset: Dataset) -> Dataset:
    """Return photographs at the input size of a model; any other dataset unchanged."""
    frame = None if photo_reader_of(dataset) is None else _frame(model)
    return dataset if frame is None else apply_frame(dataset, frame, kept=True)


def framed(dataset: Dataset, frame: Frame = COMMON) -> Dataset:
    """Return photographs with one frame for all networks; photographs that have a frame already are refused."""
    photos = photo_reader_of(dataset)
    if photos is not None and photos.frame is not None:
        raise BadRequest(
            f"{dataset.name} already has a frame, and this study sets its own ({frame}): name the photographs without "
            "one, as imagenet:PATH or nips2017:PATH."
        )
    return apply_frame(dataset, frame, kept=True)


def frame_once(module: nn.Module, frame: Frame = COMMON) -> nn.Module:
    """Let a network of another input size resize framed photographs without cutting them again; changes the module."""
    for part in module.modules():
        if isinstance(part, Prepared) and part.preparation.size != frame.size:
            part.preparation = replace(part.preparation, resize=part.preparation.size)
    return module


def check_framed_once(name: str, module: nn.Module, side: int) -> None:
    """Refuse a model that would cut images of this side a second time."""
    for part in module.modules():
        if not isinstance(part, Prepared) or part.preparation.size == (side, side):
            continue
        size, resize = part.preparation.size, part.preparation.resize
        short = resize if isinstance(resize, int) else min(resize)
        if short != min(size):
            raise BadRequest(
                f"{name} would cut the framed photographs again and see {min(size) / short:.0%} of each side: load it "
                "with frame_once, which only resizes them."
            )


def pixels(model: str, dataset: Dataset) -> int:
    """Return the number of pixels (height times width) of a model's input."""
    return int(as_seen_by(model, dataset).images(slice(0, 1))[0, 0].numel())


@lru_cache(maxsize=256)
def _frame(model: str) -> Frame | None:
    entry = entry_of(model)
    if entry is None:
        return input_frame(models.load(model.rpartition("|")[2].strip()))
    return Frame((entry.side, entry.side), entry.resize, "bicubic")
