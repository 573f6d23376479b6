"""The registry: from kind and name to a class, for attacks, architectures, defenses and so on.

A class registers with a decorator, `@register("attack", "pgd")`. Another package registers through an entry point in
the group `robustassay.attack` (or another kind) that names a module; the module registers its classes on import.
"""

import ast
import dataclasses
import inspect
import itertools
import textwrap
from collections.abc import Callable, Mapping
from fractions import Fraction
from importlib import import_module
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any, Final, TypeVar, get_origin, get_type_hints

from robustassay.errors import BadRequest, UnknownName

T = TypeVar("T")

_BUILT_IN: Final = {"adviser": "robustassay.doctor", "figures": "robustassay.report.charts.result_figures"}
"""Modules that register the built-in classes of a kind, where nothing imports them earlier."""

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
        if kind in _BUILT_IN:
            import_module(_BUILT_IN[kind])
        for point in entry_points(group=f"robustassay.{kind}"):
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


def create(kind: str, spec: str) -> Any:
    """Make one from its name and settings, such as "pgd:steps=100,restarts=5".

    A setting that holds another value of the same kind is written with parentheses: "transfer:attack=mim(steps=5)".
    """
    name, _, settings = spec.partition(":")
    cls = lookup(kind, name)
    hints = get_type_hints(cls)
    known = {field.name: hints[field.name] for field in dataclasses.fields(cls)}
    values: dict[str, Any] = {}
    for setting in filter(None, _split(name, settings)):
        key, _, text = (part.strip() for part in setting.partition("="))
        if key not in known:
            raise UnknownName(f"setting of {name}", key, known)
        inner = _holds_its_own_kind(cls, known[key])
        values[key] = _create_inner(kind, name, key, text) if inner else _parse(name, key, text, known[key])
    return cls(**values)


def describe(kind: str, made: Any) -> dict[str, Any]:
    """Return the name and all settings: what identifies a registered value in a run or on a card."""
    inner = {key: describe(kind, value) for key, value in _inner_values(made).items()}
    return {"name": name_of(kind, type(made)), **dataclasses.asdict(made), **inner}


def setting_texts(cls: type[Any]) -> dict[str, str]:
    """Return what each setting of a class means: the docstring below its field, else the common meaning of its name."""
    common: Mapping[str, str] = getattr(cls, "common_settings", {})
    own: dict[str, str] = {}
    for line, below in itertools.pairwise(_statements(cls)):
        if isinstance(line, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            own[ast.unparse(line.target)] = " ".join(str(below.value.value).split())
    names = [field.name for field in dataclasses.fields(cls)]
    return {name: own.get(name, common.get(name, "")) for name in names}


def spell(kind: str, made: Any) -> str:
    """Return the shortest text from which `create` makes the same value again."""
    changed = (field for field in dataclasses.fields(made) if getattr(made, field.name) != field.default)
    inner = {key: _in_parentheses(spell(kind, value)) for key, value in _inner_values(made).items()}
    settings = {field.name: inner.get(field.name, getattr(made, field.name)) for field in changed}
    return _text(name_of(kind, type(made)), settings)


def spell_described(description: Mapping[str, Any]) -> str:
    """Return what `describe` returned as text that `create` reads."""
    settings = {key: spell_setting(value) for key, value in description.items() if key != "name"}
    return _text(description["name"], settings)


def spell_setting(value: Any) -> str:
    """Return one setting of what `describe` returned as text that `create` reads."""
    if isinstance(value, Mapping):
        return _in_parentheses(spell_described(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _statements(cls: type[Any]) -> list[ast.stmt]:
    """Return the statements of a class; none where its source is not kept, as in an interactive session."""
    try:
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError, SyntaxError):
        return []
    return body.body if isinstance(body, ast.ClassDef) else []


def _text(name: str, settings: Mapping[str, Any]) -> str:
    return name + (":" if settings else "") + ",".join(f"{key}={value}" for key, value in settings.items())


def _in_parentheses(spec: str) -> str:
    name, colon, settings = spec.partition(":")
    return f"{name}({settings})" if colon else name


def _holds_its_own_kind(cls: type[Any], hint: Any) -> bool:
    """Return whether a field of a class is annotated with a base of that class, as attacks inside attacks are."""
    base = get_origin(hint) or hint
    return isinstance(base, type) and base is not object and issubclass(cls, base)


def _inner_values(made: Any) -> dict[str, Any]:
    """Return the settings that hold another value of the same kind."""
    hints = get_type_hints(type(made))
    names = [field.name for field in dataclasses.fields(made)]
    return {name: getattr(made, name) for name in names if _holds_its_own_kind(type(made), hints[name])}


def _split(owner: str, settings: str) -> list[str]:
    """Split settings at the commas outside parentheses."""
    parts, depth = [""], 0
    for character in settings:
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
        if depth < 0:
            break
    if depth:
        raise BadRequest(f"{owner}: the parentheses in {settings!r} do not match.")
    return parts


def _create_inner(kind: str, owner: str, key: str, text: str) -> Any:
    """Make a value inside another one, from "mim" or "mim(steps=5)"."""
    name, opened, settings = text.partition("(")
    if not name or set(name) & set(":;/") or bool(opened) != text.endswith(")"):
        raise BadRequest(
            f"{owner}: write the settings of the inner {kind} in parentheses, as in {key}=pgd(steps=10,restarts=2), "
            f"not {text!r}."
        )
    return create(kind, f"{name}:{settings[:-1]}")


def _parse(owner: str, key: str, text: str, kind: type[Any]) -> Any:
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return float(Fraction(text)) if kind is float else kind(text)
    except (ValueError, KeyError, ZeroDivisionError, OverflowError):
        raise BadRequest(f"{owner}: {key} must be of type {kind.__name__}, not {text!r}.") from None
