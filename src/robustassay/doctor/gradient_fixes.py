"""Repairs of a model's gradients for an attacker; the outputs that are verified never change."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from robustassay.defenses.defended import Pass, adaptive
from robustassay.doctor.checkpoints import called_again
from robustassay.doctor.function_rules import FunctionRules
from robustassay.doctor.function_trace import FunctionCall, FunctionTrace
from robustassay.doctor.score_view import ScoreView
from robustassay.errors import ModelFailed

NOISY_COPIES: Final = 8
"""Noisy copies of an image that its gradient is averaged over."""


class GradientFix(nn.Module, ABC):
    """One repair of a model's gradient."""

    @abstractmethod
    def differentiate(self, forward_pass: Pass, x: Tensor) -> Tensor:
        """Return logits with a usable gradient; `forward_pass` is the pass whose gradient is not usable."""


@final
class FixedGradients(nn.Module):
    """A model with its own outputs, differentiated through gradient fixes; the last fix is outermost."""

    def __init__(self, module: nn.Module, fixes: Sequence[GradientFix]) -> None:
        super().__init__()
        self.module = module
        self.fixes = nn.ModuleList(fixes)
        self.train(module.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the model itself."""
        logits: Tensor = self.module(x)
        return logits

    def differentiable(self, x: Tensor) -> Tensor:
        """Return the logits that the fixes differentiate."""
        forward_pass = adaptive(self.module)
        for fix in self.fixes:
            assert isinstance(fix, GradientFix)
            forward_pass = partial(fix.differentiate, forward_pass)
        return forward_pass(x)


def copies_per_pass(module: nn.Module) -> int:
    """Return how many copies of an image one differentiable pass of a module computes."""
    fixes = module.fixes if isinstance(module, FixedGradients) else ()
    return math.prod(fix.copies for fix in fixes if isinstance(fix, SmoothGradient))


@final
class Bypass(GradientFix):
    """Carries gradients past a part that stops or distorts them (BPDA, Athalye et al. 2018, arXiv:1802.00420).

    `layer` is a layer that gradients reach from the logits. In the forward pass its input stays as it is. In the
    backward pass its input counts as a linear map of channels, fitted before, of the output of `source`, or of the
    image where `source` is None. Where a layer is called several times, as in a model that optimises, `call` is the
    number of the call that is meant. Gradient tracking is turned on again where the model turned it off.
    """

    def __init__(self, layer: nn.Module, call: int, source: nn.Module | None, weight: Tensor) -> None:
        super().__init__()
        self.layer, self.call, self.source = layer, call, source
        self.weight = nn.Buffer(weight)

    def differentiate(self, forward_pass: Pass, x: Tensor) -> Tensor:
        """Return the same logits with the gradient of the linear map."""
        calls, start = 0, x

        def keep_output(layer: nn.Module, given: Any, output: Tensor) -> None:
            nonlocal start
            start = output

        def replace_input(layer: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            nonlocal calls
            calls += 1
            if calls != self.call:
                return None
            torch.set_grad_enabled(True)  # a no_grad block restores the earlier state when it ends
            linear = torch.einsum("oc,nc...->no...", self.weight, start - start.detach())
            return (given[0].detach() + linear, *given[1:])

        with ExitStack() as hooks:
            hooks.enter_context(self.layer.register_forward_pre_hook(replace_input))
            if self.source is not None:
                hooks.enter_context(self.source.register_forward_hook(keep_output))
            return forward_pass(x)


class InnerOutput(GradientFix, ABC):
    """Takes a tensor inside the model as logits, before it was squashed, scaled or detached."""

    @abstractmethod
    def record(self) -> AbstractContextManager[list[Tensor]]:
        """Collect the tensor, once per call of what returns it, while the block runs a pass."""

    def differentiate(self, forward_pass: Pass, x: Tensor) -> Tensor:
        """Return the tensor of the last call."""
        with self.record() as outputs:
            forward_pass(x)
        return recorded(outputs)[-1]


def recorded(outputs: list[Tensor]) -> list[Tensor]:
    """Return what a pass has recorded; the model fails if it never reached the place."""
    if not outputs:
        raise ModelFailed("The model computes these images in another way than those before, so that fixes fail.")
    return outputs


@final
class LayerOutput(InnerOutput):
    """The output of a layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    @contextmanager
    def record(self) -> Iterator[list[Tensor]]:
        """Collect the outputs of the layer."""
        outputs: list[Tensor] = []
        with self.layer.register_forward_hook(lambda layer, given, output: outputs.append(output)):
            yield outputs


@final
class FunctionOutput(InnerOutput):
    """Scores in the output of one call of a function, where no registered layer returns them."""

    def __init__(self, call: FunctionCall, view: ScoreView) -> None:
        super().__init__()
        self.call, self.view = call, view

    @contextmanager
    def record(self) -> Iterator[list[Tensor]]:
        """Collect the scores of this call."""
        outputs: list[Tensor] = []

        def keep(call: FunctionCall, output: Tensor) -> None:
            if call == self.call:
                outputs.append(self.view.of(output))

        with FunctionTrace(keep):
            yield outputs


@final
class JointOutputs(GradientFix):
    """Takes the sum of several inner outputs as logits, each scaled by its own factor.

    A layer that is called several times, as in a vote of copies of one network, counts with all its calls.
    """

    def __init__(self, outputs: Sequence[InnerOutput], factors: Sequence[float]) -> None:
        super().__init__()
        self.outputs, self.factors = nn.ModuleList(outputs), tuple(factors)

    def differentiate(self, forward_pass: Pass, x: Tensor) -> Tensor:
        """Return the sum over the outputs of the mean over all calls."""
        with ExitStack() as stack:
            kept = [stack.enter_context(output.record()) for output in self._inner_outputs()]
            forward_pass(x)
        means = [torch.stack(recorded(outputs)).mean(0) for outputs in kept]
        return torch.stack([factor * mean for factor, mean in zip(self.factors, means, strict=True)]).sum(0)

    def _inner_outputs(self) -> Iterator[InnerOutput]:
        for output in self.outputs:
            assert isinstance(output, InnerOutput)
            yield output


@final
class StraightThrough(GradientFix):
    """Differentiates the function that the model computes, in all layers at once (BPDA, arXiv:1802.00420).

    `repeated` are layers that one pass calls many times, as the denoiser of a purifying model. Only their inputs are
    kept, and they are called again in the backward pass, so that memory does not grow with the number of calls.
    """

    def __init__(self, soft: bool = False, unroll: bool = False, repeated: Sequence[nn.Module] = ()) -> None:
        super().__init__()
        self.soft, self.unroll, self.repeated = soft, unroll, nn.ModuleList(repeated)

    def differentiate(self, forward_pass: Pass, x: Tensor) -> Tensor:
        """Return the same logits with the gradient that the rules give."""

        def rules() -> FunctionRules:
            return FunctionRules(len(x), self.soft, self.unroll)

        with rules() as outer, called_again(self.repeated, rules):
            logits: Tensor = outer.with_gradient(forward_pass(x))
            return logits

    def rules_used(self, forward_pass: Pass, x: Tensor) -> Mapping[str, int]:
        """Return the rules that a pass applies, and how often."""
        rules = FunctionRules(len(x), self.soft, self.unroll)
        with torch.enable_grad(), rules:
            forward_pass(x.detach().requires_grad_())
        return rules.used


@contextmanager
def untouched_by_rules() -> Iterator[None]:
    """Call functions as they are, with gradients, inside a pass under straight-through rules."""
    with torch._C.DisableTorchFunction(), torch.enable_grad():
        yield


@final
class LayerMaps(GradientFix):
    """Replaces the gradient of several layers, each by that of a linear map of channels."""

    def __init__(self, layers: Sequence[nn.Module], weights: Sequence[Tensor]) -> None:
        super().__init__()
        self.layers, self.weights = nn.ModuleList(layers), nn.ParameterList(weights).requires_grad_(False)

    def differentiate(self, forward_pass: Pass, x: Tensor) -> Tensor:
        """Return the same logits with the gradients of the maps."""
        maps = dict(zip(self.layers, self.weights, strict=True))

        def replace_gradient(layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
            with untouched_by_rules():
                moved = given[0] - given[0].detach()
                return output.detach() + torch.einsum("oc,nc...->no...", maps[layer].to(moved), moved)

        with ExitStack() as hooks:
            for layer in self.layers:
                hooks.enter_context(layer.register_forward_hook(replace_gradient))
            return forward_pass(x)


@final
class RescaleLogits(GradientFix):
    """Scales logits to a size at which every loss has a gradient."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def differentiate(self, forward_pass: Pass, x: Tensor) -> Tensor:
        """Return scaled logits."""
        return self.factor * forward_pass(x)


@final
class LogOutputs(GradientFix):
    """Undoes a softmax, up to a constant, or the upper half of a sigmoid, where no layer gives logits."""

    def differentiate(self, forward_pass: Pass, x: Tensor) -> Tensor:
        """Return the logarithm of the outputs."""
        out = forward_pass(x)
        return out.clamp(min=torch.finfo(out.dtype).tiny).log()


@final
class SmoothGradient(GradientFix):
    """Averages over noisy copies of an image, which removes shattered components of the gradient.

    All images get the same noise, so that results do not depend on the batch.
    """

    def __init__(self, size: float, copies: int = NOISY_COPIES) -> None:
        super().__init__()
        self.size, self.copies = size, copies

    def differentiate(self, forward_pass: Pass, x: Tensor) -> Tensor:
        """Return the mean logits of the noisy copies."""
        source = torch.Generator().manual_seed(0)
        noise = torch.empty(self.copies, *x.shape[1:]).normal_(generator=source).to(x)
        return torch.stack([forward_pass(x + self.size * change) for change in noise]).mean(0)


@final
class ReverseGradient(GradientFix):
    """Reverses a gradient that points the wrong way."""

    def differentiate(self, forward_pass: Pass, x: Tensor) -> Tensor:
        """Return the same logits, with minus their gradient."""
        return forward_pass(2 * x.detach() - x)
