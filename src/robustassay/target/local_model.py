"""A module of this process as a target."""

from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor, nn

from robustassay.errors import ModelFailed
from robustassay.target.batching import Batching
from robustassay.target.calls import BatchedCalls
from robustassay.target.eot import Draws
from robustassay.target.forward import FullPrecision, call_module
from robustassay.target.nan_watch import NanWatch
from robustassay.target.surrogate import is_replayable
from robustassay.target.target_model import TargetModel


@final
class LocalModel(TargetModel):
    """A module in its own precision.

    Gradients go the way that the module declares in a method `differentiable` (BPDA), logits never. Gradients of a
    random model are means over `draws` passes (EOT). With `checks_late`, NaN is reported by `check` only. With `tf32`,
    a GPU computes products in TF32: for searches whose finds are verified elsewhere. With `nan_gradient_is_zero`, NaN
    in a gradient is no failure: attacks without gradients need none. With `replays`, calls are replayed on a
    GPU, those with gradients only of a model that is not random.
    """

    def __init__(
        self,
        module: nn.Module,
        classes: int,
        device: torch.device,
        batch_size: int | None = None,
        draws: int = 1,
        random: bool = False,
        checks_late: bool = False,
        tf32: bool = False,
        nan_gradient_is_zero: bool = False,
        replays: bool = False,
    ) -> None:
        module = module.to(device)
        watch = NanWatch(ModelFailed, checks_late)
        forward = FullPrecision(
            module, device, getattr(module, "differentiable", None), tf32, replays, not random and draws == 1
        )
        batching = Batching(device, batch_size, module=module)
        calls = BatchedCalls(
            forward, classes, device, batching, watch, Draws(draws), nan_gradient_is_zero=nan_gradient_is_zero
        )
        super().__init__(module, calls, classes, device, watch, draws, random)
        self.checks_late, self._tf32, self.nan_gradient_is_zero = checks_late, tf32, nan_gradient_is_zero
        self._replays = replays

    @classmethod
    def of(cls, module: nn.Module, x: Tensor, device: torch.device, batch_size: int | None = None) -> "LocalModel":
        """Count the classes by a call with the first image."""
        logits = call_module(module.to(device), x[:1].to(device))
        return cls(module, logits.shape[1], device, batch_size)

    @property
    def exact(self) -> "LocalModel":
        """This model."""
        return self

    def replayed(self) -> "LocalModel":
        """Return a copy whose calls are replayed, if the module can be."""
        return self._copy(replays=is_replayable(self.module, self.random))

    def in_tf32(self) -> "LocalModel":
        """Return a copy that computes products in TF32."""
        return self._copy(tf32=True)

    def with_nan_gradient_as_zero(self) -> "LocalModel":
        """Return a copy whose gradient is zero where that of the model is NaN."""
        return self._copy(nan_gradient_is_zero=True)

    def on(self, device: torch.device) -> "LocalModel":
        """Return a fresh copy on a device."""
        return self._copy(device=device)

    def with_draws(self, draws: int) -> "LocalModel":
        """Return a copy that averages over this many draws."""
        return self._copy(draws=draws)

    def with_module(self, module: nn.Module) -> "LocalModel":
        """Return a target around another module that gives the same answers."""
        return self._copy(module=module, replays=False)

    def with_head(
        self, head: Callable[[nn.Module], nn.Module], classes: int, tried: Tensor | None = None
    ) -> "LocalModel":
        """Return the same model behind another head."""
        return self._copy(module=head(self.module).eval(), classes=classes, replays=False)

    def with_batch_size(self, batch_size: int | None) -> "LocalModel":
        """Return a copy with another batch size."""
        return self._copy(batch_size=batch_size)

    def _copy(self, **changes: Any) -> "LocalModel":
        held = {
            "module": self.module,
            "classes": self.classes,
            "device": self.device,
            "batch_size": self.batch_size,
            "draws": self.draws,
            "random": self.random,
            "checks_late": self.checks_late,
            "tf32": self._tf32,
            "nan_gradient_is_zero": self.nan_gradient_is_zero,
            "replays": self._replays,
        }
        return LocalModel(**{**held, **changes})
