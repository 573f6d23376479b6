"""Ways around what is wrong with a model's gradients: each changes what an attacker differentiates, never a verdict."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from robustassay.defenses.defended import Pass, adaptive

NEIGHBOURS: Final = 8
"""Changes of an image that its gradient is averaged over."""


class Treatment(nn.Module, ABC):
    """One way to differentiate a model other than as it stands."""

    @abstractmethod
    def differentiate(self, ask: Pass, x: Tensor) -> Tensor:
        """Return logits that have a gradient worth following, given the pass that has not."""


@final
class Treated(nn.Module):
    """A model that is judged as it is, and differentiated through treatments, the last one outermost."""

    def __init__(self, module: nn.Module, treatments: Sequence[Treatment]) -> None:
        super().__init__()
        self.module = module
        self.treatments = nn.ModuleList(treatments)
        self.train(module.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the model itself."""
        logits: Tensor = self.module(x)
        return logits

    def differentiable(self, x: Tensor) -> Tensor:
        """Return logits by the way that the treatments go."""
        ask = adaptive(self.module)
        for treatment in self.treatments:
            assert isinstance(treatment, Treatment)
            ask = partial(treatment.differentiate, ask)
        return ask(x)


@final
class Bridge(Treatment):
    """Carries gradients across a part that stops or distorts them (BPDA, Athalye et al. 2018, arXiv:1802.00420).

    `pier` is a layer that gradients reach from the logits. What it is shown is kept, and on the way back it counts as
    the linear map of channels, fitted beforehand, from what `source` gave out, or from the image where that is None.
    Of a layer that is called several times, as by a model that optimises, only the call numbered `call` is meant. A
    graph that the model has closed is opened again.
    """

    def __init__(self, pier: nn.Module, call: int, source: nn.Module | None, weight: Tensor) -> None:
        super().__init__()
        self.pier, self.call, self.source = pier, call, source
        self.weight = nn.Buffer(weight)

    def differentiate(self, ask: Pass, x: Tensor) -> Tensor:
        """Return the same logits, with the gradient of the bridge."""
        calls, start = 0, x

        def remember(layer: nn.Module, shown: Any, gave: Tensor) -> None:
            nonlocal start
            start = gave

        def cross(layer: nn.Module, shown: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            nonlocal calls
            calls += 1
            if calls != self.call:
                return None
            torch.set_grad_enabled(True)  # a no_grad block sets back on leaving what it found on entering
            way = torch.einsum("oc,nc...->no...", self.weight, start - start.detach())
            return (shown[0].detach() + way, *shown[1:])

        with ExitStack() as hooks:
            hooks.enter_context(self.pier.register_forward_pre_hook(cross))
            if self.source is not None:
                hooks.enter_context(self.source.register_forward_hook(remember))
            return ask(x)


@final
class Tap(Treatment):
    """Takes, for the logits, what the last layer gave out before it was squashed, scaled or detached."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def differentiate(self, ask: Pass, x: Tensor) -> Tensor:
        """Return the output of the layer, in its last call."""
        given: list[Tensor] = []
        with self.layer.register_forward_hook(lambda layer, shown, gave: given.append(gave)):
            ask(x)
        return given[-1]


@final
class Rescale(Treatment):
    """Brings logits to a size on which every loss has a slope."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def differentiate(self, ask: Pass, x: Tensor) -> Tensor:
        """Return scaled logits."""
        return self.factor * ask(x)


@final
class Unsquash(Treatment):
    """Undoes a softmax, up to a constant, or the upper half of a sigmoid, where no layer can be tapped."""

    def differentiate(self, ask: Pass, x: Tensor) -> Tensor:
        """Return the logarithm of the outputs."""
        out = ask(x)
        return out.clamp(min=torch.finfo(out.dtype).tiny).log()


@final
class Smooth(Treatment):
    """Averages over neighbours of an image: what shatters a gradient does not move the mean of many.

    The same changes are made to every image, so that results do not depend on its batch.
    """

    def __init__(self, size: float, neighbours: int = NEIGHBOURS) -> None:
        super().__init__()
        self.size, self.neighbours = size, neighbours

    def differentiate(self, ask: Pass, x: Tensor) -> Tensor:
        """Return the mean logits of the neighbours."""
        source = torch.Generator().manual_seed(0)
        noise = torch.empty(self.neighbours, *x.shape[1:]).normal_(generator=source).to(x)
        return torch.stack([ask(x + self.size * change) for change in noise]).mean(0)


@final
class Reverse(Treatment):
    """Turns a gradient round that points the wrong way."""

    def differentiate(self, ask: Pass, x: Tensor) -> Tensor:
        """Return the same logits, with minus their gradient."""
        return ask(2 * x.detach() - x)
