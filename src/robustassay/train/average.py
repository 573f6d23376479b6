"""A moving average of a network's weights."""

import torch
from torch import Tensor, nn


class MovingAverage:
    """Averages all floating-point state of a network as one flat vector, so that an update is one kernel."""

    def __init__(self, network: nn.Module) -> None:
        self._tensors = [t for t in network.state_dict().values() if t.is_floating_point()]
        self.flat = self._flatten()

    def update(self, weight: Tensor) -> None:
        """Move the average towards the current state of the network by the fraction `weight`."""
        self.flat.lerp_(self._flatten(), weight)

    def write_to(self, network: nn.Module) -> None:
        """Put the averaged state into another network of the same shape."""
        targets = [t for t in network.state_dict().values() if t.is_floating_point()]
        pieces = torch.split(self.flat, [t.numel() for t in targets])
        for target, piece in zip(targets, pieces, strict=True):
            target.copy_(piece.view(target.shape))

    def _flatten(self) -> Tensor:
        return torch.cat([t.detach().flatten() for t in self._tensors])
