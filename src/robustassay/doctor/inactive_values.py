"""Finds values inside a model that have no effect on its logits at the images, such as a gate that is closed there.

An attack that follows the logits never moves such values. Elsewhere in the ball they may decide: a second network takes
over, or a code becomes that of another class.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from robustassay.doctor.function_trace import FunctionCall
from robustassay.doctor.gradient_fixes import FixedGradients, GradientFix
from robustassay.doctor.probe_set import ProbeSet
from robustassay.doctor.taps import Traced, perturb

MOST_VALUES: Final = 256
"""A tensor with more values per image holds features of places, not a decision."""

EFFECT_IMAGES: Final = 8
"""Images that the effect is measured on; the perturbed copies make four times as many."""

MAX_EFFECT: Final = 0.05
"""Largest change of the margin between images that the slope of these values predicts, as a fraction of the change."""

MIN_VARIATION: Final = 1e-3
"""Standard deviation, as a fraction of the largest value, below which values are rounding errors around a constant."""


@final
@dataclass(frozen=True)
class InactiveValues:
    """The output of one call of a function, and its values on images and perturbed images, `[n, values]`."""

    call: FunctionCall
    values: Tensor

    @property
    def is_scalar(self) -> bool:
        """Whether each image has one value."""
        return self.values.shape[1] == 1


def find_inactive_values(probes: ProbeSet, rules: Sequence[GradientFix] = ()) -> list[InactiveValues]:
    """Find the small tensors without effect, the last call first: it is the closest to what they decide."""
    few = probes.among(torch.arange(len(probes), device=probes.x0.device) < EFFECT_IMAGES)
    return [found for found, effect in _effects(few, rules) if effect <= MAX_EFFECT][::-1]


def _effects(probes: ProbeSet, rules: Sequence[GradientFix]) -> Iterator[tuple[InactiveValues, float]]:
    """Yield every small tensor that depends on the image, with the median of its effect."""
    n, shown = len(probes), torch.cat((probes.x0, *perturb(probes.x0)))
    of_fewer = set(_trace(probes, shown[1:], rules)[0])  # weights may have as many rows as there are images
    outputs, logits = _trace(probes, shown, rules)
    calls = [call for call in outputs if call in of_fewer]
    margins = torch.stack([probes.goal.margin(part) for part in logits.view(-1, n, logits.shape[1])])
    if not calls or not margins.requires_grad:
        return
    slopes = torch.autograd.grad(margins[0].sum(), [outputs[call] for call in calls], allow_unused=True)
    changed = (margins - margins[0]).detach().abs().amax(0).double().clamp(min=1e-12)
    for call, slope in zip(calls, slopes, strict=True):
        values = outputs[call].detach().reshape(len(shown), -1).double()
        if not bool(values.isfinite().all()) or values.std(0).max() <= MIN_VARIATION * values.abs().max():
            continue
        moved = values.view(-1, n, values.shape[1]) - values[:n]
        caused = moved * (0 if slope is None else slope[:n].reshape(n, -1).double())
        yield InactiveValues(call, values), float((caused.sum(2).abs().amax(0) / changed).median())


@torch.enable_grad()
def _trace(probes: ProbeSet, x: Tensor, rules: Sequence[GradientFix]) -> tuple[dict[FunctionCall, Tensor], Tensor]:
    """Return the small tensors of a pass that have a gradient, and the logits."""
    found: dict[FunctionCall, Tensor] = {}

    def keep(call: FunctionCall, output: Tensor) -> None:
        small = output.dim() > 0 and len(output) == len(x) and 0 < output.numel() <= MOST_VALUES * len(x)
        if small and output.requires_grad:
            found[call] = output

    traced = FixedGradients(probes.target.module, [Traced(keep), *rules])
    image = x.detach().to(probes.target.dtype).requires_grad_()
    return found, probes.target.with_module(traced).call_differentiable(image)
