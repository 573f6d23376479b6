"""Gradients with respect to images, in full precision and in half precision."""

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from robustassay.target.precision import full_precision

LARGEST_COTANGENT: Final = 16.0
"""In half precision each row is scaled so that the largest derivative of its loss by a logit has this size, and scaled
back afterwards: the gradient of a nearly flat loss would otherwise underflow to zero."""

LossOf = Callable[[Tensor], Tensor]
"""From the logits of a batch, `[draws, n, classes]`, to one number: the sum of the rows' losses."""


def differentiate(
    value: Tensor, images: Tensor, device: torch.device, keep_graph: bool = False, tf32: bool = False
) -> Tensor | None:
    """Return the gradient of one number; None where no graph connects it to the images."""
    if not value.requires_grad:
        return None
    with full_precision(device, tf32):
        (gradient,) = torch.autograd.grad(value, images, retain_graph=keep_graph, allow_unused=True)
    return gradient


def weighted_sum(logits: Tensor, cotangent: Tensor) -> Tensor:
    """Return a number whose derivatives by the logits are the cotangent.

    `torch.autograd.grad` takes cotangents itself, but then imports sympy at its first call, which takes seconds.
    """
    return (logits * cotangent).sum()


def differentiate_in_half(logits: Tensor, loss_of: LossOf, images: Tensor) -> Tensor:
    """Return the gradient of the loss: the loss in float32, the model in half precision, each row scaled alone."""
    top = logits.detach().requires_grad_()
    (cotangent,) = torch.autograd.grad(loss_of(top), top)
    scale = cotangent.abs().amax(-1, keepdim=True) / LARGEST_COTANGENT
    (gradient,) = torch.autograd.grad(weighted_sum(logits, torch.where(scale > 0, cotangent / scale, 0)), images)
    gradient[: logits.shape[1]] *= scale.view(-1, *(1,) * (images.dim() - 1))
    return gradient
