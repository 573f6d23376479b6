"""Checks that attacks with less access do not beat the plain white-box attack: Square, and transfer."""

from typing import Final

import torch
from torch import Tensor

from robustassay import models
from robustassay.attacks.score.square import Square
from robustassay.attacks.transfer.transfer import Transfer
from robustassay.doctor.indicator import IndicatorResult
from robustassay.doctor.probe_set import ProbeSet

QUERIES: Final = 150
MAX_LEAD: Final = 0.08
"""Fraction of images that the attack with less access alone may break: two of thirty."""

SUBSTITUTES: Final = ("resnet20-pgd", "resnet20-natural")
"""Examples crafted on a robust model transfer to natural models, and those of a natural model to other natural ones."""


def black_box(probes: ProbeSet, unbroken: Tensor) -> IndicatorResult:
    """Run Square on the images that the plain attack did not break."""
    gained = int(probes.among(unbroken).broken_by(Square(steps=QUERIES)).sum())
    return IndicatorResult(
        "black-box beats white-box",
        gained / len(probes),
        MAX_LEAD,
        f"Square breaks, in {QUERIES} queries, {gained} of the {int(unbroken.sum())} images that a plain attack "
        "did not break",
        ("bpda", "loss", "smoothing", "square", "transfer"),
    )


def transfer(probes: ProbeSet, unbroken: Tensor) -> IndicatorResult:
    """Run transfer attacks on the images that the plain attack did not break."""
    if not substitutes_apply(probes):
        return IndicatorResult("transfer beats white-box", 0.0, MAX_LEAD, "not checked: no zoo model takes such images")
    left = probes.among(unbroken)
    broken = torch.zeros(len(left), dtype=torch.bool, device=unbroken.device)
    for source in SUBSTITUTES:
        broken |= left.broken_by(Transfer(source))
    gained = int(broken.sum())
    return IndicatorResult(
        "transfer beats white-box",
        gained / len(probes),
        MAX_LEAD,
        f"examples crafted on {' and '.join(SUBSTITUTES)} break {gained} of the {len(left)} images that a plain attack "
        "did not break",
        ("bpda", "smoothing", "transfer", "square"),
    )


def substitutes_apply(probes: ProbeSet) -> bool:
    """Whether the substitutes have the same image shape and number of classes."""
    known = models.card(SUBSTITUTES[0])
    return tuple(probes.x0.shape[1:]) == (3, 32, 32) and probes.target.classes == known.classes
