"""Pre-activation residual networks for measurements; they are no part of the package and come without weights.

`build` makes the network of an architecture's name; `load` reads one that `benchmarks/train_networks.py` wrote, and
finds the architecture in the name of the file.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.models.architectures.layers import GlobalMean, Normalise, conv
from robustassay.models.weights import read_weights


@dataclass(frozen=True)
class Shape:
    """Channels of the first convolution, channels of each stage, blocks per stage, and the activation."""

    stem: int
    stages: tuple[int, ...]
    blocks: int
    activation: Callable[[Tensor], Tensor] = F.relu


SHAPES: Final = {
    "resnet18": Shape(64, (64, 128, 256, 512), 2),  # He et al. 2016, arXiv:1603.05027
    "preresnet20": Shape(16, (16, 32, 64), 3),
    "preresnet14": Shape(16, (16, 32, 64), 2),
    "preresnet8": Shape(16, (16, 32, 64), 1),  # small enough for a comparison on one processor core
    "wrn28-10": Shape(16, (160, 320, 640), 4),  # Zagoruyko & Komodakis 2016, arXiv:1605.07146
    "wrn28-4": Shape(16, (64, 128, 256), 4),
    "wrn22-2": Shape(16, (32, 64, 128), 3),
    "wrn16-2": Shape(16, (32, 64, 128), 2),
    "wrn16-4": Shape(16, (64, 128, 256), 2),
    "wrn70-16-silu": Shape(16, (256, 512, 1024), 11, F.silu),  # Gowal et al. 2020, arXiv:2010.03593
    "tiny": Shape(4, (4, 8), 1),  # for tests
}


class Block(nn.Module):
    """Two convolutions after batch norm and relu; a convolution on the shortcut where the shape changes."""

    def __init__(self, channels_in: int, channels: int, stride: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.activation = activation
        self.norm1, self.norm2 = nn.BatchNorm2d(channels_in), nn.BatchNorm2d(channels)
        self.conv1, self.conv2 = conv(channels_in, channels, 3, stride), conv(channels, channels, 3)
        changes = stride > 1 or channels_in != channels
        self.shortcut = conv(channels_in, channels, 1, stride) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        """Return the shortcut plus the residual."""
        active = self.activation(self.norm1(x))
        h = self.conv2(self.activation(self.norm2(self.conv1(active))))
        sum_: Tensor = h + (x if self.shortcut is None else self.shortcut(active))
        return sum_


def build(architecture: str, classes: int = 10) -> nn.Module:
    """Return a network with fresh weights that maps images in [0, 1] to logits."""
    shape = SHAPES[architecture]
    layers: list[nn.Module] = [Normalise(), conv(3, shape.stem, 3)]
    channels_in = shape.stem
    for number, channels in enumerate(shape.stages):
        for block in range(shape.blocks):
            layers.append(Block(channels_in, channels, 2 if number and not block else 1, shape.activation))
            channels_in = channels
    last = nn.ReLU() if shape.activation is F.relu else nn.SiLU()
    layers += [nn.BatchNorm2d(channels_in), last, GlobalMean(), nn.Linear(channels_in, classes)]
    return nn.Sequential(*layers)


def architecture_of(name: str) -> str:
    """Find the architecture at the beginning of a network's name, such as wrn28-10 of wrn28-10-l2-s1."""
    found = [architecture for architecture in SHAPES if name == architecture or name.startswith(f"{architecture}-")]
    if not found:
        raise SystemExit(f"{name} begins with no architecture of {', '.join(SHAPES)}: rename it.")
    return found[0]


def load(path: Path) -> nn.Module:
    """Read a network whose file name begins with its architecture."""
    weights = read_weights(path)
    head = max(int(name.partition(".")[0]) for name in weights)
    network = build(architecture_of(path.stem), classes=len(weights[f"{head}.bias"]))
    network.load_state_dict({name: tensor.to(network.state_dict()[name].dtype) for name, tensor in weights.items()})
    return network.eval()
