"""The models of the study by name."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from robustassay import models
from robustassay.errors import BadRequest, UnknownName
from robustassay.models.from_file import is_file_spec
from robustassay.models.sources import is_source_spec
from robustassay.studies.paper_models import PaperModel, PaperModels, find
from robustassay.studies.photographs import entry_of

_SINCE: Final = "torchvision's weights of the same architecture, not the authors' Caffe ones"
PAPER_MODELS: Final[PaperModels] = {
    "imagenet": (
        PaperModel("VGG-16", "torchvision:vgg16", "vgg", 16, 138_357_544, _SINCE),
        PaperModel("ResNet-152", "torchvision:resnet152", "resnet", 152, 60_192_808, _SINCE),
        PaperModel("ResNet-101", "torchvision:resnet101", "resnet", 101, 44_549_160, _SINCE),
        PaperModel("ResNet-50", "torchvision:resnet50", "resnet", 50, 25_557_032, _SINCE),
        PaperModel("GoogLeNet", "torchvision:googlenet", "googlenet", 22, 6_624_904, _SINCE),
    )
}
"""The paper's networks; the first is the reference source, the second the reference target."""


def choose(names: Sequence[str]) -> dict[str, str]:
    """Return the models to load by the name that tables show; `vgg16` means the zoo's `vgg16-natural`."""
    found: dict[str, str] = {}
    for name in names:
        label, model = _resolved(name)
        if label in found:
            raise BadRequest(f"{label} is named twice: name each model once.")
        found[label] = model
    if len(found) < 3:
        raise BadRequest("Name at least 3 models: an ensemble of all but one needs two or more.")
    return found


def family_of(model: str) -> str:
    """Return the family of a model: from its card or the catalogue, else the letters that its name starts with."""
    inner = model.rpartition("|")[2].strip()
    if inner in models.names():
        return str(models.card(inner).architecture["name"])
    entry = entry_of(inner) or find(PAPER_MODELS, inner)
    if entry is not None:
        return entry.family
    name = inner.rpartition(":")[2].lower()
    letters = re.match(r"[a-z]+", name)
    return letters[0] if letters else name


def _resolved(name: str) -> tuple[str, str]:
    inner = name.rpartition("|")[2].strip()
    if is_file_spec(inner):
        return f"{Path(inner.partition(':')[0]).stem}:{inner.rpartition(':')[2]}", name
    if is_source_spec(inner):
        return f"{name[: len(name) - len(inner)]}{inner.rpartition(':')[2]}", name
    for known in (inner, f"{inner}-natural"):
        if known in models.names():
            return name.removesuffix("-natural"), name[: len(name) - len(inner)] + known
    raise UnknownName("model", inner, models.names())
