"""Looks inside a model: which layers are called, how far gradients come, and where a way around them can be built."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from robustassay.defenses.defended import adaptive
from robustassay.doctor.gradient_fixes import Bridge, Tap
from robustassay.threat import Goal

FITS: Final = 0.5
"""Part of what a layer is shown that a linear map must explain, to stand for what happens on the way there."""


@final
@dataclass(frozen=True)
class Call:
    """One call of a layer that has weights."""

    layer: nn.Module
    number: int  # of this layer's calls, from 1
    shown: Tensor
    gave: Tensor


@torch.enable_grad()
def find_bridge(module: nn.Module, x: Tensor, goal: Goal) -> Bridge | None:
    """Build a bridge to the first layer that gradients reach from the logits.

    It starts at the nearest layer before that they would go on from to the image; at the image where there is none.
    """
    image = x.detach().requires_grad_()
    calls, logits = _watch(module, image)
    calls = _last(calls)
    alive = _alive(calls, goal.margin(logits))
    if not alive:
        return None
    first = alive[0]
    for source in reversed(calls[: calls.index(first)]):
        if _reached_from(image, source.gave) and (bridge := _built(first, source.layer, source.gave)) is not None:
            return bridge
    return _built(first, None, x)


@torch.enable_grad()
def find_tap(module: nn.Module, x: Tensor) -> Tap | None:
    """Find the last layer whose output ranks the classes as the model's own does."""
    calls, logits = _watch(module, x)
    for call in reversed(calls):
        if call.gave.shape == logits.shape and torch.equal(call.gave.argmax(1), logits.argmax(1)):
            return Tap(call.layer)
    return None


def _built(pier: Call, source: nn.Module | None, start: Tensor) -> Bridge | None:
    """Fit the map of channels from one end to the other; None where their shapes or values do not allow it."""
    end = pier.shown
    if start.dim() < 2 or start.shape[0] != end.shape[0] or start.shape[2:] != end.shape[2:]:
        return None
    given, wanted = (_by_channel(values) for values in (start, end))
    weight = torch.linalg.lstsq(given, wanted, driver="gelsd" if start.device.type == "cpu" else None).solution.T
    missed = (wanted - given @ weight.T).square().sum() / wanted.square().sum().clamp(min=1e-12)
    return Bridge(pier.layer, pier.number, source, weight.to(start.dtype)) if missed <= 1 - FITS else None


def _by_channel(values: Tensor) -> Tensor:
    """Return one row a pixel, less the mean of each channel."""
    rows = values.detach().movedim(1, -1).flatten(0, -2).double()
    return rows - rows.mean(0)


def _last(calls: list[Call]) -> list[Call]:
    """Return the last call of each layer: those before belong to an optimisation of the model's own."""
    last = {call.layer: call.number for call in calls}
    return [call for call in calls if call.number == last[call.layer]]


def _alive(calls: list[Call], margin: Tensor) -> list[Call]:
    """Return the calls, in order, that gradients reach from the logits."""
    if not margin.requires_grad:
        return []
    shown = [call.shown for call in calls]
    slopes = torch.autograd.grad(margin.sum(), shown, allow_unused=True, retain_graph=True)
    return [call for call, slope in zip(calls, slopes, strict=True) if slope is not None and bool((slope != 0).any())]


def _reached_from(image: Tensor, values: Tensor) -> bool:
    """Say whether gradients lead from some values to the image."""
    if not values.requires_grad:
        return False
    (slope,) = torch.autograd.grad(values.sum(), image, allow_unused=True, retain_graph=True)
    return slope is not None and bool((slope != 0).any())


def _watch(module: nn.Module, x: Tensor) -> tuple[list[Call], Tensor]:
    """Call a model with every layer open to gradients; return the calls of layers with weights, and the logits."""
    calls: list[Call] = []
    shown: dict[nn.Module, Tensor] = {}

    def before(layer: nn.Module, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        torch.set_grad_enabled(True)
        first = values[0] if values else None
        if not isinstance(first, Tensor) or not first.is_floating_point():
            return None
        open_to = first if first.requires_grad else first.detach().requires_grad_()
        shown[layer] = open_to
        return (open_to, *values[1:])

    def after(layer: nn.Module, values: Any, gave: Any) -> None:
        if layer in shown and isinstance(gave, Tensor):
            number = 1 + sum(call.layer is layer for call in calls)
            calls.append(Call(layer, number, shown[layer], gave))

    with _on_every_layer(module, before, after):
        logits: Tensor = adaptive(module)(x)
    return calls, logits.float()


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
