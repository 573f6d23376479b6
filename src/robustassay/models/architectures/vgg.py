"""VGG networks for 32 x 32 images (Simonyan and Zisserman 2015, arXiv:1409.1556), with batch norm."""

from dataclasses import dataclass

from torch import nn

from robustassay.errors import BadRequest
from robustassay.models.architectures.layers import GlobalMean, Normalise, conv_norm_relu
from robustassay.registry import register

# Convolutions in each of the five stages, by depth: configurations A, B, D and E of the paper.
STAGES = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
CHANNELS = (1, 2, 4, 8, 8)


@register("architecture", "vgg")
@dataclass(frozen=True)
class VGG:
    """Five stages of 3 x 3 convolutions with 1, 2, 4, 8 and 8 times `width` channels (64 in the paper).

    A global mean and one dense layer follow, in place of the paper's three.
    """

    depth: int = 11
    width: int = 16

    def __post_init__(self) -> None:
        if self.depth not in STAGES or self.width < 1:
            raise BadRequest(
                f"A VGG of depth {self.depth} and width {self.width} does not exist: "
                "the depth must be 11, 13, 16 or 19 and the width at least 1."
            )

    @property
    def title(self) -> str:
        """The name in tables: `VGG-16`."""
        return f"VGG-{self.depth}"

    def build(self, classes: int) -> nn.Module:
        """Return a network with fresh weights that maps images in [0, 1] to one logit per class."""
        layers: list[nn.Module] = [Normalise()]
        before = 3
        for number, (convolutions, factor) in enumerate(zip(STAGES[self.depth], CHANNELS, strict=True)):
            if number:
                layers.append(nn.MaxPool2d(2))
            for _ in range(convolutions):
                layers.extend(conv_norm_relu(before, factor * self.width, 3))
                before = factor * self.width
        return nn.Sequential(*layers, GlobalMean(), nn.Linear(before, classes))
