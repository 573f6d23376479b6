"""Forward passes that a GPU plays from a tape: launched one by one, small kernels take the CPU longer than the GPU."""

from collections import Counter
from typing import Any, Final, final

import torch
from torch import Tensor, nn

WORTH_IT: Final = 5
"""Calls with one number of images after which they are recorded; most numbers come once, while rows fall."""


@final
class ReplayedForward:
    """A model called without gradients, on images of float32; answers are float32 too."""

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        self._module, self._dtype = module, dtype
        self._calls: Counter[torch.Size] = Counter()
        self._tapes: dict[torch.Size, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
        self._pool: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return ReplayedForward, (self._module, self._dtype)

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Return the logits of the images."""
        self._calls[images.shape] += 1
        if images.is_cuda and self._calls[images.shape] == WORTH_IT:
            self._record(images)
        if images.shape not in self._tapes:
            return self._forward(images)
        tape, shown, logits = self._tapes[images.shape]
        shown.copy_(images)
        tape.replay()
        return logits.clone()

    def _forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self._module(images.to(self._dtype)).float()
        return logits

    def _record(self, images: Tensor) -> None:
        """Record one call; a model that looks at its own values cannot be recorded, and is called as before."""
        shown, tape = images.clone(), torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(tape, pool=self._pool):
                logits = self._forward(shown)
        except RuntimeError:
            return
        self._pool = self._pool or tape.pool()
        self._tapes[images.shape] = tape, shown, logits
