"""Finds the tensors inside a model that can be attacked in place of its logits: outputs of layers and of functions."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from robustassay.defenses.defended import Pass
from robustassay.doctor.function_trace import FunctionCall, FunctionTrace, Report, is_plain
from robustassay.doctor.gradient_fixes import FixedGradients, FunctionOutput, GradientFix, InnerOutput, LayerOutput
from robustassay.doctor.score_view import ScoreView, score_views
from robustassay.target import TargetModel

NOISE_SIZES: Final = (0.1, 0.25)
"""Sizes of the noise, per value, that changes the predictions of any network."""

MIN_AGREEMENT: Final = 0.9
"""Fraction of perturbed images on which a layer must rank the same class first to pass for the logits."""

SAME: Final = 1e-3
"""Difference between standardised outputs below which two layers are one objective."""

LOWEST: Final = 1000.0
"""Gaps below this many typical margins count as this one: the class is as good as left out."""

MAX_TAPS: Final = 6
"""Inner outputs that are tried as logits, each alone."""

MAX_JOINT_TAPS: Final = 8
"""Inner layers that are tried as logits together: a vote may have many members."""


@final
@dataclass(frozen=True)
class Tap:
    """A layer with outputs of the logits' shape, or one call of a function with scores of all classes."""

    name: str
    output: InnerOutput
    agreement: float  # fraction of perturbed images on which it ranks the same class first as the model
    agrees_clean: bool
    same_as_logits: bool  # up to scale and shift
    calls: int  # in one pass

    @property
    def is_layer(self) -> bool:
        """Whether a registered layer returns it."""
        return isinstance(self.output, LayerOutput)


def taps_to_attack(target: TargetModel, x: Tensor) -> list[Tap]:
    """Find the inner outputs that may be tried as logits: other objectives, best agreement with the model first.

    Of those that agree equally, layers come before functions, and earlier calls before later ones.
    """
    others = [tap for tap in find_taps(target, x) if not tap.same_as_logits]
    return sorted(others, key=lambda tap: (-tap.agreement, not tap.is_layer))


def find_taps(target: TargetModel, x: Tensor) -> list[Tap]:
    """Find all scores of all classes, in the order of their calls, those of layers first, each objective once.

    A layer counts where its output is final; functions only where no layer has the same output.
    """
    shown = torch.cat((x, *perturb(x)))
    trace = _Trace.run(target, shown)
    wanted = _standardise(trace.logits)
    found: list[Tap] = []
    seen: list[Tensor] = []
    for name, inner, output, calls in trace.outputs():
        if output.shape != trace.logits.shape or not bool(output.isfinite().all()):
            continue
        values = _standardise(output)
        if any(bool((values - other).abs().max() < SAME) for other in seen):
            continue
        seen.append(values)
        agrees = output.argmax(1) == trace.logits.argmax(1)
        same = bool((values - wanted).abs().max() < SAME)
        agreement = float(agrees[len(x) :].float().mean())
        found.append(Tap(name, inner, agreement, bool(agrees[: len(x)].all()), same, calls))
    return found[::-1]


def find_logit_layer(target: TargetModel, x: Tensor) -> InnerOutput | None:
    """Find the last inner output that ranks the classes as the model does, on the images and on perturbed ones."""
    for tap in reversed(find_taps(target, x)):
        if tap.agrees_clean and tap.agreement >= MIN_AGREEMENT:
            return tap.output
    return None


def perturb(x: Tensor) -> list[Tensor]:
    """Return images with other predictions: noisy ones, and means of two images."""
    source = torch.Generator().manual_seed(0)
    noise = torch.empty(x.shape).normal_(generator=source).to(x)
    noisy = [(x + size * noise).clamp(0, 1) for size in NOISE_SIZES]
    return [*noisy, (x + x.roll(1, 0)) / 2]


def _standardise(logits: Tensor) -> Tensor:
    """Return the gaps to the highest logit in units of the typical margin, one scale for all images.

    A scale per image would hide what a scale that depends on the image does to attacks.
    """
    gaps = (logits - logits.amax(1, keepdim=True)).float()
    margins = -gaps.topk(2, dim=1).values[:, 1]
    return (gaps / margins.median().clamp(min=1e-12)).clamp(min=-LOWEST)


@final
class Traced(GradientFix):
    """The pass itself, with a report of every function; calls outside of the model do not count."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report

    def differentiate(self, forward_pass: Pass, x: Tensor) -> Tensor:
        """Return the logits of the pass."""
        with FunctionTrace(self.report):
            return forward_pass(x)


@final
@dataclass(frozen=True)
class _Trace:
    """One pass: the outputs of layers and of functions, in the order of their calls, and the logits."""

    layers: dict[nn.Module, tuple[Tensor, int]]  # the output of the last call, and the number of calls
    functions: dict[tuple[FunctionCall, ScoreView], Tensor]
    logits: Tensor
    names: dict[nn.Module, str]

    @classmethod
    @torch.no_grad()
    def run(cls, target: TargetModel, x: Tensor) -> "_Trace":
        layers: dict[nn.Module, tuple[Tensor, int]] = {}

        def after(layer: nn.Module, given: Any, output: Any) -> None:
            _, calls = layers.pop(layer, (None, 0))
            if is_plain(output) and output.shape == (len(x), target.classes):
                with torch._C.DisableTorchFunction():
                    layers[layer] = output.detach().clone(), calls + 1

        with ExitStack() as hooks:
            for part in target.module.modules():
                if part is not target.module:
                    hooks.enter_context(part.register_forward_hook(after))
            functions, logits = _function_scores(target, x)
        of_fewer, _ = _function_scores(target, x[1:])  # weights may have the shape of scores of one number of images
        functions = {place: scores for place, scores in functions.items() if place in of_fewer}
        return cls(layers, functions, logits, {module: name for name, module in target.module.named_modules()})

    def outputs(self) -> Iterator[tuple[str, InnerOutput, Tensor, int]]:
        """Yield all of them, the last call first, layers before functions."""
        for layer, (output, calls) in reversed(self.layers.items()):
            yield self.names[layer], LayerOutput(layer), output, calls
        for (call, view), output in reversed(self.functions.items()):
            yield f"{call}{view}", FunctionOutput(call, view), output, 1


def _function_scores(target: TargetModel, x: Tensor) -> tuple[dict[tuple[FunctionCall, ScoreView], Tensor], Tensor]:
    """Return the scores of all classes in the outputs of functions, and the logits."""
    found: dict[tuple[FunctionCall, ScoreView], Tensor] = {}

    def keep(call: FunctionCall, output: Tensor) -> None:
        for view in score_views(output.shape, len(x), target.classes):
            found[call, view] = view.of(output).detach().clone()

    traced = FixedGradients(target.module, [Traced(keep)])
    return found, target.with_module(traced).call_differentiable(x)
