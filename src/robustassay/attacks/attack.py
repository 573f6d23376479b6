"""What every attack is: a frozen configuration with one method, the paper's loop."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor

from robustassay.errors import BadRequest
from robustassay.target import DecisionAccess
from robustassay.threat import Norm

Box = TypeVar("Box", bound=DecisionAccess)


@dataclass(frozen=True)
class Attack(ABC, Generic[Box]):
    """An attack declares what it must see, which norms it knows, and what it seeks; the engine does the rest.

    A field called `steps` tells the engine how long a run is, for the time estimate; one called `restarts`
    makes it run again, on the rows that survived.
    """

    access: ClassVar[type[DecisionAccess]]
    norms: ClassVar[tuple[type[Norm], ...]]
    seeks_minimum: ClassVar[bool] = False
    can_target: ClassVar[bool] = True
    tries_without_gradients: ClassVar[bool] = False  # though it sees them: for a model that has none
    objectives: ClassVar[Mapping[str, Callable[[Any, Tensor], Tensor]]] = {}
    """Costs, from the attack and flat perturbations, by which its best points are kept beside the threat's norm."""

    @abstractmethod
    def __call__(self, view: Box, x0: Tensor) -> Tensor:
        """Search from the clean images x0 and return one last point a row still in flight."""

    @property
    def planned_queries(self) -> int | None:
        """How many queries the attack means to make for a sample, in all; None where it counts steps instead."""
        return getattr(self, "queries", None)

    def stage_names(self, norm: Norm) -> list[str]:
        """Name the parts of a composed attack, in the order they run; a simple one has none."""
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
    """Return a setting in its own type, so that 1 and 1.0 name one run; refuse what no attack can mean."""
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise BadRequest(f"{attack}: {name} must be of type {kind.__name__}, not {value!r}.")
    if kind is int and value < 1:
        raise BadRequest(f"{attack}: {name} must be at least 1, not {value}.")
    if kind is float and not (math.isfinite(value) and value >= 0):
        raise BadRequest(f"{attack}: {name} must be a finite number, zero or more, not {value}.")
    return value
