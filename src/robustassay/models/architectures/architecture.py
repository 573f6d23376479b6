"""The protocol of architectures, and their description in cards.

An architecture is a frozen dataclass registered under the kind "architecture": its fields are its shape, and
`build` makes a fresh network of it. This module stays free of torch, so that cards can be listed without it.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from robustassay import registry
from robustassay.errors import BadWeights
from robustassay.registry import lookup

if TYPE_CHECKING:
    from dataclasses import Field

    from torch import nn


LARGEST: Final = 4096
"""Maximum depth and width in a card: a huge network would be built before its weights are checked."""


class Architecture(Protocol):
    """The structure of a network, without its weights."""

    __dataclass_fields__: ClassVar[dict[str, "Field[Any]"]]

    @property
    def title(self) -> str:
        """The name in tables: `ResNet-20`."""
        ...

    def build(self, classes: int) -> "nn.Module":
        """Return a network with fresh weights that maps images in [0, 1] to one logit per class."""
        ...


def describe(architecture: Architecture) -> dict[str, Any]:
    """Return the description of an architecture in a card: `{"name": "resnet", "depth": 20, "width": 2}`."""
    return registry.describe("architecture", architecture)


def create(spec: str) -> Architecture:
    """Create an architecture from its name and settings, such as "resnet:depth=20,width=2"."""
    import_families()
    made: Architecture = registry.create("architecture", spec)
    return made


def import_families() -> None:
    """Import every module of this package, so that all architectures are registered."""
    # Not at the top: the modules import torch, which listing the zoo does not need.
    package = importlib.import_module("robustassay.models.architectures")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


def from_description(description: Mapping[str, Any]) -> Architecture:
    """Rebuild the architecture that a card describes."""
    import_families()
    shape = dict(description)
    cls = lookup("architecture", str(shape.pop("name", "")))
    try:
        if any(isinstance(size, int) and size > LARGEST for size in shape.values()):
            raise ValueError(f"nothing in it may be larger than {LARGEST}")
        architecture: Architecture = cls(**shape)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise BadWeights(f"The model card asks for {dict(description)}, which no network has: {error}.") from error
    return architecture
