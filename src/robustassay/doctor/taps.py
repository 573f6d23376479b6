"""Finds the layers inside a model whose outputs can be attacked in place of its logits."""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from robustassay.doctor.gradient_fixes import LayerOutput
from robustassay.target import TargetModel

NOISE_SIZES: Final = (0.1, 0.25)
"""Sizes of the noise, per value, that changes the predictions of any network."""

MIN_AGREEMENT: Final = 0.9
"""Fraction of perturbed images on which a layer must rank the same class first to pass for the logits."""

SAME: Final = 1e-3
"""Difference between standardised outputs below which two layers are one objective."""

MAX_TAPS: Final = 3
"""Inner layers that are tried as logits, each alone."""

MAX_JOINT_TAPS: Final = 8
"""Inner layers that are tried as logits together: a vote may have many members."""


@final
@dataclass(frozen=True)
class Tap:
    """A layer with outputs of the logits' shape."""

    name: str
    layer: nn.Module
    agreement: float  # fraction of perturbed images on which it ranks the same class first as the model
    agrees_clean: bool
    same_as_logits: bool  # up to scale and shift
    calls: int  # in one pass


def rival_taps(target: TargetModel, x: Tensor) -> list[Tap]:
    """Find the inner layers that may be tried as logits: other objectives, best agreement with the model first."""
    rivals = [tap for tap in find_taps(target, x) if not tap.same_as_logits]
    return sorted(rivals, key=lambda tap: -tap.agreement)


def find_taps(target: TargetModel, x: Tensor) -> list[Tap]:
    """Find every layer with outputs of the logits' shape, in the order of their calls, each objective once."""
    shown = torch.cat((x, *perturb(x)))
    outputs, logits = _trace_outputs(target, shown)
    wanted, named = _standardise(logits), {module: name for name, module in target.module.named_modules()}
    found: list[Tap] = []
    seen: list[Tensor] = []
    for layer, (output, calls) in reversed(outputs.items()):
        if output.shape != logits.shape or not bool(output.isfinite().all()):
            continue
        values = _standardise(output)
        if any(bool((values - other).abs().max() < SAME) for other in seen):
            continue
        seen.append(values)
        agrees = output.argmax(1) == logits.argmax(1)
        same = bool((values - wanted).abs().max() < SAME)
        agreement = float(agrees[len(x) :].float().mean())
        found.append(Tap(named[layer], layer, agreement, bool(agrees[: len(x)].all()), same, calls))
    return found[::-1]


def find_logit_layer(target: TargetModel, x: Tensor) -> LayerOutput | None:
    """Find the last layer that ranks the classes as the model does, on the images and on perturbed ones."""
    for tap in reversed(find_taps(target, x)):
        if tap.agrees_clean and tap.agreement >= MIN_AGREEMENT:
            return LayerOutput(tap.layer)
    return None


def perturb(x: Tensor) -> list[Tensor]:
    """Return images with other predictions: noisy ones, and means of two images."""
    source = torch.Generator().manual_seed(0)
    noise = torch.empty(x.shape).normal_(generator=source).to(x)
    noisy = [(x + size * noise).clamp(0, 1) for size in NOISE_SIZES]
    return [*noisy, (x + x.roll(1, 0)) / 2]


def _standardise(logits: Tensor) -> Tensor:
    centred = (logits - logits.mean(1, keepdim=True)).float()
    return centred / centred.square().mean(1, keepdim=True).sqrt().clamp(min=1e-12)


@torch.no_grad()
def _trace_outputs(target: TargetModel, x: Tensor) -> tuple[dict[nn.Module, tuple[Tensor, int]], Tensor]:
    """Return the output of every layer in its last call and the number of calls, in this order, and the logits."""
    outputs: dict[nn.Module, tuple[Tensor, int]] = {}

    def after(layer: nn.Module, given: Any, output: Any) -> None:
        _, calls = outputs.pop(layer, (None, 0))
        if isinstance(output, Tensor):
            outputs[layer] = output.detach().clone(), calls + 1

    with ExitStack() as hooks:
        for part in target.module.modules():
            if part is not target.module:
                hooks.enter_context(part.register_forward_hook(after))
        logits = target.call_differentiable(x)
    return outputs, logits
