"""The paper's own networks by their hub names: what `--models paper` means."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, final

from robustassay.errors import BadRequest
from robustassay.studies.scope import DatasetName, Scope

PAPER: Final = "paper"
"""Stands for all networks of a paper in `--models`."""


@final
@dataclass(frozen=True)
class PaperModel:
    """One network of a paper; comparisons that need an unknown fact leave it out."""

    label: str  # its name in the paper
    model: str  # what to load, such as `timm:inception_v3.tf_in1k`; empty where no hub has it
    family: str
    depth: int | None = None  # layers with weights
    parameters: int | None = None
    note: str = ""  # how it differs from the paper's own, or what to do where no hub has it


PaperModels = Mapping[DatasetName, tuple[PaperModel, ...]]


def find(models: PaperModels, name: str) -> PaperModel | None:
    """Return the paper's network of this label or hub name."""
    every = (model for group in models.values() for model in group)
    return next((model for model in every if name and name in (model.label, model.model)), None)


def resolve(models: PaperModels, scope: Scope) -> tuple[Scope, list[str]]:
    """Replace `paper` among the models of a scope by the paper's networks, and say which no hub has."""
    if PAPER not in scope.models:
        return scope, []
    own = models.get(scope.dataset, ())
    if not own:
        others = [name for name, group in models.items() if group]
        instead = f": try --dataset {others[0]}" if others else ""
        raise BadRequest(f"No network of this paper for {scope.dataset} is on a hub{instead}.")
    names = _replaced(scope.models, [model.model for model in own if model.model])
    return replace(scope, models=names), [f"Left out: {model.label}; {model.note}." for model in own if not model.model]


def _replaced(names: Iterable[str], own: Iterable[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for name in names:
        found |= dict.fromkeys(own if name == PAPER else (name,))
    return tuple(found)
