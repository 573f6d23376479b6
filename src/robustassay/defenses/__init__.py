"""One defense per file: a module in, a defended module out. Every file of this folder is imported here.

`JPEG(quality=75) | model` is the defended model; `create("jpeg:quality=75")` makes the defense from a command line.
 Defenses compose: in `JPEG() | BitDepth() | model` an image is compressed first.
"""

import importlib
import pkgutil
from typing import Any

from robustassay import registry
from robustassay.defenses.defended import Defended, OwnGradient, UndefendedGradient
from robustassay.defenses.defense import Defense, DefenseChain, chained
from robustassay.defenses.ensemble import Ensemble
from robustassay.defenses.feature_denoising import DenoisingBlock, insert_after
from robustassay.defenses.smoothing import Smoothed
from robustassay.errors import BadRequest

__all__ = [
    "Defended",
    "Defense",
    "DefenseChain",
    "DenoisingBlock",
    "Ensemble",
    "OwnGradient",
    "Smoothed",
    "UndefendedGradient",
    "create",
    "defense_names",
    "insert_after",
    "spell",
]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

globals().update({cls.__name__: cls for cls in registry.registered("defense").values()})


def __getattr__(name: str) -> Any:
    """Tell type checkers that registered defenses are attributes of this module."""
    raise AttributeError(f"there is no defense class {name}; the defenses are {', '.join(defense_names())}")


def defense_names() -> tuple[str, ...]:
    """Return the names of all known defenses, plug-ins included."""
    return tuple(sorted(registry.registered("defense")))


def create(spec: str | Defense) -> Defense:
    """Create a defense from its name and settings; "jpeg:quality=75|bit-depth:bits=3" applies both in this order."""
    if isinstance(spec, Defense):
        return spec
    if not isinstance(spec, str):
        raise BadRequest(f"A defense is a name or an instance such as robustassay.defenses.JPEG(), not {spec!r}.")
    return chained([registry.create("defense", part.strip()) for part in spec.split("|")])


def spell(defense: Defense) -> str:
    """Return the shortest text from which `create` makes the same defense."""
    return "|".join(registry.spell("defense", link) for link in defense.links)
