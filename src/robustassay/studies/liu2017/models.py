"""The models of the study by name."""

from collections.abc import Sequence
from pathlib import Path

from robustassay import models
from robustassay.errors import BadRequest, UnknownName
from robustassay.models.from_file import is_file_spec
from robustassay.models.sources import is_source_spec


def choose(names: Sequence[str]) -> dict[str, str]:
    """Return the models to load by the name that tables show; `vgg16` means the zoo's `vgg16-natural`."""
    found: dict[str, str] = {}
    for name in names:
        label, model = _resolved(name)
        if label in found:
            raise BadRequest(f"{label} is named twice: name each model once.")
        found[label] = model
    if len(found) < 3:
        raise BadRequest("Name at least 3 models: an ensemble of all but one needs two or more.")
    return found


def _resolved(name: str) -> tuple[str, str]:
    inner = name.rpartition("|")[2].strip()
    if is_file_spec(inner):
        return f"{Path(inner.partition(':')[0]).stem}:{inner.rpartition(':')[2]}", name
    if is_source_spec(inner):
        return f"{name[: len(name) - len(inner)]}{inner.rpartition(':')[2]}", name
    for known in (inner, f"{inner}-natural"):
        if known in models.names():
            return name.removesuffix("-natural"), name[: len(name) - len(inner)] + known
    raise UnknownName("model", inner, models.names())
