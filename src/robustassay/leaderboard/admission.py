"""The admission rules of the leaderboard: RobustBench's three rules (Croce et al. 2021, section 3.1), and all flags.

A model that breaks a rule can be evaluated with `assay eval` and adaptive attacks. Its robust accuracy then depends on
the choice of the attack, so it cannot be compared with others.
"""

from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor, nn

from robustassay.data import Dataset
from robustassay.errors import AssayError
from robustassay.evaluation.inspection import inspect_model
from robustassay.evaluation.model_ref import ModelRef
from robustassay.target import LocalModel, TargetModel
from robustassay.threat import Untargeted
from robustassay.threat.losses import logit_margin

SAMPLES: Final = 32

MOSTLY: Final = 0.5
"""Gradients must be non-zero on more than this share of the images."""

_EOT: Final = 1
RULES: Final = ("randomised", "dynamic", "no-gradients")


@final
@dataclass(frozen=True)
class Check:
    """The result of one check: passed, failed, or None for unverified, with the reason."""

    rule: str
    passed: bool | None
    text: str


def admit(model_ref: ModelRef, dataset: Dataset, device: torch.device) -> list[Check]:
    """Check a model on the first images against the three rules; each flag is a failed check of its own."""
    if model_ref.is_remote:
        return [Check("model", None, "A service gives no gradients and no code, so the rules cannot be checked.")]
    try:
        inspected = inspect_model(model_ref.module, dataset, device, None, _EOT, despite_flags=True)
        gradients = _gradients(inspected.target, dataset)
    except AssayError as error:
        return [Check("can be judged", False, str(error))]
    found = {flag.name: flag.text for flag in inspected.flags}
    checks = [
        gradients,
        Check(
            "deterministic",
            "randomised" not in found,
            "Two passes over one image differ: the model draws random numbers."
            if "randomised" in found
            else "Two passes over the same images agree.",
        ),
        Check(
            "no optimisation loop",
            "dynamic" not in found,
            found.get("dynamic", "The forward pass computes no gradients of its own."),
        ),
    ]
    return checks + [Check(f"flag {name}", False, text) for name, text in found.items() if name not in RULES]


def _gradients(target: TargetModel, dataset: Dataset) -> Check:
    """Compute the model's own gradient, not the substitute that a defense may declare for adaptive attacks."""
    rows = slice(0, min(SAMPLES, len(dataset)))
    x, goal = dataset.images(rows).to(target.device), Untargeted(dataset.labels[rows].to(target.device))
    own = LocalModel(_Plain(target.module).eval(), target.classes, target.device, target.batch_size)
    gradient, _ = own.gradient(x, logit_margin, goal)
    moved = int((gradient.flatten(1).abs().amax(1) > 0).sum())
    text = f"The gradient is not zero on {moved} of {len(x)} images."
    if target.is_adaptive and moved <= MOSTLY * len(x):
        text += " It declares a substitute for it, which makes an adaptive attack possible but not a standard one."
    return Check("non-zero gradient", moved > MOSTLY * len(x), text)


class _Plain(nn.Module):
    """A model without what it says about its gradient."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.module(x)
        return logits
