"""What every corruption is: a kind and a severity, from images and random streams to corrupted images.

Kinds and severities are those of Hendrycks & Dietterich 2019 (arXiv:1903.12261): one scale for small images, as in
CIFAR-10-C, and one for large ones, as in ImageNet-C. Arithmetic that sums is numpy's and scipy's, image by image, so
that an image comes out the same whatever its batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from robustassay.errors import BadData, BadRequest
from robustassay.rng import Streams

Images = npt.NDArray[np.floating[Any]]
"""`[n, channels, height, width]`, in [0, 1]."""

SEVERITIES: Final = (1, 2, 3, 4, 5)
SMALL_SIDE: Final = 64
"""Images up to this side are corrupted on the scale of CIFAR-10-C."""


@dataclass(frozen=True)
class Corruption(ABC):
    """A way in which pictures go wrong, at a severity from 1 to 5."""

    small: ClassVar[tuple[Any, ...]]
    large: ClassVar[tuple[Any, ...]]

    severity: int = 3

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise BadRequest(f"A severity is a whole number from 1 to 5, not {self.severity!r}.")

    @final
    def __call__(self, x: Tensor, ids: Sequence[str], seed: int) -> Tensor:
        """Corrupt images; each one's random numbers depend on the seed, its id and the kind, and on nothing else.

        Severities share their random numbers, so that they differ in severity alone. Images are taken and given in 256
        levels, as files hold them.
        """
        if x.dim() != 4 or x.shape[1] not in (1, 3):
            raise BadData(f"Only grey and RGB images can be corrupted, not images of shape {tuple(x.shape[1:])}.")
        levels = x.mul(255).round().div(255).numpy()
        streams = Streams.of(seed, [f"{sample}/{type(self).__name__}" for sample in ids])
        corrupted = self.corrupt(levels, self.setting(max(x.shape[-2:])), streams)
        return torch.from_numpy(np.clip(corrupted, 0, 1).astype(np.float32)).mul_(255).round_().div_(255)

    @final
    def setting(self, side: int) -> Any:
        """Return the numbers behind the severity, for images of this side."""
        return (self.small if side <= SMALL_SIDE else self.large)[self.severity - 1]

    @abstractmethod
    def corrupt(self, x: Images, setting: Any, rng: Streams) -> Images:
        """Return corrupted images, which may leave [0, 1]."""
