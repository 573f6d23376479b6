"""A model as the engine calls it: micro-batches of bounded size, the same bits for the same image."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor, nn

from assay.errors import ModelFailed
from assay.threat import Goal

Loss = Callable[..., Tensor]
"""From logits, the goals of their rows, and what else was passed a row, to one number a row to be raised."""

LANES: Final = 8
"""Every call holds a multiple of so many images: matrix kernels change their order of summation for ragged
batches, and one flipped bit can flip the sign of a gradient. Padded, results do not depend on batch size."""


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Compute in the model's own precision whatever the caller has set: no autocast, no TF32, no kernels by chance."""
    matmul = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    exact = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
    try:
        with torch.autocast(device.type, enabled=False), exact:
            yield
    finally:
        torch.set_float32_matmul_precision(matmul)


def image_dtype(module: nn.Module) -> torch.dtype:
    """Return the floating type of a model's parameters, which its images must have."""
    kinds = (parameter.dtype for parameter in module.parameters() if parameter.is_floating_point())
    return next(kinds, torch.float32)


class Network:
    """A frozen classifier from [0, 1] images to logits."""

    def __init__(self, module: nn.Module, classes: int, device: torch.device, batch_size: int) -> None:
        self.module = module.to(device)
        self.classes = classes
        self.device = device
        self.batch_size = batch_size
        self.dtype = image_dtype(module)

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of images `[n, ...]` in float32, without a graph."""
        logits = x.new_zeros(len(x), self.classes)
        with torch.no_grad():
            for rows in self._batches(len(x)):
                logits[rows] = self._call(_pad(x[rows]))[: rows.stop - rows.start]
        return logits

    @torch.enable_grad()
    def gradient(self, x: Tensor, loss: Loss, goal: Goal, *per_row: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient of each row's loss with respect to its image, and the logits seen on the way."""
        gradient, logits = torch.zeros_like(x), x.new_zeros(len(x), self.classes)
        for rows in self._batches(len(x)):
            n = rows.stop - rows.start
            images = _pad(x[rows]).detach().requires_grad_()
            out = self._call(images)[:n]
            height = loss(out, goal.among(rows), *(values[rows] for values in per_row)).sum()
            with full_precision(self.device):
                (padded,) = torch.autograd.grad(height, images)
            gradient[rows], logits[rows] = _sane(padded)[:n], out.detach()
        return gradient, logits

    @torch.enable_grad()
    def jacobian(self, x: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of some logits of each row, `[n, k, *image]`, and all logits."""
        jacobian = x.new_zeros(len(x), classes.shape[1], *x.shape[1:])
        logits = x.new_zeros(len(x), self.classes)
        for rows in self._batches(len(x)):
            n = rows.stop - rows.start
            images = _pad(x[rows]).detach().requires_grad_()
            out = self._call(images)[:n]
            chosen = out.gather(1, classes[rows])
            for k in range(classes.shape[1]):
                with full_precision(self.device):
                    (padded,) = torch.autograd.grad(chosen[:, k].sum(), images, retain_graph=True)
                jacobian[rows, k] = _sane(padded)[:n]
            logits[rows] = out.detach()
        return jacobian, logits

    def _batches(self, n: int) -> Iterator[slice]:
        for start in range(0, n, self.batch_size):
            yield slice(start, min(start + self.batch_size, n))

    def _call(self, images: Tensor) -> Tensor:
        try:
            with full_precision(self.device):
                logits: Tensor = self.module(images.to(self.dtype)).float()
        except Exception as error:
            raise ModelFailed(f"The model raised an error on a batch of {len(images)} images: {error}") from error
        if logits.isnan().any():
            raise ModelFailed(
                "The model returned NaN in the middle of the run: check it for overflow or division by zero "
                "on images inside [0, 1]."
            )
        return logits


def _sane(gradient: Tensor) -> Tensor:
    if gradient.isnan().any():
        raise ModelFailed(
            "The model's gradient is NaN on an image inside [0, 1]: look for a square root, a norm or a "
            "division at zero; an attack would stand still there and the model look robust."
        )
    return gradient


def _pad(x: Tensor) -> Tensor:
    """Repeat the last image until the batch is a whole number of lanes."""
    short = -len(x) % LANES
    return torch.cat((x, x[-1:].expand(short, *x.shape[1:]))) if short else x
