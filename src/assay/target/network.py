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

SeenAs = Callable[[Tensor, slice], Tensor]
"""From images and the rows they belong to (the last may be repeated as padding) to what a loss is shown of them."""

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
    """A frozen classifier from [0, 1] images to logits.

    A defended model may say how an adaptive attacker differentiates it, in a method `differentiable` with the
    shape of `forward` (BPDA, Athalye et al. 2018, arXiv:1802.00420); gradients then go that way, and logits never.
    Of a model that draws random numbers, gradients are means over `draws` passes (EOT, arXiv:1707.07397). Where there
    is a `twin` (see `assay.target.twin`), it is what is called; `exact` is the model without it.
    """

    def __init__(
        self,
        module: nn.Module,
        classes: int,
        device: torch.device,
        batch_size: int,
        draws: int = 1,
        random: bool = False,
        twin: nn.Module | None = None,
    ) -> None:
        self.module = module.to(device)
        self.twin = twin
        self.classes = classes
        self.device = device
        self.batch_size = batch_size
        self.draws = draws
        self.random = random or draws > 1
        self.dtype = image_dtype(module)
        self._differentiable: Callable[[Tensor], Tensor] | None = getattr(module, "differentiable", None)

    @property
    def exact(self) -> "Network":
        """The model as it is, for what must not depend on how it is searched."""
        if self.twin is None:
            return self
        return Network(self.module, self.classes, self.device, self.batch_size, self.draws, self.random)

    def on(self, device: torch.device) -> "Network":
        """Return the same on another device."""
        twin = None if self.twin is None else self.twin.to(device)
        return Network(self.module, self.classes, device, self.batch_size, self.draws, self.random, twin)

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of images `[n, ...]` in float32, without a graph."""
        logits = x.new_zeros(len(x), self.classes)
        with torch.no_grad():
            for rows in self._batches(len(x)):
                logits[rows] = self._call(_pad(x[rows]))[: rows.stop - rows.start]
        return logits

    def drawn_logits(self, x: Tensor) -> Tensor:
        """Return the logits of images `[n, ...]` in each of the draws of a random model, `[n, draws, classes]`."""
        return self.logits(x.repeat_interleave(self.draws, 0)).view(len(x), self.draws, -1)

    def mean_logits(self, x: Tensor) -> Tensor:
        """Return the logits of images `[n, ...]`, averaged over the draws of a random model."""
        return self.logits(x) if self.draws == 1 else self.drawn_logits(x).mean(1)

    @property
    def is_adaptive(self) -> bool:
        """Whether the model declares how to differentiate it."""
        return self._differentiable is not None

    @property
    def passes(self) -> tuple[int, int]:
        """How many forward and backward passes the gradient at one point costs."""
        looks = 2 if self.is_adaptive else 1
        return looks * self.draws, self.draws

    @torch.enable_grad()
    def gradient(
        self, x: Tensor, loss: Loss, goal: Goal, *per_row: Tensor, seen_as: SeenAs | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the gradient of each row's loss with respect to its image, and the logits of that image.

        `seen_as` changes what the loss sees of each image, never the logits returned.
        """
        gradient, logits = torch.zeros_like(x), x.new_zeros(len(x), self.classes)
        for rows in self._batches(len(x), self.draws):
            n = rows.stop - rows.start
            images = _pad(x[rows]).detach().requires_grad_()
            out = self._drawn(images if seen_as is None else seen_as(images, rows))[:, :n]
            known, aims = [values[rows] for values in per_row], goal.among(rows)
            height = torch.stack([loss(draw, aims, *known).sum() for draw in out]).mean()
            gradient[rows], logits[rows] = self._slope(height, images)[:n], out.detach().mean(0)
        if seen_as is not None or self.is_adaptive:
            logits = self.mean_logits(x)
        return gradient, logits

    @torch.enable_grad()
    def jacobian(self, x: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of some logits of each row, `[n, k, *image]`, and all logits."""
        jacobian = x.new_zeros(len(x), classes.shape[1], *x.shape[1:])
        logits = x.new_zeros(len(x), self.classes)
        for rows in self._batches(len(x), self.draws):
            n = rows.stop - rows.start
            images = _pad(x[rows]).detach().requires_grad_()
            out = self._drawn(images)[:, :n].mean(0)
            chosen = out.gather(1, classes[rows])
            for k in range(classes.shape[1]):
                jacobian[rows, k] = self._slope(chosen[:, k].sum(), images, again=True)[:n]
            logits[rows] = out.detach()
        return jacobian, self.mean_logits(x) if self.is_adaptive else logits

    def _slope(self, height: Tensor, images: Tensor, again: bool = False) -> Tensor:
        """Differentiate; zeros where no way leads back to the images, which is found out and said before a run."""
        if not height.requires_grad:
            return torch.zeros_like(images)
        with full_precision(self.device):
            (gradient,) = torch.autograd.grad(height, images, retain_graph=again, allow_unused=True)
        return torch.zeros_like(images) if gradient is None else _sane(gradient)

    def _drawn(self, images: Tensor) -> Tensor:
        """Return `[draws, n, classes]` logits that can be differentiated."""
        repeated = images.repeat(self.draws, *(1,) * (images.dim() - 1)) if self.draws > 1 else images
        return self._call(repeated, self._differentiable).view(self.draws, len(images), -1)

    def _batches(self, n: int, draws: int = 1) -> Iterator[slice]:
        size = max(1 if draws == 1 else LANES, self.batch_size // draws)
        for start in range(0, n, size):
            yield slice(start, min(start + size, n))

    def _call(self, images: Tensor, forward: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        try:
            with full_precision(self.device):
                logits = (forward or self.twin or self.module)(images.to(self.dtype)).float()
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
