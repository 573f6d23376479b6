"""Images with a clear and a faint pattern per class; no attack at EPS breaks a network that sees the clear one."""

import torch
from torch import Tensor, nn

from robustassay.doctor.cross_checks import FIX_ATTACK
from robustassay.doctor.gradient_fixes import FixedGradients, GradientFix
from robustassay.doctor.probe_set import ProbeSet
from robustassay.target import LocalModel
from robustassay.threat import LInf
from tests.support.toys import CPU

EPS = 8 / 255
CLASSES = 4
VALUES = 3 * 8 * 8
CLEAR, FAINT = 0.1, 0.02
"""Sizes of the two patterns of each class: an attack at EPS can turn only the faint one into that of another class."""


def patterns(seed: int) -> Tensor:
    """Return a pattern of random signs per class."""
    drawn = torch.randn(VALUES, CLASSES, generator=torch.Generator().manual_seed(seed))
    return drawn.sign()


class ByPattern(nn.Module):
    """Scores of the clear patterns, which no attack at EPS changes enough."""

    def __init__(self) -> None:
        super().__init__()
        self.clear, self.faint = nn.Buffer(patterns(1)), nn.Buffer(patterns(2))
        self.eval()

    def scores(self, x: Tensor, patterns: Tensor) -> Tensor:
        """Return how far the image goes along each pattern."""
        scores: Tensor = (x - 0.5).flatten(1) @ patterns / VALUES
        return scores

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = 10 * self.scores(x, self.clear)
        return logits


def probes_of(model: nn.Module) -> ProbeSet:
    """Return twelve images, three of each class."""
    labels = torch.arange(CLASSES).repeat(3)
    noise = 0.002 * torch.randn(len(labels), VALUES, generator=torch.Generator().manual_seed(5))
    x = (0.5 + CLEAR * patterns(1).T[labels] + FAINT * patterns(2).T[labels] + noise).view(-1, 3, 8, 8)
    target = LocalModel(model, CLASSES, CPU)
    return ProbeSet.of(target, [str(row) for row in range(len(x))], x, labels, LInf(EPS))


def broken_through(probes: ProbeSet, fixes: list[GradientFix]) -> int:
    """Return how many images an attack through these fixes breaks, verified on the model."""
    fixed = probes.target.with_module(FixedGradients(probes.target.module, fixes))
    return int(ProbeSet.of(fixed, probes.ids, probes.x0, probes.goal.labels, probes.norm).broken_by(FIX_ATTACK).sum())
