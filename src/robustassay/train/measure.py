"""The accuracies of a model card: a first measurement, not an evaluation of robustness."""

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
    """Return the accuracy on uint8 images."""
    right = 0
    with full_precision(), seeded("assay/train/clean", x.device):
        for x0, labels in batches(x, y):
            right += int(is_correct(network, x0, labels).sum())
    return right / len(x)


def robust_accuracy(network: nn.Module, x: Tensor, y: Tensor, seed: int = 0) -> float:
    """Return the accuracy on uint8 images under PGD."""
    return float(survives_pgd(network, x, y, EPS, seed).double().mean())


def survives_pgd(network: nn.Module, x: Tensor, y: Tensor, eps: float, seed: int = 0) -> Tensor:
    """Return which uint8 images are classified correctly before and after PGD with steps of eps / 4."""
    rng = torch.Generator(x.device).manual_seed(seed)
    kept = []
    # A random network must draw the same numbers in every measurement.
    with full_precision(), seeded("assay/train/robust", x.device):
        for x0, labels in batches(x, y):
            x_adv = linf_pgd(network, x0, labels, eps, eps / 4, STEPS, rng)
            kept.append(is_correct(network, x0, labels) & is_correct(network, x_adv, labels))
    return torch.cat(kept)


def batches(x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of float images in [0, 1], with their labels."""
    for start in range(0, len(x), BATCH):
        yield x[start : start + BATCH].float() / 255, y[start : start + BATCH]


def is_correct(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return, per image of a batch, whether its predicted label is correct."""
    with torch.no_grad():
        right: Tensor = network(x).argmax(1) == y
    return right


def full_precision() -> AbstractContextManager[None]:
    """Switch off TF32 convolutions on a GPU."""
    flags: AbstractContextManager[None] = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
    return flags
