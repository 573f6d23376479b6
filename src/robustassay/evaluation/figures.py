"""Figures of a result. They are drawn by a class registered under the kind `figures`; evaluation imports none."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from robustassay.registry import lookup

if TYPE_CHECKING:
    from robustassay.analysis.curves import Curve
    from robustassay.data import Dataset
    from robustassay.evaluation.result import Result


class ResultFigures(ABC):
    """Draws the figures of a result."""

    @abstractmethod
    def curves(self, curves: "list[Curve]", norm: str) -> Any:
        """Return a figure of curves that share their axes."""

    @abstractmethod
    def examples(self, result: "Result", dataset: "Dataset", count: int) -> Any:
        """Return a figure of clean images, perturbations and adversarial images."""


def result_figures() -> ResultFigures:
    """Return the class that draws with matplotlib."""
    drawn: ResultFigures = lookup("figures", "matplotlib")()
    return drawn
