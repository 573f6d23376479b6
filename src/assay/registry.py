"""Kind and name to class: the one place where attacks, architectures and the like are found by name.

A class joins by decoration, `@register("attack", "pgd")`; another package joins through an entry point in
the group `assay.attack` (or the kind in question) whose value names a module that registers on import.
"""

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any, TypeVar

from assay.errors import UnknownName

T = TypeVar("T")

_known: dict[str, dict[str, type[Any]]] = {}
_entry_points_loaded: set[str] = set()


def register(kind: str, name: str) -> Callable[[type[T]], type[T]]:
    """Make a class known as `name` among its `kind`; a name can be taken only once."""

    def enter(cls: type[T]) -> type[T]:
        taken = _known.setdefault(kind, {}).setdefault(name, cls)
        if taken is not cls:
            raise ValueError(f"two classes claim the {kind} name {name!r}: {taken} and {cls}")
        return cls

    return enter


def registered(kind: str) -> Mapping[str, type[Any]]:
    """All classes of a kind by name, those of installed plug-ins included."""
    if kind not in _entry_points_loaded:
        _entry_points_loaded.add(kind)
        for point in entry_points(group=f"assay.{kind}"):
            point.load()
    return MappingProxyType(_known.get(kind, {}))


def lookup(kind: str, name: str) -> type[Any]:
    """Return the class of that kind and name, or say which names come nearest."""
    known = registered(kind)
    if name.lower() not in known:
        raise UnknownName(kind, name, known)
    return known[name.lower()]


def name_of(kind: str, cls: type[Any]) -> str:
    """Return the name under which a class is registered, or its own where it is not."""
    for name, known in registered(kind).items():
        if known is cls:
            return name
    return f"{cls.__module__}.{cls.__qualname__}"
