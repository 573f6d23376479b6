"""Loads models: from the zoo, from a Python file, or from another source."""

from typing import TYPE_CHECKING

from robustassay.errors import UnknownName
from robustassay.models import zoo
from robustassay.models.from_file import is_file_spec, load_from_file
from robustassay.models.sources import SOURCES, is_source_spec, load_from_source

if TYPE_CHECKING:
    import torch
    from torch import nn


def load(spec: str, device: "str | torch.device" = "cpu") -> "nn.Module":
    """Return a model from images in [0, 1] to logits: a zoo name, `file.py:factory`, `timm:NAME`, `onnx:FILE`, ..."""
    return load_with_origin(spec, device)[0]


def load_with_origin(spec: str, device: "str | torch.device" = "cpu") -> "tuple[nn.Module, str | None]":
    """Return a model and the hash of its file; None for zoo models, which their weights identify."""
    if is_source_spec(spec):  # first, because background: may precede a Python file
        loaded = load_from_source(spec)
        return loaded.module.to(device), loaded.origin
    if is_file_spec(spec):
        module, origin = load_from_file(spec)
        return module.to(device), origin
    kind, colon, _ = spec.partition(":")
    if colon:
        raise UnknownName("model source", kind, SOURCES)
    return zoo.load(spec, device), None
