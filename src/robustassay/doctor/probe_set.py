"""The probe set: a model, a few images that it classifies correctly, and attacks on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack
from robustassay.evaluation.wave import Wave, run_wave
from robustassay.rng import Streams
from robustassay.target import Loss, TargetModel
from robustassay.threat import L1, L2, Ball, Goal, LInf, Norm, ThreatModel, Untargeted
from robustassay.threat.losses import own_loss

SEED: Final = 0

_DIAMETER_POWER: Final = {LInf: 0.0, L2: 0.5, L1: 1.0}
"""The diameter of the pixel box is its number of values to this power."""


@final
@dataclass(frozen=True)
class AscentTrace:
    """Gradient ascent on the loss: the margin at the random start and after each step, `[steps + 1, n]`."""

    margins: Tensor
    reached: Tensor  # whether the goal was reached, of the same shape

    @property
    def broken(self) -> Tensor:
        """Images that were broken at any step."""
        return self.reached.any(0)

    @property
    def lowest(self) -> Tensor:
        """Return the lowest margin of each image up to each step."""
        return self.margins.cummin(0).values


@final
@dataclass(frozen=True)
class ProbeSet:
    """A model and images that it classifies correctly."""

    target: TargetModel
    ids: Sequence[str]
    x0: Tensor
    goal: Goal
    clean: Tensor  # margins of the images themselves
    norm: Norm
    background: Tensor | None = None  # further images of the dataset, without labels

    @classmethod
    def of(
        cls,
        target: TargetModel,
        ids: Sequence[str],
        x: Tensor,
        labels: Tensor,
        norm: Norm,
        background: Tensor | None = None,
    ) -> "ProbeSet":
        """Keep the images that are classified correctly."""
        logits = target.mean_logits(x)
        goal = Untargeted(labels)
        rows = (~goal.reached(logits)).nonzero().squeeze(1)
        kept = [ids[row] for row in rows.tolist()]
        return cls(target, kept, x[rows], goal.among(rows), goal.margin(logits)[rows], norm, background)

    def __len__(self) -> int:
        return len(self.ids)

    def among(self, mask: Tensor) -> "ProbeSet":
        """Return the same with some of the images."""
        rows = mask.nonzero().squeeze(1)
        kept = [self.ids[row] for row in rows.tolist()]
        goal, clean = self.goal.among(rows), self.clean[rows]
        return ProbeSet(self.target, kept, self.x0[rows], goal, clean, self.norm, self.background)

    def ball(self, eps: float) -> Ball:
        """Return the balls of this radius around the images."""
        return Ball(type(self.norm)(eps), self.x0, torch.full((len(self),), eps, device=self.x0.device))

    def diameter(self) -> float:
        """Return the diameter of the pixel box: a ball of this radius holds every image."""
        return float(self.x0[0].numel() ** _DIAMETER_POWER[type(self.norm)])

    def ascend(self, eps: float, steps: int, rel_step: float, loss: Loss | None = None) -> AscentTrace:
        """Run all steps of PGD on all images.

        The random start is within the radius of the threat at most: unbounded noise breaks any model.
        """
        ball = self.ball(eps)
        x = self.ball(min(eps, self.norm.eps)).sample(Streams.of(SEED, self.ids, self.x0.device))
        margins, reached = [], []
        for _ in range(steps):
            gradient, logits = self.target.gradient(x, loss or own_loss, self.goal)
            margins.append(self.goal.margin(logits))
            reached.append(self.goal.reached(logits))
            x = ball.step(x, gradient, rel_step * ball.eps)
        logits = self.target.mean_logits(x)
        self.target.check()
        return AscentTrace(
            torch.stack([*margins, self.goal.margin(logits)]), torch.stack([*reached, self.goal.reached(logits)])
        )

    def broken_by(self, attack: Attack[Any]) -> Tensor:
        """Run an attack within the radius of the threat; return which images it breaks, verified."""
        return self.attacked_by(attack)[0]

    def attacked_by(self, attack: Attack[Any]) -> tuple[Tensor, Tensor]:
        """Run an attack within the radius of the threat; return which images it breaks, and their lowest margins.

        The lowest of many noisy margins is chance: those of a random model are the clean ones unless the image breaks.
        """
        if not len(self):
            return torch.zeros(0, dtype=torch.bool, device=self.x0.device), self.clean.double()
        wave = Wave(self.ids, self.x0, self.goal.labels)
        records, _ = run_wave(self.target, attack, ThreatModel(self.norm), wave, SEED, None, lambda ledger: None)
        broken, margin = (records[name].to_pylist() for name in ("success", "margin"))
        device = self.x0.device
        verified, lowest = torch.tensor(broken, dtype=torch.bool, device=device), torch.tensor(margin, device=device)
        if self.target.random:
            lowest = lowest.clamp(max=0).where(verified, self.clean)
        return verified, lowest.double()
