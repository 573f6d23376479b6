"""The numbers of a model card. A quick look at a trained network, not an evaluation of its robustness."""

from collections.abc import Iterator
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from robustassay.rng import seeded
from robustassay.train.pgd import linf_pgd

EPS, STEPS = 8 / 255, 20
ATTACK = f"PGD-{STEPS}, Linf 8/255, step 2/255, one random start"
BATCH = 500


def clean_accuracy(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of uint8 images that the network names rightly."""
    right = 0
    with full_precision(), seeded("assay/train/clean", x.device):
        for x0, labels in batches(x, y):
            right += int(is_correct(network, x0, labels).sum())
    return right / len(x)


def robust_accuracy(network: nn.Module, x: Tensor, y: Tensor, seed: int = 0) -> float:
    """Return the share of uint8 images that the network names rightly before and after PGD."""
    return float(survives_pgd(network, x, y, EPS, seed).double().mean())


def survives_pgd(network: nn.Module, x: Tensor, y: Tensor, eps: float, seed: int = 0) -> Tensor:
    """Tell which uint8 images the network names rightly before and after PGD, with steps of eps / 4."""
    rng = torch.Generator(x.device).manual_seed(seed)
    kept = []
    # A network may draw random numbers of its own; those must not differ from one measurement to the next.
    with full_precision(), seeded("assay/train/robust", x.device):
        for x0, labels in batches(x, y):
            x_adv = linf_pgd(network, x0, labels, eps, eps / 4, STEPS, rng)
            kept.append(is_correct(network, x0, labels) & is_correct(network, x_adv, labels))
    return torch.cat(kept)


def batches(x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut images into batches of floats in [0, 1], with their labels."""
    for start in range(0, len(x), BATCH):
        yield x[start : start + BATCH].float() / 255, y[start : start + BATCH]


def is_correct(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Tell for each image of a batch whether the network gives it its label."""
    with torch.no_grad():
        right: Tensor = network(x).argmax(1) == y
    return right


def full_precision() -> AbstractContextManager[None]:
    """Keep a GPU from rounding convolutions to fewer bits, which a CPU would not do."""
    flags: AbstractContextManager[None] = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
    return flags
