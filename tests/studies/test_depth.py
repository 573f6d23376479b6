"""The depth of a network is counted in the same way for every architecture."""

import pytest
import torch
from torch import Tensor, nn

from robustassay.models.architectures import architecture
from robustassay.studies.measures.depth import depth


@pytest.mark.parametrize(
    ("spec", "layers"),
    [("resnet", 20), ("densenet", 40), ("alexnet", 8), ("mobilenet:width=0.25", 28), ("vgg:depth=16", 14)],
)
def test_known_depths(spec, layers):
    """Those of the names; of VGG two fewer, as one dense layer stands for three."""
    assert depth(architecture.create(spec).build(10).eval(), torch.rand(1, 3, 32, 32)) == layers


class Gated(nn.Module):
    """A convolution, a gate with two dense layers, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)
        self.gate = nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 4), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv(x)
        logits: Tensor = self.head((h * self.gate(h.mean((2, 3)))[:, :, None, None]).mean((2, 3)))
        return logits


class Cut(nn.Module):
    """Logits that do not depend on the image by any graph."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 5)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x.detach().mean((2, 3)))
        return logits


def test_a_gate_is_no_layer_and_no_graph_is_no_depth():
    assert depth(Gated(), torch.rand(1, 3, 8, 8)) == 2
    assert depth(Cut(), torch.rand(1, 3, 8, 8)) is None
