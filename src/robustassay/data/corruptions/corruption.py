"""The base class of corruptions: a kind at a severity, from images and random streams to corrupted images.

Kinds and severities are those of Hendrycks & Dietterich 2019 (arXiv:1903.12261): one scale for small images, as in
CIFAR-10-C, and one for large images, as in ImageNet-C. Sums use numpy and scipy per image, so that the result does not
depend on the batch.
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
"""Images up to this side use the severities of CIFAR-10-C."""


@dataclass(frozen=True)
class Corruption(ABC):
    """A kind of corruption at a severity from 1 to 5."""

    small: ClassVar[tuple[Any, ...]]
    large: ClassVar[tuple[Any, ...]]

    severity: int = 3

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise BadRequest(f"The severity must be an integer from 1 to 5, not {self.severity!r}.")

    @final
    def __call__(self, x: Tensor, ids: Sequence[str], seed: int) -> Tensor:
        """Corrupt images; the random numbers of an image depend only on the seed, its id and the kind.

        All severities use the same random numbers, so that they differ only in severity. Input and output have 256
        levels, as in image files.
        """
        if x.dim() != 4 or x.shape[1] not in (1, 3):
            raise BadData(f"Only grey and RGB images can be corrupted, not images of shape {tuple(x.shape[1:])}.")
        levels = x.mul(255).round().div(255).numpy()
        streams = Streams.of(seed, [f"{sample}/{type(self).__name__}" for sample in ids])
        corrupted = self.corrupt(levels, self.setting(max(x.shape[-2:])), streams)
        return torch.from_numpy(np.clip(corrupted, 0, 1).astype(np.float32)).mul_(255).round_().div_(255)

    @final
    def setting(self, side: int) -> Any:
        """Return the parameters of this severity for images of this size."""
        return (self.small if side <= SMALL_SIDE else self.large)[self.severity - 1]

    @abstractmethod
    def corrupt(self, x: Images, setting: Any, rng: Streams) -> Images:
        """Return corrupted images, which may leave [0, 1]."""
