"""Cuts images into calls of bounded size, padded so that an image gets the same bits in every batch."""

from collections.abc import Callable
from typing import Final, final

import torch
from torch import Tensor, nn

from robustassay.errors import ModelFailed
from robustassay.target.product_rows import rows_with_equal_bits

LANES: Final = 8
"""Every call holds a multiple of this number of images, or of more where the processor needs more: matrix kernels
change their order of summation for few rows and ragged batches, and one flipped bit can flip the sign of a gradient.
With padding, results do not depend on batch size."""

LEAST_POINTWISE: Final = 16
"""The least number of small images per call, on a CPU with one thread, for models with 1 x 1 convolutions: with fewer,
torch may compute these by another kernel, which gives other bits than calls of 16, or than two threads do. That kernel
is slower, too: gradients of photographs in calls of 16 take 0.6 to 0.9 of the time."""

GPU_LANES: Final = 32
"""The same on a GPU, which selects its kernels again, and slowly, for every new number of images."""

DEFAULT_BATCH: Final = {"cpu": 64, "cuda": 1024}
"""Images per call, by type of device."""

LARGE_IMAGE: Final = 3 * 64 * 64
"""Values of an image above which a call on a CPU holds `LANES` images only: larger batches leave the caches, and
gradients at 224 x 224 were measured to take up to twice as long."""


@final
class Batching:
    """How many images one call holds. The number is halved when memory runs out, and stays so."""

    def __init__(
        self,
        device: torch.device,
        batch_size: int | None = None,
        few_sizes: bool = False,
        module: nn.Module | None = None,
    ) -> None:
        self._device = device
        self._pointwise = device.type == "cpu" and _has_pointwise_convolutions(module)
        self._lanes = _lanes_of(device)
        self._few_sizes = few_sizes
        self.batch_size = batch_size
        self._few_drawn = 0  # images per call with draws, once memory for `LANES` of them has run out

    def images_per_call(self, x: Tensor) -> int:
        """Return how many images such as `x` one call may hold: the batch size, or a fast default."""
        large = self._device.type == "cpu" and _are_large(x)
        return self.batch_size or (LANES if large else DEFAULT_BATCH.get(self._device.type, DEFAULT_BATCH["cpu"]))

    def pad(self, x: Tensor) -> Tensor:
        """Repeat the last image until the batch is a whole number of lanes."""
        missing = -len(x) % (self._lanes * self._lanes_at_once(len(x)))
        several = not _are_large(x) or self.images_per_call(x) >= LEAST_POINTWISE
        if self._pointwise and torch.get_num_threads() == 1 and several:
            missing = max(missing, LEAST_POINTWISE - len(x))
        return torch.cat((x, x[-1:].expand(missing, *x.shape[1:]))) if missing else x

    def _lanes_at_once(self, images: int) -> int:
        """Return the step between sizes of calls, in lanes: with few sizes, at most a quarter of the call."""
        return 1 << max(0, (images // (8 * self._lanes)).bit_length()) if self._few_sizes else 1

    def run(self, x: Tensor, call: Callable[[slice], None], draws: int = 1) -> None:
        """Call with all rows of `x`, one batch after the other; where memory runs out, with half as many from then on.

        `draws` is how often each image of a call is repeated: the call then holds fewer rows, down to a single one.
        """
        start = 0
        while start < len(x):
            images = self.images_per_call(x)
            size = images if draws == 1 else self._few_drawn or max(LANES, images // draws)
            rows = slice(start, min(start + size, len(x)))
            try:
                call(rows)
            except torch.OutOfMemoryError as error:
                self._halve(images, size, draws, error)
                continue
            start = rows.stop

    def _halve(self, images: int, size: int, draws: int, error: torch.OutOfMemoryError) -> None:
        if images > LANES:
            self.batch_size = max(LANES, images // 2)
            self._lanes = min(self._lanes, self.batch_size)
        elif draws > 1 and size > 1:  # a model that draws has no equal bits that fewer lanes could change
            self._few_drawn = size // 2
            self._lanes = min(self._lanes, self._few_drawn)
        else:
            most = "one image" if size == 1 else f"{size} images"
            raise ModelFailed(
                f"There is no memory left for {most} at a time: free some, or choose another device."
            ) from error


def _lanes_of(device: torch.device) -> int:
    if device.type == "cuda":
        return GPU_LANES
    return rows_with_equal_bits(LANES, torch.get_num_threads()) if device.type == "cpu" else LANES


def _are_large(x: Tensor) -> bool:
    return x[:1].numel() > LARGE_IMAGE


def _has_pointwise_convolutions(module: nn.Module | None) -> bool:
    weights = () if module is None else module.parameters()
    return any(values.dim() == 4 and values.shape[2:] == (1, 1) for values in weights)
