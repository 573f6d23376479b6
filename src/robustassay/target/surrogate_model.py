"""A model that is searched through a faster copy of itself, and verified as it is."""

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor, nn

from robustassay.errors import ModelFailed
from robustassay.target.batching import Batching
from robustassay.target.calls import BatchedCalls
from robustassay.target.eot import Draws
from robustassay.target.forward import Forward, FullPrecision, HalfPrecision
from robustassay.target.local_model import LocalModel
from robustassay.target.nan_watch import NanWatch
from robustassay.target.surrogate import Surrogate, is_aligned
from robustassay.target.target_model import TargetModel
from robustassay.threat import Untargeted
from robustassay.threat.losses import logit_margin


class SurrogateFailed(Exception):
    """The surrogate raised an error or left the range of its precision: the search goes on with the model."""


@final
class SurrogateModel(TargetModel):
    """A local model and its surrogate: logits and gradients are those of the surrogate, `exact` is the model."""

    def __init__(self, model: LocalModel, surrogate: Surrogate) -> None:
        half = surrogate.margin_error > 0
        watch = NanWatch(SurrogateFailed if half else ModelFailed, model.checks_late, finite=half)
        forward: Forward = (
            HalfPrecision(surrogate.module, surrogate.dtype) if half else FullPrecision(surrogate.module, model.device)
        )
        batching = Batching(model.device, model.batch_size, few_sizes=half, module=surrogate.module)
        draws = Draws(model.draws)
        calls = BatchedCalls(forward, model.classes, model.device, batching, watch, draws, SurrogateFailed)
        super().__init__(model.module, calls, model.classes, model.device, watch, model.draws, model.random)
        self._model, self._surrogate = model, surrogate
        self.margin_error, self.surrogate_name = surrogate.margin_error, surrogate.name

    @property
    def exact(self) -> LocalModel:
        """The model itself, in batches no larger than its surrogate's."""
        return self._model.with_batch_size(self.batch_size)

    def rows_for_exact_search(self, x: Tensor, labels: Tensor) -> Tensor:
        """Compare logits and gradients of surrogate and model, if they differed on some images before."""
        if not self._surrogate.differs_on_some:
            return super().rows_for_exact_search(x, labels)
        goal = Untargeted(labels)
        exact, exact_logits = self.exact.gradient(x, logit_margin, goal)
        try:
            gradient, logits = self.gradient(x, logit_margin, goal)
        except SurrogateFailed:
            return torch.ones_like(labels, dtype=torch.bool)
        self.discard_unchecked_outputs()  # rows beyond half precision are searched exactly
        near = (goal.margin(logits) - goal.margin(exact_logits)).abs() <= self.margin_error
        return ~(is_aligned(exact, gradient) & near)

    def on(self, device: torch.device) -> "SurrogateModel":
        """Return a fresh copy on a device."""
        return SurrogateModel(self.exact.on(device), self._surrogate.to(device))

    def with_draws(self, draws: int) -> "SurrogateModel":
        """Return a copy that averages over this many draws."""
        return SurrogateModel(self.exact.with_draws(draws), self._surrogate)

    def with_module(self, module: nn.Module) -> LocalModel:
        """Return a local model around another module: the surrogate is not one of it."""
        return self.exact.with_module(module)

    def with_head(
        self, head: Callable[[nn.Module], nn.Module], classes: int, tried: Tensor | None = None
    ) -> TargetModel:
        """Return model and surrogate behind another head; the model alone where the head does not fit the surrogate."""
        model = self.exact.with_head(head, classes)
        try:
            fast = Surrogate(head(self._surrogate.module).eval(), self._surrogate.name, self._surrogate.dtype)
            if not self.margin_error:
                return SurrogateModel(model, fast)
            return SurrogateModel(model, fast.with_margin_error(self._head_error(model, fast, tried)))
        except Exception:  # such as a head that reads a layer which the surrogate has not
            return model

    def _head_error(self, model: LocalModel, fast: Surrogate, tried: Tensor | None) -> float:
        assert tried is not None, "a surrogate in half precision needs images to measure its error on"
        found = HalfPrecision(fast.module, fast.dtype).call(tried)
        return float((model.logits(tried) - found.detach()).abs().amax())
