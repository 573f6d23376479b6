"""One attack a file. Each file in this folder is imported here, and its classes are found by name.

`assay.attacks.PGD` is the class; `create("pgd:steps=100")` makes one from a command line.
"""

import dataclasses
import importlib
import pkgutil
from typing import Any

from assay.attacks.attack import Attack
from assay.errors import BadRequest, UnknownName
from assay.registry import lookup, name_of, registered

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

globals().update({cls.__name__: cls for cls in registered("attack").values()})


def __getattr__(name: str) -> type[Attack[Any]]:
    raise AttributeError(f"assay.attacks has no {name}; it has {', '.join(attack_names())}")


def attack_names() -> tuple[str, ...]:
    """Return the names of all known attacks, plug-ins included."""
    return tuple(sorted(registered("attack")))


def create(spec: str | Attack[Any]) -> Attack[Any]:
    """Make an attack from its name and settings, such as "pgd:steps=100,restarts=5"."""
    if isinstance(spec, Attack):
        return spec
    name, _, settings = spec.partition(":")
    cls = lookup("attack", name)
    known = {field.name: field for field in dataclasses.fields(cls)}
    values: dict[str, Any] = {}
    for setting in filter(None, settings.split(",")):
        key, _, text = (part.strip() for part in setting.partition("="))
        if key not in known:
            raise UnknownName(f"setting of {name}", key, known)
        values[key] = _parse(name, key, text, type(known[key].default))
    made: Attack[Any] = cls(**values)
    return made


def describe(attack: Attack[Any]) -> dict[str, Any]:
    """Return the name and settings that identify an attack in a run's specification."""
    return {"name": name_of("attack", type(attack)), **dataclasses.asdict(attack)}


def _parse(attack: str, key: str, text: str, kind: type[Any]) -> Any:
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return kind(text)
    except (ValueError, KeyError):
        raise BadRequest(f"{attack}: {key} must be of type {kind.__name__}, not {text!r}.") from None
