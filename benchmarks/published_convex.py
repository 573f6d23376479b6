"""Networks that Wong and Kolter's convex outer polytope trained for CIFAR-10, as rows of `assay study dong2020`.

    ASSAY_CONVEX=FOLDER assay study dong2020 --models Res-56 PGD-AT ... \\
        "Convex-8/255=benchmarks/published_convex.py:linf8" --out runs/dong2020

FOLDER holds the published weights as `cnnsmall_wongkolter_linf8.pt` and `cnnsmall_wongkolter_l2_36.pt`, small
convolutional networks trained for L-inf 8/255 and L2 36/255. The paper's own network was trained for 2/255 and is
larger: these stand beside the row Convex, not in its place.
"""

import os
from pathlib import Path

import torch
from torch import Tensor, nn

MEAN, DEVIATION = (0.485, 0.456, 0.406), 0.225


class Normalised(nn.Module):
    """A network behind the normalisation that it was trained with."""

    mean: Tensor

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.tensor(MEAN).view(1, 3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Map images in [0, 1] to logits."""
        logits: Tensor = self.network((x - self.mean) / DEVIATION)
        return logits


def linf8() -> nn.Module:
    """Return the network trained for L-inf 8/255."""
    return _load("cnnsmall_wongkolter_linf8.pt")


def l2() -> nn.Module:
    """Return the network trained for L2 36/255."""
    return _load("cnnsmall_wongkolter_l2_36.pt")


def _load(file: str) -> nn.Module:
    network = nn.Sequential(
        nn.Conv2d(3, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(2048, 100), nn.ReLU(), nn.Linear(100, 10),
    )  # fmt: skip
    weights = torch.load(Path(os.environ["ASSAY_CONVEX"]) / file, weights_only=True)
    network.load_state_dict(dict(zip(network.state_dict(), weights.values(), strict=True)))
    return Normalised(network).eval()
