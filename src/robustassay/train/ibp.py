"""Certified training with interval and CROWN-IBP bounds (arXiv:1810.12715, arXiv:1906.06316)."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.certification.interval_bounds import is_certified, margin_bounds
from robustassay.errors import ModelFailed
from robustassay.registry import register
from robustassay.train.measure import STEPS, survives_pgd
from robustassay.train.recipe import Recipe

BATCH = 50  # Bounds need much memory: one linear function of all features per image and class.


@register("recipe", "ibp")
@dataclass(frozen=True, kw_only=True)
class BoundTraining(Recipe):
    """Cross-entropy on worst-case logits within `eps`, mixed with the clean cross-entropy.

    The radius and the weight of the worst case grow from 0 between the fractions `ramp_from` and `ramp_to` of training,
    the radius with the power `bend`, because the bounds of untrained weights are too loose. The clean loss keeps the
    weight `natural` to the end.
    """

    title: ClassVar[str] = "certified training by CROWN-IBP bounds"
    note: ClassVar[str] = "Bound training stands in for the convex outer polytope of Wong and Kolter (2018)."
    compiles: ClassVar[bool] = False  # The bounds process the layers one by one.

    rate: float = 0.05
    weight_decay: float = 1e-4
    clip: float = 2.0
    eps: float = 2 / 255
    ramp_from: float = 0.05
    ramp_to: float = 0.6
    bend: float = 2.0
    natural: float = 0.2

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator, progress: Tensor) -> Tensor:
        """Return the mix of the clean and the worst-case cross-entropy at this progress of training."""
        grown = ((progress - self.ramp_from) / (self.ramp_to - self.ramp_from)).clamp(0, 1)
        # In full precision: bounds would accumulate rounding errors.
        with torch.autocast(x.device.type, enabled=False):
            logits, margins = margin_bounds(network, x, y, grown**self.bend * self.eps)
        worst = (1 - self.natural) * grown
        return (1 - worst) * F.cross_entropy(logits, y) + worst * F.cross_entropy(-margins, y)

    def measurements(self, network: nn.Module, x: Tensor, y: Tensor) -> dict[str, Any]:
        """Return the certified accuracy, and the accuracy of the same images under PGD with the same radius."""
        exact = deepcopy(network).double()
        parts = [slice(start, start + BATCH) for start in range(0, len(x), BATCH)]
        safe = torch.cat([is_certified(exact, x[part].double() / 255, y[part], self.eps) for part in parts])
        resisted = survives_pgd(network, x, y, self.eps)
        if (safe & ~resisted).any():
            raise ModelFailed("An attack broke a certified image: the bounds are wrong; do not use this model.")
        return {
            "certified_accuracy": float(safe.double().mean()),
            "certified_eps": self.eps,
            "certified_images": len(x),
            "certified_by": "the better of interval and CROWN-IBP bounds, in float64",
            "attacked_accuracy_at_certified_eps": float(resisted.double().mean()),
            "attack_at_certified_eps": f"PGD-{STEPS}, step eps/4, one random start",
        }
