"""Traces the layers of a model: which are called, which gradients reach, and where a gradient fix can be attached."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from robustassay.doctor.gradient_fixes import Bypass
from robustassay.target import TargetModel
from robustassay.threat import Goal

MIN_EXPLAINED: Final = 0.5
"""Fraction of the variance of a layer's input that a linear map must explain to replace the part before it."""


@final
@dataclass(frozen=True)
class LayerCall:
    """One call of a layer that has weights."""

    layer: nn.Module
    number: int  # of this layer's calls, from 1
    given: Tensor
    output: Tensor


@torch.enable_grad()
def find_bypass(target: TargetModel, x: Tensor, goal: Goal) -> Bypass | None:
    """Build a bypass to the first layer that gradients reach from the logits.

    It starts at the nearest earlier layer from which gradients reach the image, or at the image itself.
    """
    image = x.detach().requires_grad_()
    calls, logits = _trace_calls(target, image)
    calls = _last_calls(calls)
    with_gradient = _with_gradient(calls, goal.margin(logits))
    if not with_gradient:
        return None
    first = with_gradient[0]
    for source in reversed(calls[: calls.index(first)]):
        if (
            _reached_from(image, source.output)
            and (bypass := _fit_bypass(first, source.layer, source.output)) is not None
        ):
            return bypass
    return _fit_bypass(first, None, x)


def _fit_bypass(call: LayerCall, source: nn.Module | None, start: Tensor) -> Bypass | None:
    """Fit a linear map of channels from `start` to the input of a layer; None where it does not fit."""
    end = call.given
    if start.dim() < 2 or start.shape[0] != end.shape[0] or start.shape[2:] != end.shape[2:]:
        return None
    given, wanted = (_by_channel(values) for values in (start, end))
    weight = torch.linalg.lstsq(given, wanted, driver="gelsd" if start.device.type == "cpu" else None).solution.T
    missed = (wanted - given @ weight.T).square().sum() / wanted.square().sum().clamp(min=1e-12)
    return Bypass(call.layer, call.number, source, weight.to(start.dtype)) if missed <= 1 - MIN_EXPLAINED else None


def _by_channel(values: Tensor) -> Tensor:
    """Return one row per pixel, minus the mean of each channel."""
    rows = values.detach().movedim(1, -1).flatten(0, -2).double()
    return rows - rows.mean(0)


def _last_calls(calls: list[LayerCall]) -> list[LayerCall]:
    """Return the last call of each layer: earlier ones belong to an optimisation inside the model."""
    last = {call.layer: call.number for call in calls}
    return [call for call in calls if call.number == last[call.layer]]


def _with_gradient(calls: list[LayerCall], margin: Tensor) -> list[LayerCall]:
    """Return the calls, in order, that gradients reach from the logits."""
    if not calls or not margin.requires_grad:
        return []
    given = [call.given for call in calls]
    gradients = torch.autograd.grad(margin.sum(), given, allow_unused=True, retain_graph=True)
    return [
        call
        for call, gradient in zip(calls, gradients, strict=True)
        if gradient is not None and bool((gradient != 0).any())
    ]


def _reached_from(image: Tensor, values: Tensor) -> bool:
    """Whether gradients reach the image from some values."""
    if not values.requires_grad:
        return False
    (gradient,) = torch.autograd.grad(values.sum(), image, allow_unused=True, retain_graph=True)
    return gradient is not None and bool((gradient != 0).any())


def _trace_calls(target: TargetModel, x: Tensor) -> tuple[list[LayerCall], Tensor]:
    """Call a model with gradients enabled in every layer; return the calls of layers with weights, and the logits."""
    calls: list[LayerCall] = []
    given: dict[nn.Module, Tensor] = {}

    def before(layer: nn.Module, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        torch.set_grad_enabled(True)
        first = values[0] if values else None
        if not isinstance(first, Tensor) or not first.is_floating_point():
            return None
        tracked = first if first.requires_grad else first.detach().requires_grad_()
        given[layer] = tracked
        return (tracked, *values[1:])

    def after(layer: nn.Module, values: Any, output: Any) -> None:
        if layer in given and isinstance(output, Tensor):
            number = 1 + sum(call.layer is layer for call in calls)
            calls.append(LayerCall(layer, number, given[layer], output))

    with _on_every_layer(target.module, before, after):
        logits = target.call_differentiable(x)
    return calls, logits


@contextmanager
def _on_every_layer(module: nn.Module, before: Any, after: Any) -> Iterator[None]:
    layers = [
        part
        for part in module.modules()
        if next(part.children(), None) is None and next(part.parameters(), None) is not None
    ]
    with ExitStack() as hooks:
        for layer in layers:
            hooks.callback(layer.register_forward_pre_hook(before).remove)
            hooks.callback(layer.register_forward_hook(after).remove)
        yield
