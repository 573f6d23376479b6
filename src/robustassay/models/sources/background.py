"""`background:MODEL`: a model with 1,001 classes of ImageNet, the first of which is background, as in TensorFlow.

Its first logit is dropped, so that class 0 is the tench, as in all data here. Without this every label would be one
off, and the accuracy nearly zero.
"""

from typing import Final

from torch import Tensor, nn

from robustassay.errors import BadModel, BadRequest
from robustassay.models.architectures.imagenet.layers import WithoutBackground
from robustassay.models.sources import Loaded

OUTPUTS: Final = 1001


def load(rest: str) -> Loaded:
    """Load the model after the colon and drop its first logit."""
    from robustassay.models.loading import load_with_origin

    if not rest:
        raise BadRequest("background: needs a model after the colon, as in background:onnx:FILE.")
    module, origin = load_with_origin(rest)
    return Loaded(Checked(WithoutBackground(module)), f"without background: {origin or rest}")


class Checked(nn.Module):
    """Removes the first logit; refuses a model without background class."""

    def __init__(self, network: WithoutBackground) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the 1,000 classes."""
        logits: Tensor = self.network(x)
        if logits.shape[1] != OUTPUTS - 1:
            raise BadModel(
                f"The model has {logits.shape[1] + 1} outputs and not {OUTPUTS}: name it without background: in front."
            )
        return logits
