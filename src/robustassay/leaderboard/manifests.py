"""Checks the types and sizes of everything in a manifest that a leaderboard reads: its author may be anybody."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from robustassay.errors import BadData, WrongFolder
from robustassay.evaluation.spec import RunSpec
from robustassay.store import check_schema

Test = Callable[[Any], bool]

_LONGEST_NAME: Final = 500
_LONGEST_REMARK: Final = 5_000
_MOST_ITEMS: Final = 200
_MOST_SAMPLES: Final = 10_000


def checked(manifest: object, path: Path) -> Mapping[str, Any]:
    """Return a manifest whose values have their types and whose key is that of its specification."""
    try:
        if not isinstance(manifest, dict):
            raise ValueError("it is no JSON object")
        check_schema(manifest, path)
        _check(manifest, _MANIFEST, "")
        for part, fields in _SPEC.items():
            _check(manifest["spec"][part], fields, f"{part}.")
        _check(manifest["spec"], {"seed": (True, "a whole number", _is_count)}, "")
        key = RunSpec(**manifest["spec"]).key
    except WrongFolder as error:
        raise BadData(str(error)) from error
    except (KeyError, TypeError, ValueError, RecursionError, OverflowError) as error:
        raise BadData(
            f"The manifest of {path} cannot be used ({str(error)[:200]}): leave the run out, or run it again."
        ) from error
    if manifest.get("key") != key:
        raise BadData(f"The manifest of {path} was changed after the run (its key is {key}): run again.")
    return manifest


def _check(values: object, fields: Mapping[str, tuple[bool, str, Test]], inside: str) -> None:
    if not isinstance(values, dict):
        raise ValueError(f"{inside.rstrip('.')} must be a JSON object")
    for name, (required, kind, fits) in fields.items():
        if (required or name in values) and not fits(values.get(name)):
            raise ValueError(f"{inside}{name} must be {kind}")


def _is_text(longest: int, least: int = 0) -> Test:
    return lambda value: isinstance(value, str) and least <= len(value) <= longest


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_remarks(value: object) -> bool:
    remark, name = _is_text(_LONGEST_REMARK), _is_text(_LONGEST_NAME)
    return (
        isinstance(value, dict) and len(value) <= _MOST_ITEMS and all(name(k) and remark(v) for k, v in value.items())
    )


def _is_names(value: object) -> bool:
    return isinstance(value, list) and len(value) <= _MOST_ITEMS and all(map(_is_text(_LONGEST_NAME), value))


def _is_flat(value: object) -> bool:
    """Say whether all values of an object are short texts, numbers, booleans, null, or one more object of these."""
    if not isinstance(value, dict) or len(value) > _MOST_ITEMS:
        return False
    short = _is_text(_LONGEST_REMARK)
    return all(
        one is None
        or isinstance(one, bool | int | float)
        or short(one)
        or (isinstance(one, dict | list) and _fits(one))
        for one in value.values()
    )


def _is_self_test(value: object) -> bool:
    """Say whether a self-test names which samples were found, and its costs, as numbers."""
    if (
        not isinstance(value, dict)
        or not isinstance(found := value.get("found", {}), dict)
        or len(found) > _MOST_SAMPLES
    ):
        return False
    name, asked = _is_text(_LONGEST_NAME), value.get("asked", [])
    return (
        all(name(sample) and isinstance(hit, bool) for sample, hit in found.items())
        and (isinstance(asked, list) and len(asked) <= _MOST_SAMPLES and all(map(name, asked)))
        and _is_text(_LONGEST_REMARK)(value.get("not_examined", ""))
        and all(_is_number(value.get(key, 0)) for key in ("forwards", "backwards", "seconds"))
    )


def _is_cross_check(value: object) -> bool:
    """Say whether a cross-check lists samples, and names in few words how they were attacked."""
    if not isinstance(value, dict):
        return False
    name, lists = _is_text(_LONGEST_NAME), [value.get(key, []) for key in ("asked", "broken")]
    return (
        all(isinstance(one, list) and len(one) <= _MOST_SAMPLES and all(map(name, one)) for one in lists)
        and all(_is_text(_LONGEST_REMARK)(value.get(key, "")) for key in ("how", "not_examined"))
        and _is_number(value.get("seconds", 0))
        and isinstance(value.get("other_kind", False), bool)
    )


def _is_certified(value: object) -> bool:
    return isinstance(value, dict) and all(_is_count(value.get(key)) for key in ("count", "total"))


def _fits(value: object) -> bool:
    return len(repr(value)) <= _LONGEST_REMARK


_NAME: Final = (True, f"a text of 1 to {_LONGEST_NAME} letters", _is_text(_LONGEST_NAME, 1))
_OBJECT: Final = (True, "a JSON object", lambda value: isinstance(value, dict))
_FLAT: Final = (True, "a JSON object of short values", _is_flat)

_MANIFEST: Final[Mapping[str, tuple[bool, str, Test]]] = {
    "spec": _OBJECT,
    "key": _NAME,
    "started": _NAME,
    "title": (False, *_NAME[1:]),
    "hardware": (False, *_FLAT[1:]),
    "software": (False, *_FLAT[1:]),
    "flags": (False, "a JSON object of short texts", _is_remarks),
    "stages": (False, "a list of names", _is_names),
    "confirms": (False, "a list of keys", _is_names),
    "self_test": (False, "the result of a self-test", _is_self_test),
    "cross_check": (False, "the result of a cross-check", _is_cross_check),
    "certified": (False, "a count and a total", _is_certified),
}

_SPEC: Final[Mapping[str, Mapping[str, tuple[bool, str, Test]]]] = {
    "model": {"name": _NAME, "weights": (False, *_NAME[1:]), "structure": (False, *_NAME[1:])},
    "data": {"name": _NAME, "sha256": _NAME},
    "threat": {
        "norm": _NAME,
        "eps": (True, "a positive number", lambda value: _is_number(value) and value > 0),
        "target": (False, "null or a short text", lambda value: value is None or _is_text(_LONGEST_NAME)(value)),
        "query_budget": (False, "null or a whole number", lambda value: value is None or _is_count(value)),
    },
    "attack": {"name": _NAME},
}
