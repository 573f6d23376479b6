"""Kernels of Triton for `fused`: one pass over the activations instead of two to four.

Activations are float16 in the memory format `channels_last`, so the channel of a value is its index modulo the number
of channels. Scale and shift are float32. This module is imported on a GPU only.
"""

from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK: Final = 2048
"""Values per program."""


@triton.jit  # type: ignore[untyped-decorator]
def _forward_kernel(  # type: ignore[no-untyped-def]
    x,
    added,
    scale,
    shift,
    total,
    out,
    size,
    channels,
    has_added: tl.constexpr,
    keeps_sum: tl.constexpr,
    block: tl.constexpr,
):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < size
    value = tl.load(x + at, inside).to(tl.float32)
    if has_added:
        value += tl.load(added + at, inside).to(tl.float32)
    if keeps_sum:
        tl.store(total + at, value.to(tl.float16), inside)
    channel = at % channels
    value = value * tl.load(scale + channel) + tl.load(shift + channel)
    tl.store(out + at, tl.maximum(value, 0.0).to(tl.float16), inside)


@triton.jit  # type: ignore[untyped-decorator]
def _backward_kernel(  # type: ignore[no-untyped-def]
    by_out, by_total, out, scale, by_x, size, channels, keeps_sum: tl.constexpr, block: tl.constexpr
):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < size
    value = tl.load(by_out + at, inside).to(tl.float32) * tl.load(scale + at % channels)
    value = tl.where(tl.load(out + at, inside) > 0, value, 0.0)
    if keeps_sum:
        value += tl.load(by_total + at, inside).to(tl.float32)
    tl.store(by_x + at, value.to(tl.float16), inside)


class ScaledReLU(torch.autograd.Function):
    """total = x + added; out = max(0, scale * total + shift)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, added: Tensor | None, scale: Tensor, shift: Tensor, keeps_sum: bool) -> Any:
        """Return out, or total and out."""
        x, added = _laid_out(x), None if added is None else _laid_out(added)
        out = torch.empty_like(x)
        total = torch.empty_like(x) if keeps_sum else out
        _forward_kernel[_programs(x)](
            x, x if added is None else added, scale, shift, total, out, x.numel(), x.shape[1],
            has_added=added is not None, keeps_sum=keeps_sum, block=BLOCK,
        )  # fmt: skip
        ctx.has_added, ctx.keeps_sum = added is not None, keeps_sum
        ctx.save_for_backward(out, scale)
        return (total, out) if keeps_sum else out

    @staticmethod
    def backward(ctx: Any, *by_outputs: Tensor) -> Any:
        """Return the derivatives by x and by what was added."""
        out, scale = ctx.saved_tensors
        by_x = torch.empty_like(out)
        _backward_kernel[_programs(out)](
            _laid_out(by_outputs[-1]), _laid_out(by_outputs[0]), out, scale, by_x, out.numel(), out.shape[1],
            keeps_sum=ctx.keeps_sum, block=BLOCK,
        )  # fmt: skip
        return by_x, by_x if ctx.has_added else None, None, None, None


def _laid_out(values: Tensor) -> Tensor:
    return values.contiguous(memory_format=torch.channels_last)


def _programs(values: Tensor) -> tuple[int]:
    return (-(-values.numel() // BLOCK),)
