"""Finds the layers whose gradient does not predict how they change, and fits a linear map to each."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from robustassay.doctor.function_rules import FunctionRules
from robustassay.doctor.gradient_fixes import LayerMaps, untouched_by_rules
from robustassay.target import TargetModel

DIRECTIONS: Final = 8
MAX_ERROR: Final = 0.5
"""Relative error of a layer's predicted change above which its gradient is wrong."""

MIN_EXPLAINED: Final = 0.3
"""Fraction of the variance of a layer's change that a linear map must explain to replace its gradient."""


@final
@dataclass(frozen=True)
class LayerChange:
    """The last call of a layer at two nearby images; inputs are leaves of its own graph."""

    layer: nn.Module
    given: tuple[Tensor, Tensor]
    output: tuple[Tensor, Tensor]

    def error(self) -> float:
        """Return the relative error of the change that the layer's gradient predicts, in random directions."""
        change = self.output[1].detach() - self.output[0].detach()
        moved = self.given[1].detach() - self.given[0].detach()
        source, seen, predicted = torch.Generator().manual_seed(0), [], []
        for _ in range(DIRECTIONS):
            direction = torch.empty(change.shape).normal_(generator=source).to(change)
            slopes = [_slope(out, given, direction) for out, given in zip(self.output, self.given, strict=True)]
            seen.append((direction * change).sum())
            predicted.append((sum(slopes) / 2 * moved).sum())  # the mean of both ends: curvature is no error
        size = torch.stack(seen).norm()
        return float((torch.stack(predicted) - torch.stack(seen)).norm() / size) if size > 0 else 0.0

    def fit(self) -> Tensor | None:
        """Fit the change of the output as a linear map of channels; None where that explains too little."""
        start, end = (values[1].detach() - values[0].detach() for values in (self.given, self.output))
        if start.dim() < 2 or start.shape[0] != end.shape[0] or start.shape[2:] != end.shape[2:]:
            return None
        rows, wanted = (values.movedim(1, -1).flatten(0, -2).double().cpu() for values in (start, end))
        weight = torch.linalg.lstsq(rows, wanted, driver="gelsd").solution.T
        missed = (wanted - rows @ weight.T).square().sum() / wanted.square().sum().clamp(min=1e-30)
        return weight.to(end) if missed <= 1 - MIN_EXPLAINED else None


def find_wrong_layers(target: TargetModel, x: Tensor, near: Tensor) -> LayerMaps | None:
    """Compare every layer's change between two nearby images with what its gradient predicts; fit those that differ."""
    before, after = (_trace(target, images) for images in (x, near))
    fitted: dict[nn.Module, Tensor] = {}
    for layer in before.keys() & after.keys():
        (given, output), (later, moved) = before[layer], after[layer]
        if output.shape != moved.shape:
            continue
        change = LayerChange(layer, (given, later), (output, moved))
        if change.error() > MAX_ERROR and (weight := change.fit()) is not None:
            fitted[layer] = weight
    ordered = [layer for layer in before if layer in fitted]
    return LayerMaps(ordered, [fitted[layer] for layer in ordered]) if ordered else None


def _slope(output: Tensor, given: Tensor, direction: Tensor) -> Tensor:
    if not output.requires_grad:
        return torch.zeros_like(given)
    (slope,) = torch.autograd.grad(output, given, direction, retain_graph=True, allow_unused=True)
    return torch.zeros_like(given) if slope is None else slope


def _trace(target: TargetModel, x: Tensor) -> dict[nn.Module, tuple[Tensor, Tensor]]:
    """Return the last input and output of every innermost layer, each input a leaf."""
    leaves: dict[nn.Module, Tensor] = {}
    calls: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def before(layer: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not given or not isinstance(given[0], Tensor) or not given[0].is_floating_point():
            return None
        with untouched_by_rules():
            leaves[layer] = given[0].detach().clone().requires_grad_()
            return (leaves[layer].clone(), *given[1:])

    def after(layer: nn.Module, given: Any, output: Any) -> None:
        if layer in leaves and isinstance(output, Tensor) and output.is_floating_point():
            calls[layer] = (leaves[layer], output)

    with torch.enable_grad(), _on_innermost(target.module, before, after), FunctionRules(len(x)):
        target.call_differentiable(x.detach().requires_grad_())
    return calls


@contextmanager
def _on_innermost(module: nn.Module, before: Any, after: Any) -> Iterator[None]:
    with ExitStack() as hooks:
        for part in module.modules():
            if part is not module and next(part.children(), None) is None:
                hooks.enter_context(part.register_forward_pre_hook(before))
                hooks.enter_context(part.register_forward_hook(after))
        yield
