"""What every architecture can do, and how a card names one.

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
"""No depth or width of a card may be larger: a network without end would be built before its weights are looked at."""


class Architecture(Protocol):
    """The shape of a network, without its weights."""

    __dataclass_fields__: ClassVar[dict[str, "Field[Any]"]]

    @property
    def title(self) -> str:
        """The name in tables: `ResNet-20`."""
        ...

    def build(self, classes: int) -> "nn.Module":
        """Return a network with fresh weights that maps images in [0, 1] to one logit per class."""
        ...


def describe(architecture: Architecture) -> dict[str, Any]:
    """Write an architecture the way a card holds it: `{"name": "resnet", "depth": 20, "width": 2}`."""
    return registry.describe("architecture", architecture)


def create(spec: str) -> Architecture:
    """Make an architecture from its name and settings, such as "resnet:depth=20,width=2"."""
    import_families()
    made: Architecture = registry.create("architecture", spec)
    return made


def import_families() -> None:
    """Import every file of this room: registering a family is enough for it to be found."""
    # Not at the top: families import torch, which listing the zoo must not wait for.
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
