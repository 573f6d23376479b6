"""One attack per file. Every file below this folder is imported here, and its classes are found by name.

`robustassay.attacks.PGD` is the class; `create("pgd:steps=100")` makes one from a command line.
"""

import importlib
import pkgutil
from typing import Any

from robustassay import registry
from robustassay.attacks.attack import Attack
from robustassay.errors import BadRequest

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)

globals().update({cls.__name__: cls for cls in registry.registered("attack").values()})


def __getattr__(name: str) -> Any:
    """Exists for type checkers: attack classes appear here when they register."""
    raise AttributeError(f"there is no attack class {name}; the attacks are {', '.join(attack_names())}")


def attack_names() -> tuple[str, ...]:
    """Return the names of all known attacks, plug-ins included."""
    return tuple(sorted(registry.registered("attack")))


def create(spec: str | Attack[Any]) -> Attack[Any]:
    """Make an attack from its name and settings, such as "pgd:steps=100,restarts=5"."""
    if not isinstance(spec, str | Attack):
        raise BadRequest(f"An attack is a name or an instance such as robustassay.attacks.PGD(), not {spec!r}.")
    made: Attack[Any] = spec if isinstance(spec, Attack) else registry.create("attack", spec)
    return made
