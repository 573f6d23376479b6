"""Passes as CUDA graphs: a CPU launches small kernels more slowly than a GPU runs them."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from robustassay.target.differentiation import weighted_sum

CALLS_BEFORE_RECORDING: Final = 3
"""Calls of one shape before a graph is recorded: most shapes come once, while rows finish."""

LAUNCH_BOUND: Final = 0.6
"""A call with gradients is recorded if launching it takes at least this part of its time: graphs of large models cost
memory only."""

FEW_VALUES: Final = 1 << 23
"""A call without gradients is recorded if its images hold at most so many values: it keeps no activations."""


FREE_PART: Final = 1 / 8
"""A call is recorded while this part of the memory that the process may take is free."""

LIMITS_ARE_KNOWN: Final = hasattr(torch.cuda, "get_per_process_memory_fraction")
"""Older releases of torch set the part that a process may take, and do not tell it."""


@final
class ReplayedModule:
    """A model in one precision whose passes are replayed. Images and logits are float32.

    A backward pass belongs to the last forward pass of its shape.
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        self._module, self._dtype = module, dtype
        self._calls: Counter[tuple[Any, ...]] = Counter()
        self._recordings: dict[tuple[Any, ...], _Recording] = {}
        self._pool: Any = None
        self._stream: torch.cuda.Stream | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return ReplayedModule, (self._module, self._dtype)

    def __call__(self, images: Tensor) -> Tensor:
        """Return the logits of the images, with a graph where gradients are enabled."""
        shape = (*images.shape, torch.is_grad_enabled())
        if images.is_cuda and shape not in self._recordings:
            self._calls[shape] += 1
            if self._calls[shape] == CALLS_BEFORE_RECORDING and _has_room(images.device) and self._is_worth_it(images):
                self._record(shape, images)
        if shape not in self._recordings:
            return self.call_directly(images)
        recording = self._recordings[shape]
        if not torch.is_grad_enabled():
            return recording.forward(images)
        logits: Tensor = _Replay.apply(images, recording)  # type: ignore[no-untyped-call]
        return logits

    def call_directly(self, images: Tensor) -> Tensor:
        """Return the logits of the images without a recording."""
        logits: Tensor = self._module(images.to(self._dtype)).float()
        return logits

    def _is_worth_it(self, images: Tensor) -> bool:
        if not torch.is_grad_enabled():
            return images.numel() <= FEW_VALUES
        torch.cuda.synchronize(images.device)
        started = time.perf_counter()
        self.call_directly(images.detach())
        launched = time.perf_counter()
        torch.cuda.synchronize(images.device)
        return launched - started >= LAUNCH_BOUND * (time.perf_counter() - started)

    def _record(self, shape: tuple[Any, ...], images: Tensor) -> None:
        """Record one call; a model whose control flow depends on values cannot be recorded and is called directly."""
        try:
            self._stream = self._stream or torch.cuda.Stream(images.device)  # type: ignore[no-untyped-call]
            recording = _Recording(self, images, self._stream, self._pool)
        except RuntimeError:
            return
        self._pool = self._pool or recording.pool
        self._recordings[shape] = recording


def _has_room(device: torch.device) -> bool:
    """Say whether enough memory is free on the device, and of the part of it that this process may take.

    A recording keeps what it allocated, so without a limit recordings would leave no room for other calls.
    """
    free, total = torch.cuda.mem_get_info(device)
    part = torch.cuda.get_per_process_memory_fraction(device) if LIMITS_ARE_KNOWN else 1.0
    left = min(free / total, part - torch.cuda.memory_reserved(device) / total)
    return left > FREE_PART * part


@contextmanager
def _recorded(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, pool: Any) -> Iterator[None]:
    """Record what is done inside; `torch.cuda.graph` would first import a compiler and collect garbage."""
    torch.cuda.synchronize(stream.device)
    with torch.cuda.stream(stream):
        graph.capture_begin(**({} if pool is None else {"pool": pool}))
        try:
            yield
        finally:
            graph.capture_end()


@final
class _Recording:
    """The graphs of one shape, and the tensors that they read and write."""

    def __init__(self, model: ReplayedModule, images: Tensor, stream: torch.cuda.Stream, pool: Any) -> None:
        self.turn = 0
        self._given = images.detach().clone().requires_grad_(torch.is_grad_enabled())
        self._forward, self._backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with _recorded(self._forward, stream, pool):
            self._logits = model.call_directly(self._given)
        self.pool = pool or self._forward.pool()
        if self._logits.requires_grad:
            self._cotangent = torch.zeros_like(self._logits)
            with _recorded(self._backward, stream, self.pool):  # the graph is kept: a Jacobian replays it again
                value = weighted_sum(self._logits, self._cotangent)
                (self._gradient,) = torch.autograd.grad(value, self._given, retain_graph=True)

    def forward(self, images: Tensor) -> Tensor:
        """Replay the forward pass."""
        with torch.no_grad():
            self._given.copy_(images)
        self._forward.replay()
        self.turn += 1
        return self._logits.detach().clone()

    def backward(self, cotangent: Tensor) -> Tensor:
        """Replay the backward pass."""
        self._cotangent.copy_(cotangent)
        self._backward.replay()
        return self._gradient.clone()


class _Replay(torch.autograd.Function):
    """A recording as one differentiable step."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, recording: _Recording) -> Tensor:
        logits = recording.forward(images)
        ctx.recording, ctx.turn = recording, recording.turn
        return logits

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        if ctx.turn != ctx.recording.turn:
            raise RuntimeError("the activations of this pass are lost: another one of its shape came in between")
        return ctx.recording.backward(cotangent), None
