"""Tries every candidate for a short time on images that a plain attack leaves, and orders them by what they break."""

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import torch
from torch import Tensor, nn

from robustassay import attacks
from robustassay.attacks.score.square import Square
from robustassay.doctor.candidates import STARTS, Candidate, from_starts
from robustassay.doctor.gradient_fixes import copies_per_pass
from robustassay.doctor.probe_set import ProbeSet
from robustassay.errors import AssayError
from robustassay.target import GradientAccess, TargetModel

PLAIN_IMAGES: Final = 16
TRIAL_IMAGES: Final = 8
ENOUGH_IMAGES: Final = 4

STEPS_UNKNOWN: Final = 100
"""Steps of attacks that state none, such as those of a transfer attack on its substitute."""

FEWEST_QUERIES: Final = 500
"""With fewer queries Square is not run."""

FEWEST_STARTS: Final = 4
"""From fewer starts the best fix does not attack again."""

PLAIN: Final = "pgd:steps=20"
"""The plain attack; what it leaves are the images of the trials."""


@final
@dataclass(frozen=True)
class Trial:
    """A candidate, which of the images it broke in its trial, and the passes per image that it took at most."""

    candidate: Candidate
    broken: Tensor
    passes: int

    @classmethod
    def without(cls, candidate: Candidate) -> "Trial":
        """Return the trial of a candidate that was not tried."""
        return cls(candidate, torch.zeros(0, dtype=torch.bool), 1)

    @property
    def promise(self) -> float:
        """Images broken per pass."""
        return int(self.broken.sum()) / self.passes

    def adds_nothing_to(self, other: "Trial") -> bool:
        """Whether it broke some images, and none that the other left."""
        return bool(self.broken.any()) and not bool((self.broken & ~other.broken).any())


def left_by_plain_attack(probes: ProbeSet) -> ProbeSet:
    """Return the images that a plain attack does not break, `TRIAL_IMAGES` at most."""
    rows = torch.arange(len(probes), device=probes.x0.device)
    left = probes.among(rows < PLAIN_IMAGES)
    left = left.among(~left.broken_by(attacks.create(PLAIN)))
    return left.among(rows[: len(left)] < TRIAL_IMAGES)


def run_trials(probes: ProbeSet, candidates: Iterable[Candidate]) -> list[Trial]:
    """Try the candidates, cheap ones first; return them by promise, the highest first.

    Once one has broken every image, and there are enough of them, dearer ones are not tried.
    """
    dearest, trials = math.inf, []
    for cost, candidate in sorted(_costs(probes, candidates), key=operator.itemgetter(0)):
        broken = None if cost > dearest else try_candidate(probes, candidate)
        if broken is not None:
            trials.append(Trial(candidate, broken, cost))
            dearest = cost if broken.all() and len(broken) >= ENOUGH_IMAGES else dearest
    return sorted(trials, key=lambda trial: -trial.promise)


def _costs(probes: ProbeSet, candidates: Iterable[Candidate]) -> Iterator[tuple[int, Candidate]]:
    for candidate in candidates:
        yield passes(candidate.trial, probes.target, candidate.module), candidate


def try_candidate(probes: ProbeSet, candidate: Candidate) -> Tensor | None:
    """Return which images the trial breaks; None where the attack does not apply or the model fails under its fix."""
    attack = attacks.create(candidate.trial)
    if type(probes.norm) not in attack.norms:
        return None
    target = probes.target
    if candidate.module is not target.module:
        target = target.with_module(candidate.module)
    try:
        return replace(probes, target=target).broken_by(attack)
    except AssayError:
        return None


def passes(spec: str, target: TargetModel, module: nn.Module) -> int:
    """Return the most passes per image that an attack takes; a backward pass counts as two."""
    attack = attacks.create(spec)
    steps = (attack.planned_queries or attack.planned_steps or STEPS_UNKNOWN) * int(getattr(attack, "targets", 1))
    if not issubclass(attack.access, GradientAccess):
        return steps
    forward, backward = target.with_module(module).passes
    return steps * (forward + 2 * backward) * copies_per_pass(module)


def within_budget(trials: Sequence[Trial], target: TargetModel, budget: int) -> list[Candidate]:
    """Take the attacks of the candidates in order until the budget of passes per image is spent.

    The first attack is always taken. An attack from many starts gets half of what is left, and Square the queries that
    are left.
    """
    taken: list[Candidate] = []
    left = budget
    for trial in trials:
        affordable: list[str] = []
        for planned in trial.candidate.full:
            spec = _shortened(planned, left, passes(planned, target, trial.candidate.module))
            cost = passes(spec, target, trial.candidate.module)
            if cost <= left or not (taken or affordable):
                affordable.append(spec)
                left -= cost
        if affordable:
            taken.append(replace(trial.candidate, full=tuple(affordable)))
    return taken


def _shortened(spec: str, left: int, cost: int) -> str:
    """Return an attack that can be shorter in such a length that these passes are enough, if they are for any."""
    if spec == from_starts(STARTS):
        starts = min(STARTS, left * STARTS // (2 * cost))
        return from_starts(starts) if starts >= FEWEST_STARTS else spec
    if spec == "square" and left < Square().steps:
        return f"square:steps={max(left, FEWEST_QUERIES)},rescale_schedule=true"
    return spec
