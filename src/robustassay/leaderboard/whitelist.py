"""What may be rebuilt from the names in somebody else's manifest.

A manifest names a model, a dataset and an attack. Each of these names can be written so that loading it runs a Python
file, reads any path or opens a connection. Here every name is taken apart, and each part must be known to be harmless:

- models: an embedded model behind defenses of this package, whose settings are numbers in range or words of a list;
- datasets: a name without a path, behind at most one corruption;
- attacks: an attack of this package; a model that it names must be an embedded one.

Everything else is refused. The values are built from the checked parts, so that no second parser reads the text.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from robustassay import attacks, models, registry
from robustassay import data as datasets
from robustassay.attacks.attack import Attack
from robustassay.errors import BadRequest
from robustassay.evaluation.model_ref import gradient_wrappers

if TYPE_CHECKING:
    from torch import nn

    from robustassay.data import Dataset
    from robustassay.defenses import Defense

MOST_LINKS: Final = 8
"""Defenses in a chain, and members of an ensemble."""

MOST_INNER_ATTACKS: Final = 2
"""Attacks inside attacks."""

MOST_OF_A_DEFENSE: Final = 1_000
MOST_OF_AN_ATTACK: Final = 1_000_000
"""Upper limits for numbers in settings: copies, draws, steps, queries."""

_LONGEST: Final = 500
_SETTING: Final = re.compile(r"([a-z_]{1,40})=([A-Za-z0-9_.+/-]{1,300})", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d{1,18}(\.\d{1,18})?(/\d{1,9}|e-?\d{1,2})?", re.ASCII)
_PARTS: Final = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*(\+[a-z0-9_]+(\.[a-z0-9_]+)*)*", re.ASCII)
_WORD: Final = re.compile(r"[a-z0-9-]{1,40}", re.ASCII)

_MODELS_OF_ATTACKS: Final = frozenset({"source", "surrogate"})
_WORDS_OF_ATTACKS: Final = frozenset({"aim", "basis", "loss", "order", "solver", "version"})


def model(name: str) -> "nn.Module":
    """Build the model of a manifest, or refuse its name."""
    chain, word, inner = _parse_model(name)
    module = models.load(inner)
    for defense in reversed(chain):
        module = defense | module
    return gradient_wrappers()[word](module) if word else module


def check_model(name: str) -> None:
    """Refuse a model's name that `model` would refuse, without loading any weights."""
    _parse_model(name)


def dataset(name: str) -> "Dataset":
    """Load the dataset of a manifest, or refuse its name."""
    check_dataset(name)
    return datasets.load(name)


def check_dataset(name: str) -> None:
    """Refuse a dataset's name that states a path."""
    if not datasets.names_no_path(name):
        raise BadRequest(f"The dataset {name[:_LONGEST]!r} is not known by name: state it with --data.")


def attack(description: Mapping[str, Any], depth: int = 0) -> Attack[Any]:
    """Build the attack of a manifest from its name and settings, or refuse it."""
    name = description.get("name")
    if depth > MOST_INNER_ATTACKS or not isinstance(name, str) or name not in attacks.attack_names():
        raise BadRequest(f"{str(name)[:_LONGEST]!r} is no attack of this version.")
    cls = registry.lookup("attack", name)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    if not cls.__module__.startswith("robustassay.attacks."):
        raise BadRequest(f"The attack {name} comes from a plug-in.")
    hints = get_type_hints(cls)
    settings = {key: value for key, value in description.items() if key != "name"}
    for key, value in settings.items():
        if key in fields and isinstance(fields[key].default, Attack) and isinstance(value, Mapping):
            settings[key] = attack(value, depth + 1)
        elif key not in fields or not _is_allowed(key, value, hints[key], fields[key].default):
            raise BadRequest(f"The attack {name} cannot be rebuilt with {key[:40]}={str(value)[:80]}.")
    made: Attack[Any] = cls(**settings)
    return made


def _parse_model(name: str) -> "tuple[list[Defense], str, str]":
    """Split a model's name into defenses, the word that says which gradients attacks get, and an embedded model."""
    parts = [part.strip(" ") for part in name.split("|")] if len(name) <= _LONGEST else []
    word = parts[0] if len(parts) > 2 and parts[0] in gradient_wrappers() else ""
    *before, inner = parts[bool(word) :] or [""]
    if inner not in models.names() or len(before) > MOST_LINKS:
        raise _refused(name)
    return [_defense(name, part) for part in before], word, inner


def _defense(name: str, text: str) -> "Defense":
    """Build one defense from its checked settings."""
    kind, colon, rest = text.partition(":")
    known = registry.registered("defense")
    if kind not in known or not known[kind].__module__.startswith("robustassay.defenses."):
        raise _refused(name)
    fields = {field.name: field for field in dataclasses.fields(known[kind])}
    hints = get_type_hints(known[kind])
    values: dict[str, Any] = {}
    for setting in rest.split(",") if colon else []:
        found = _SETTING.fullmatch(setting.strip(" "))
        if found is None or found[1] not in fields:
            raise _refused(name)
        values[found[1]] = _setting(name, kind, fields[found[1]], hints[found[1]], found[2])
    made: Defense = known[kind](**values)
    return made


def _setting(name: str, kind: str, field: "dataclasses.Field[Any]", hint: Any, text: str) -> Any:
    """Return the value of one setting of a defense, or refuse it."""
    if hint is str:
        if not _is_word(kind, field, text):
            raise _refused(name)
        return text
    if hint not in (int, float) or not _NUMBER.fullmatch(text):
        raise _refused(name)
    top, _, bottom = text.partition("/")
    try:
        value = float(top) / float(bottom or 1) if hint is float else int(text)
    except (ValueError, ZeroDivisionError):
        raise _refused(name) from None
    if not abs(value) <= MOST_OF_A_DEFENSE:
        raise _refused(name)
    return value


def _is_word(kind: str, field: "dataclasses.Field[Any]", text: str) -> bool:
    """Say whether a text setting of a defense names nothing outside this package."""
    if (kind, field.name) == ("ensemble", "members"):
        return _are_embedded(text)
    if (kind, field.name) == ("feature-denoising", "after"):
        return bool(_PARTS.fullmatch(text)) and text.count("+") < MOST_LINKS
    return text in field.metadata.get("among", ())


def _is_allowed(key: str, value: object, hint: Any, default: object) -> bool:
    """Say whether a setting of an attack has its type, a sane size, and names no model outside the zoo."""
    if type(value) is not hint and not (hint is float and type(value) is int):
        return False
    if isinstance(value, str):
        if key in _MODELS_OF_ATTACKS:
            return _are_embedded(value)
        return value == default or (key in _WORDS_OF_ATTACKS and bool(_WORD.fullmatch(value)))
    return isinstance(value, int | float) and abs(value) <= MOST_OF_AN_ATTACK


def _are_embedded(names: str) -> bool:
    split = names.split("+")
    return len(split) <= MOST_LINKS and all(one in models.names() for one in split)


def _refused(name: str) -> BadRequest:
    return BadRequest(
        f"{name[:_LONGEST]!r} is not an embedded model behind known defenses, and other models may run code or open "
        "connections: if you trust it, name the model with --model."
    )
