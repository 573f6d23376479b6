"""A model as the engine calls it: micro-batches of bounded size, the same bits for the same image."""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn

from robustassay.errors import ModelFailed
from robustassay.target.batching import BATCH, GPU_LANES, LANES, LARGE
from robustassay.target.precision import full_precision, image_dtype
from robustassay.target.surrogate import Surrogate
from robustassay.threat import Goal

Loss = Callable[..., Tensor]
"""From logits, the goals of their rows, and what else was passed a row, to one number a row to be raised."""

SeenAs = Callable[[Tensor, slice], Tensor]
"""From images and the rows they belong to (the last may be repeated as padding) to what a loss is shown of them."""


class SurrogateFailed(Exception):
    """The surrogate raised an error or left the range of its precision: the engine goes on with the model itself."""


CHECK_EVERY: Final = 50
"""Iterations after which a network that checks late looks whether anything was NaN."""

COTANGENT: Final = 16.0
"""The steepest logit of a row has this slope while a gradient is computed in half precision, and its own afterwards:
a loss that is nearly flat would otherwise vanish on the way back."""


class LocalModel:
    """A frozen classifier from [0, 1] images to logits.

    A defended model may say how an adaptive attacker differentiates it, in a method `differentiable` with the
    shape of `forward` (BPDA, Athalye et al. 2018, arXiv:1802.00420); gradients then go that way, and logits never.
    Of a model that draws random numbers, gradients are means over `draws` passes (EOT, arXiv:1707.07397). Where there
    is a `surrogate` (see `target.surrogate`), it is what is called; `exact` is the model without it. With `checks_late`
    a NaN is found by `check`: to look at each at once would make a GPU wait.
    """

    def __init__(
        self,
        module: nn.Module,
        classes: int,
        device: torch.device,
        batch_size: int | None = None,
        draws: int = 1,
        random: bool = False,
        surrogate: Surrogate | None = None,
        checks_late: bool = False,
    ) -> None:
        self.module = module.to(device)
        self.surrogate = surrogate
        self.classes = classes
        self.device = device
        self.batch_size = batch_size
        self.draws = draws
        self.random = random or draws > 1
        self.checks_late = checks_late
        self._found: dict[str, Tensor] = {}
        self._looks = 0
        self._lanes = GPU_LANES if device.type == "cuda" else LANES
        self._differentiable: Callable[[Tensor], Tensor] | None = getattr(module, "differentiable", None)

    @property
    def exact(self) -> "LocalModel":
        """The model as it is, for what must not depend on how it is searched."""
        return self if self.surrogate is None else self._but(surrogate=None)

    def searched_for(self, minimum: bool) -> "LocalModel":
        """Return what to search with: for the nearest point of a boundary, margins must be exact."""
        return self.exact if minimum and self.margin_error else self

    @property
    def margin_error(self) -> float:
        """How far margins may be off."""
        return 0.0 if self.surrogate is None else self.surrogate.margin_error

    @property
    def dtype(self) -> torch.dtype:
        """The floating type of the images the model is shown."""
        return image_dtype(self.module) if self.surrogate is None else self.surrogate.dtype

    def around(self, module: nn.Module) -> "LocalModel":
        """Return the same around another module, such as this one behind or before something."""
        return self._but(module=module, surrogate=None)

    def drawing_once(self) -> "LocalModel":
        """Return the same with gradients of single draws, where the model draws random numbers."""
        return self._but(draws=1)

    def on(self, device: torch.device) -> "LocalModel":
        """Return the same on another device."""
        return self._but(device=device, surrogate=None if self.surrogate is None else self.surrogate.to(device))

    def _but(self, **changes: Any) -> "LocalModel":
        names = ("module", "classes", "device", "batch_size", "draws", "random", "surrogate", "checks_late")
        return LocalModel(**{name: getattr(self, name) for name in names} | changes)

    def check_at_times(self) -> None:
        """Check now and then: often enough to stop a run that has gone wrong, too seldom to slow one down."""
        self._looks += 1
        if self._looks % CHECK_EVERY == 0:
            self.check()

    def forget(self) -> None:
        """Let go of what a run that ended early has left unchecked."""
        self._found = {}

    def check(self) -> None:
        """Raise if anything that the model has returned so far was NaN, or beyond the precision of its surrogate."""
        for problem, found in self._found.items():
            if found:
                self.forget()
                raise ModelFailed(problem) if not self.margin_error else SurrogateFailed(problem)

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of images `[n, ...]` in float32, without a graph."""
        logits = x.new_zeros(len(x), self.classes)

        @torch.no_grad()
        def ask(rows: slice) -> None:
            logits[rows] = self._call(_pad(x[rows], self._lanes))[: rows.stop - rows.start]

        self._in_batches(x, ask)
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

        def ask(rows: slice) -> None:
            n = rows.stop - rows.start
            images = _pad(x[rows], self._lanes).detach().requires_grad_()
            out = self._drawn(images if seen_as is None else seen_as(images, rows))[:, :n]
            known, aims = [values[rows] for values in per_row], goal.among(rows)

            def height(out: Tensor) -> Tensor:
                return torch.stack([loss(draw, aims, *known).sum() for draw in out]).mean()

            slope = self._slope_in_half(out, height, images) if self.margin_error else self._slope(height(out), images)
            gradient[rows], logits[rows] = slope[:n], out.detach().mean(0)

        self._in_batches(x, ask, self.draws)
        if seen_as is not None or self.is_adaptive:
            logits = self.mean_logits(x)
        return gradient, logits

    @torch.enable_grad()
    def jacobian(self, x: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of some logits of each row, `[n, k, *image]`, and all logits."""
        jacobian = x.new_zeros(len(x), classes.shape[1], *x.shape[1:])
        logits = x.new_zeros(len(x), self.classes)

        def ask(rows: slice) -> None:
            n = rows.stop - rows.start
            images = _pad(x[rows], self._lanes).detach().requires_grad_()
            out = self._drawn(images)[:, :n].mean(0)
            chosen = out.gather(1, classes[rows])
            for k in range(classes.shape[1]):
                jacobian[rows, k] = self._slope(chosen[:, k].sum(), images, again=True)[:n]
            logits[rows] = out.detach()

        self._in_batches(x, ask, self.draws)
        return jacobian, self.mean_logits(x) if self.is_adaptive else logits

    def _slope(self, height: Tensor, images: Tensor, again: bool = False) -> Tensor:
        """Differentiate; zeros where no way leads back to the images, which is found out and said before a run."""
        if not height.requires_grad:
            return torch.zeros_like(images)
        with full_precision(self.device):
            (gradient,) = torch.autograd.grad(height, images, retain_graph=again, allow_unused=True)
        return torch.zeros_like(images) if gradient is None else self._sane(gradient)

    def _slope_in_half(self, out: Tensor, height: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        """Differentiate the loss in its own precision and the surrogate in half, each row in its own range."""
        top = out.detach().requires_grad_()
        (slope,) = torch.autograd.grad(height(top), top)
        scale = slope.abs().amax(-1, keepdim=True) / COTANGENT
        (gradient,) = torch.autograd.grad(out, images, torch.where(scale > 0, slope / scale, 0))
        gradient[: out.shape[1]] *= scale.view(-1, *(1,) * (images.dim() - 1))
        return self._sane(gradient)

    def _drawn(self, images: Tensor) -> Tensor:
        """Return `[draws, n, classes]` logits that can be differentiated."""
        repeated = images.repeat(self.draws, *(1,) * (images.dim() - 1)) if self.draws > 1 else images
        return self._call(repeated, self._differentiable).view(self.draws, len(images), -1)

    def images_a_call(self, x: Tensor) -> int:
        """Return how many such images a call may hold: as many as were asked for, or as are quick."""
        large = self.device.type == "cpu" and x[:1].numel() > LARGE
        return self.batch_size or (LANES if large else BATCH.get(self.device.type, BATCH["cpu"]))

    def _in_batches(self, x: Tensor, ask: Callable[[slice], None], draws: int = 1) -> None:
        """Ask about all rows, as many at a time as a call may hold; where memory runs out, half as many from then."""
        start = 0
        while start < len(x):
            held = self.images_a_call(x)
            size = max(1 if draws == 1 else LANES, held // draws)
            rows = slice(start, min(start + size, len(x)))
            try:
                ask(rows)
            except torch.OutOfMemoryError as error:
                if held <= LANES:
                    raise ModelFailed(
                        f"There is no memory left for {LANES} images at a time: free some, or choose another device."
                    ) from error
                self.batch_size = max(LANES, held // 2)
                self._lanes = min(self._lanes, self.batch_size)
                continue
            start = rows.stop

    def _call(self, images: Tensor, forward: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        try:
            if self.surrogate and self.margin_error:
                logits = (
                    self.surrogate.differentiable(images) if torch.is_grad_enabled() else self.surrogate.look(images)
                )
            else:
                model = forward or (self.surrogate.module if self.surrogate else self.module)
                with full_precision(self.device):
                    logits = model(images.to(self.dtype)).float()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            if self.surrogate and not forward:
                raise SurrogateFailed from error
            raise ModelFailed(f"The model raised an error on a batch of {len(images)} images: {error}") from error
        self._notice(
            logits.isfinite().logical_not().any() if self.margin_error else logits.isnan().any(),
            "The model returned NaN in the middle of the run: check it for overflow or division by zero "
            "on images inside [0, 1].",
        )
        return logits

    def _sane(self, gradient: Tensor) -> Tensor:
        self._notice(
            gradient.isfinite().logical_not().any() if self.margin_error else gradient.isnan().any(),
            "The model's gradient is NaN on an image inside [0, 1]: look for a square root, a norm or a "
            "division at zero; an attack would stand still there and the model look robust.",
        )
        return gradient

    def _notice(self, bad: Tensor, problem: str) -> None:
        self._found[problem] = self._found[problem] | bad if problem in self._found else bad
        if not self.checks_late:
            self.check()


TargetModel = LocalModel


def _pad(x: Tensor, lanes: int) -> Tensor:
    """Repeat the last image until the batch is a whole number of lanes."""
    short = -len(x) % lanes
    return torch.cat((x, x[-1:].expand(short, *x.shape[1:]))) if short else x
