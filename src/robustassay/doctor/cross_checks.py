"""Attacks that know less and must not do better: a search without gradients, and points made on another model."""

from typing import Final

import torch
from torch import Tensor

from robustassay import models
from robustassay.attacks.score.square import Square
from robustassay.attacks.transfer.transfer import Transfer
from robustassay.doctor.indicator import Finding
from robustassay.doctor.probe_set import Patient

QUERIES: Final = 150
LEAD: Final = 0.08
"""Part of the images that a rival alone may break: two of thirty."""

SUBSTITUTES: Final = ("resnet20-pgd", "resnet20-natural")
"""Points made on a robust model fool natural ones, and those made on a natural one fool its kind."""


def black_box(patient: Patient, standing: Tensor) -> Finding:
    """Let Square try what the plain attack left standing."""
    gained = int(patient.among(standing).broken_by(Square(steps=QUERIES)).sum())
    return Finding(
        "black-box beats white-box",
        gained / len(patient),
        LEAD,
        f"Square breaks, in {QUERIES} queries, {gained} of the {int(standing.sum())} images that a plain attack left "
        "standing",
        ("bpda", "loss", "smoothing", "square", "transfer"),
    )


def transfer(patient: Patient, standing: Tensor) -> Finding:
    """Let points made on other models try them too."""
    if not fits_a_substitute(patient):
        return Finding("transfer beats white-box", 0.0, LEAD, "not asked: no model of the zoo knows such images")
    left = patient.among(standing)
    broken = torch.zeros(len(left), dtype=torch.bool, device=standing.device)
    for source in SUBSTITUTES:
        broken |= left.broken_by(Transfer(source))
    gained = int(broken.sum())
    return Finding(
        "transfer beats white-box",
        gained / len(patient),
        LEAD,
        f"points made on {' and '.join(SUBSTITUTES)} break {gained} of the {len(left)} images that a plain attack left "
        "standing",
        ("bpda", "smoothing", "transfer", "square"),
    )


def fits_a_substitute(patient: Patient) -> bool:
    """Say whether the substitutes know images and classes like these."""
    known = models.card(SUBSTITUTES[0])
    return tuple(patient.x0.shape[1:]) == (3, 32, 32) and patient.network.classes == known.classes
