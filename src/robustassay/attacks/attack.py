"""What every attack is: a frozen configuration with one method, the paper's loop."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Generic, TypeVar, final

from torch import Tensor

from robustassay.errors import BadRequest
from robustassay.target import DecisionAccess, GradientAccess
from robustassay.threat import Norm

Access = TypeVar("Access", bound=DecisionAccess)

FINEST_IN_HALF: Final = 0.01
"""The least distance per value between points whose logits are compared in float16: near 1 its own steps are 0.0005."""

COMMON_SETTINGS: Final = {
    "steps": "Iterations per sample, at most; of one descent where there are several.",
    "search_steps": "Number of descents, each with another weight of the loss against the distance.",
    "restarts": "How often the attack runs on the samples that are still unbroken.",
    "queries": "Queries per sample, at most.",
    "rel_step": "Length of a step, as a part of eps.",
    "targets": "Number of wrong classes that are attacked.",
    "samples": "Random points that one step queries.",
    "sigma": "Distance of the queried points from the image, per value.",
    "rate": "Learning rate.",
    "initial_c": "First weight of the loss against the distance.",
    "kappa": "Margin by which a point must be misclassified to count.",
    "abort_early": "Whether a descent ends where it makes no progress.",
    "decay": "Part of the accumulated gradient that is kept at each step.",
    "path": "Length of all steps together, in radii.",
    "kernel": "Side of the kernel that smooths gradients, in pixels; 1 does not smooth.",
    "side": "Larger images are changed on a grid with so many values per side.",
}
"""What a setting of this name means; an attack in which it means something else says so in a docstring."""


@final
@dataclass(frozen=True)
class AttackInfo:
    """What the documentation says of an attack beside its docstring; docs/attacks.md explains the notation."""

    formula: str = ""
    papers: tuple[str, ...] = ()  # numbers on arXiv, that of the attack first
    reference: str = ""  # the implementations whose details it follows


@final
@dataclass(frozen=True)
class Calls:
    """How often an attack calls the model, with how many rows each time; for estimates of time."""

    count: float
    rows: float
    by_gradient: bool


@dataclass(frozen=True)
class Attack(ABC, Generic[Access]):
    """An attack declares what it may ask, which norms it supports and what it seeks; the evaluation does the rest.

    Some fields state the planned cost by their names: `steps`, `search_steps`, `restarts` and `queries`. A docstring
    below a field explains it to users, unless `COMMON_SETTINGS` does.
    """

    access: ClassVar[type[DecisionAccess]]
    norms: ClassVar[tuple[type[Norm], ...]]
    info: ClassVar[AttackInfo] = AttackInfo()
    seeks_minimum: ClassVar[bool] = False
    can_target: ClassVar[bool] = True
    tries_without_gradients: ClassVar[bool] = False  # whether it may run on a model without gradients
    common_settings: ClassVar[Mapping[str, str]] = COMMON_SETTINGS
    objectives: ClassVar[Mapping[str, Callable[[Any, Tensor], Tensor]]] = {}
    """Other costs than the distance, from the attack and flat perturbations; the best point by each is recorded too."""

    @abstractmethod
    def __call__(self, view: Access, x0: Tensor) -> Tensor:
        """Search from the clean images x0; return the last point of each row that has not finished."""

    @property
    @final
    def repeats(self) -> int:
        """How often the whole attack runs on the samples that survived."""
        return int(getattr(self, "restarts", 1))

    @property
    @final
    def planned_steps(self) -> int | None:
        """Iterations per sample in all repeats, at most; None where the attack does not count steps."""
        steps = getattr(self, "steps", None)
        return None if steps is None else int(steps) * int(getattr(self, "search_steps", 1)) * self.repeats

    @property
    @final
    def planned_queries(self) -> int | None:
        """Queries per sample in all; None where the attack counts steps instead."""
        return getattr(self, "queries", None)

    def planned_passes(self, norm: Norm) -> int | None:
        """Passes of the model per sample, roughly at most: gradients for an attack that follows them; None if unknown.

        `targets` and `samples` are further fields that state a cost: classes that are attacked in turn, and random
        points per step.
        """
        planned = self.planned_queries or self.planned_steps
        if planned is None:
            return None if fields(self) else 1  # an attack without settings takes one step
        if self.planned_queries is not None:
            return planned
        return planned * int(getattr(self, "targets", 1)) * (int(getattr(self, "samples", -1)) + 2)

    @final
    def needs_exact_search(self, norm: Norm) -> bool:
        """Whether reduced precision would make another attack of it.

        The margins of an attack that seeks the nearest point must be exact. A search in reduced precision ends with a
        few steps in full precision: to an attack of one step they would add strength. Reduced precision rounds away
        most of the differences between points that are close to each other, from which gradients are estimated.
        """
        takes_one_step = issubclass(self.access, GradientAccess) and self.planned_passes(norm) == 1
        sigma: float | None = getattr(self, "sigma", None)
        return self.seeks_minimum or takes_one_step or (sigma is not None and sigma < FINEST_IN_HALF)

    def usual_calls(self, norm: Norm, rows: float) -> list[Calls]:
        """Return the calls that an attack usually makes for so many samples that it does not break."""
        return [Calls(self.planned_passes(norm) or 0, rows, issubclass(self.access, GradientAccess))]

    def stage_names(self, norm: Norm) -> list[str]:
        """Name the parts of a composed attack in the order they run; a simple attack has none."""
        return []

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, Attack):
                _check_inner(type(self).__name__, field.name, value)
            else:
                value = _checked(type(self).__name__, field.name, value, type(field.default))
            object.__setattr__(self, field.name, value)


def _check_inner(attack: str, name: str, value: Any) -> None:
    if not isinstance(value, Attack):
        raise BadRequest(f"{attack}: {name} must be an attack such as attacks.PGD(steps=10), not {value!r}.")


def _checked(attack: str, name: str, value: Any, kind: type[Any]) -> Any:
    """Return a setting in the type of its default, so that 1 and 1.0 name one run; refuse invalid values."""
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise BadRequest(f"{attack}: {name} must be of type {kind.__name__}, not {value!r}.")
    if kind is int and value < 1:
        raise BadRequest(f"{attack}: {name} must be at least 1, not {value}.")
    if kind is float and not (math.isfinite(value) and value >= 0):
        raise BadRequest(f"{attack}: {name} must be a finite number, zero or more, not {value}.")
    return value
