"""A model by whatever names it: the zoo, a Python file of the user's, or a place where people keep models."""

from typing import TYPE_CHECKING

from robustassay.errors import UnknownName
from robustassay.models import zoo
from robustassay.models.from_file import is_file_spec, load_from_file
from robustassay.models.sources import SOURCES, is_source_spec, load_from_source

if TYPE_CHECKING:
    import torch
    from torch import nn


def load(spec: str, device: "str | torch.device" = "cpu") -> "nn.Module":
    """Return a model from [0, 1] images to logits: a zoo name, `file.py:factory`, `timm:NAME`, `onnx:FILE`, ..."""
    return load_with_origin(spec, device)[0]


def load_with_origin(spec: str, device: "str | torch.device" = "cpu") -> "tuple[nn.Module, str | None]":
    """Return a model and the hash of the file it came from; the zoo's are known by their weights alone."""
    if is_source_spec(spec):  # first, as background: may stand before a file of the user's
        loaded = load_from_source(spec)
        return loaded.module.to(device), loaded.origin
    if is_file_spec(spec):
        module, origin = load_from_file(spec)
        return module.to(device), origin
    kind, colon, _ = spec.partition(":")
    if colon:
        raise UnknownName("place where models are kept", kind, SOURCES)
    return zoo.load(spec, device), None
