"""Adaptive attacks: what an adviser recommends after a diagnosis of the model.

An adviser registers under the kind `adviser`, as the doctor does under the name "auto"; evaluation imports none.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from torch import nn

from robustassay.errors import BadRequest
from robustassay.evaluation.flags import Flag
from robustassay.evaluation.inspection import InspectedModel
from robustassay.registry import lookup
from robustassay.results.cross_check import CrossCheck
from robustassay.results.identity import ADAPTIVE
from robustassay.target import TargetModel
from robustassay.threat import ThreatModel

if TYPE_CHECKING:
    from robustassay.data import Dataset


@final
@dataclass(frozen=True)
class Remedy:
    """Attacks on a module with the outputs of the model and a better gradient."""

    name: str
    because: str
    how: str
    module: nn.Module
    attacks: tuple[str, ...]


@final
@dataclass(frozen=True)
class Advice:
    """A diagnosis, in plain values, and remedies in the order in which to apply them."""

    diagnosis: Mapping[str, Any] = field(default_factory=dict)
    remedies: Sequence[Remedy] = ()

    @property
    def manifest_entries(self) -> dict[str, Any]:
        """The diagnosis as entries of a manifest; empty where there is none."""
        return {ADAPTIVE: dict(self.diagnosis)} if self.diagnosis else {}


class Adviser(ABC):
    """Diagnoses a model before it is attacked."""

    @abstractmethod
    def advise(self, target: TargetModel, flags: Sequence[Flag], dataset: "Dataset", threat: ThreatModel) -> Advice:
        """Return a diagnosis of the model, and remedies for what it finds."""

    @abstractmethod
    def cross_check(
        self, target: TargetModel, dataset: "Dataset", others: "Dataset | None", threat: ThreatModel, gradients: float
    ) -> CrossCheck:
        """Attack samples that other attacks left unbroken through gradients other than those of the logits.

        `others` are the other samples of the selection, if any: they show which values the model has for each class.
        `gradients` is the mean number of gradients per sample of the strong attacks, and 0 if there was none. Repairs
        that average several gradients are tried only where they take no more: against weak attacks they win easily.
        """


def open_adviser(name: str = "auto") -> Adviser:
    """Return the adviser of this name."""
    adviser: Adviser = lookup("adviser", name)()
    return adviser


def ask_adviser(name: str | None, inspected: InspectedModel, dataset: "Dataset", threat: ThreatModel) -> Advice:
    """Ask the adviser of this name; without a name there is no advice."""
    if name is None:
        return Advice()
    if not inspected.target.gives_gradients:
        raise BadRequest("A service gives no gradients to diagnose: attack it without --adaptive.")
    return open_adviser(name).advise(inspected.target, inspected.flags, dataset, threat)
