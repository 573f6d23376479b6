"""Estimates of how long the tasks of the study take."""

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.measures import LINE_POINTS
from robustassay.studies.timing import PassTimes
from robustassay.threat import Untargeted

TIMED: Final = 32
SEARCHED: Final = 0.15
"""Share of a line that is searched until its image transfers, about."""


@final
@dataclass(frozen=True, eq=False)
class Costs:
    """Estimated seconds of the study's tasks."""

    experiment: LiuExperiment

    @cached_property
    def times(self) -> dict[str, PassTimes]:
        """The time of a pass, per model."""
        return {name: _pass_times(self.experiment, name) for name in self.experiment.models}

    @property
    def _forward(self) -> float:
        """One image through every model."""
        return sum(each.forward for each in self.times.values())

    @property
    def _images(self) -> int:
        return len(self.experiment.images)

    def outcomes(self) -> float:
        """Every example of a set through every model."""
        return self._images * len(self.experiment.models) * self._forward

    def noise(self) -> float:
        """Every draw of noise of one deviation through every model."""
        return self._images * self._forward * self.experiment.settings.sizes.draws

    def minimal_rmsd(self) -> float:
        """The searched part of a line, through every model."""
        settings = self.experiment.settings
        return self._images * self._forward * SEARCHED * settings.line_end / settings.sizes.line_step

    def errors_along(self) -> float:
        """Every point of a line through every model."""
        return self._images * self._forward * LINE_POINTS

    def plane(self) -> float:
        """Every point of a plane through every model."""
        return self.experiment.settings.grid**2 * self._forward

    def planes(self) -> float:
        """Every point of the planes that are counted through every model."""
        settings = self.experiment.settings
        return settings.sizes.planes * settings.coarse**2 * self._forward

    def diameters(self) -> float:
        """The searched part of four lines through every model."""
        return self._images * self._forward * 4 * SEARCHED * self.experiment.settings.line_end

    def free(self) -> float:
        """Too little to count."""
        return 0.0


def _pass_times(experiment: LiuExperiment, name: str) -> PassTimes:
    """Time the passes of a model on a few images."""
    target, x = experiment.targets[name], experiment.x[:TIMED]
    goal = Untargeted(experiment.goal(False).labels[: len(x)])
    target.logits(x[:1])
    seconds = []
    for query in (target.logits, lambda x: target.gradient(x, lambda logits, goal: goal.loss(logits), goal)):
        start = time.perf_counter()
        query(x)
        seconds.append((time.perf_counter() - start) / len(x))
    return PassTimes(seconds[0], seconds[1])
