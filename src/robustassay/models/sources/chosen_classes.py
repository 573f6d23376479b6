"""`classes:NUMBERS:MODEL`: a model restricted to some of its classes, in the order of the classes of the data.

A folder with ten classes of ImageNet numbers them 0 to 9; a model of 1,000 classes is compared with it after
`classes:0,217,482,...:MODEL`.
"""

import torch
from torch import Tensor, nn

from robustassay.errors import BadModel, BadRequest
from robustassay.models.sources import Loaded


def load(rest: str) -> Loaded:
    """Load the model after the second colon, and keep the logits of the classes before it."""
    from robustassay.models.loading import load_with_origin

    numbers, _, inner = rest.partition(":")
    chosen = [int(number) for number in numbers.split(",") if number.strip().isdigit()]
    if len(chosen) != len(numbers.split(",")):
        raise BadRequest(f"Classes are chosen by their numbers in the model, such as 0,217,482, not by {numbers!r}.")
    if len(chosen) < 2 or len({*chosen}) < len(chosen):
        raise BadRequest(f"Choose two or more different classes, such as 0,217,482, not {numbers}.")
    if not inner:
        raise BadRequest("A model must follow the chosen classes, as in classes:0,217,482:timm:resnet18.")
    module, origin = load_with_origin(inner)
    return Loaded(ChosenClasses(module, chosen), f"classes {numbers}: {origin or inner}")


class ChosenClasses(nn.Module):
    """Keeps the logits of some classes."""

    def __init__(self, network: nn.Module, classes: list[int]) -> None:
        super().__init__()
        self.network, self.largest = network, max(classes)
        self.register_buffer("chosen", torch.tensor(classes), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the chosen logits."""
        logits: Tensor = self.network(x)
        if logits.shape[1] <= self.largest:
            raise BadModel(f"The model has the classes 0 to {logits.shape[1] - 1}, and no class {self.largest}.")
        return logits[:, self.get_buffer("chosen")]

    def extra_repr(self) -> str:
        """Name the classes, which are part of the identity."""
        return ",".join(map(str, self.get_buffer("chosen").tolist()))
