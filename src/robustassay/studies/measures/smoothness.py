"""Local Lipschitz estimates (Croce et al. 2021, appendix F; Yang et al. 2020).

The difference quotient of two points in the ball around an image is maximised by gradient steps of falling size. It is
a lower bound on the local Lipschitz constant, of the output or of any stage before it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, final

import pandas as pd
import torch
from torch import Tensor, nn

from robustassay.errors import BadRequest
from robustassay.rng import Streams
from robustassay.target import TargetModel
from robustassay.target.precision import full_precision
from robustassay.threat import L2, Ball, LInf, Norm

OUTPUT: Final = "output"
_SIZES: Final[dict[type[Norm], tuple[float, float]]] = {LInf: (torch.inf, 1), L2: (2, 2)}
"""The norms of input and output differences."""

Function = Callable[[Tensor], Tensor]


@final
@dataclass(frozen=True)
class LipschitzEstimate:
    """The settings of the estimate; the authors take 50 steps of a fifth of the radius, under Linf 8/255."""

    norm: Norm
    steps: int = 50
    rel_step: float = 0.2
    restarts: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if type(self.norm) not in _SIZES:
            raise BadRequest(
                f"Local Lipschitz estimates exist for Linf and L2, not for {self.norm.name}: choose one of these."
            )
        if self.steps < 1 or self.restarts < 1:
            raise BadRequest("A local Lipschitz estimate needs at least one step and one restart.")

    def estimate(self, function: Function, x: Tensor, ids: Sequence[str]) -> Tensor:
        """Return the largest difference quotient found near each image; `function` must treat rows independently."""
        rng = Streams.of(self.seed, [f"slope/{sample}" for sample in ids], x.device)
        return torch.stack([self._maximise(function, x, rng) for _ in range(self.restarts)]).amax(0)

    def stages(self, network: TargetModel, x: Tensor, ids: Sequence[str], most: int = 6) -> pd.DataFrame:
        """Estimate at the output and at some stages before it.

        A row has sample_id, stage, depth (0 at the image, 1 at the output), slope (the estimate) and size (the norm of
        the stage's value at the image): slope / size does not depend on the scale of the values.
        """
        frames = []
        for name, depth, function in _stages(network, x[:1], most):
            slope = self.estimate(function, x, ids)
            with torch.no_grad():
                size = torch.linalg.vector_norm(function(x).flatten(1), _SIZES[type(self.norm)][1], dim=1)
            frames.append(
                pd.DataFrame(
                    {
                        "sample_id": list(ids),
                        "stage": name,
                        "depth": depth,
                        "slope": slope.cpu().numpy(),
                        "size": size.cpu().numpy(),
                    }
                )
            )
        return pd.concat(frames, ignore_index=True)

    def _maximise(self, function: Function, x: Tensor, rng: Streams) -> Tensor:
        ball = Ball(self.norm, x, torch.full((len(x),), self.norm.eps, device=x.device))
        first, second = ball.sample(rng), ball.project(x.clone())
        best = x.new_zeros(len(x))
        for at in range(self.steps):
            one, two = (point.detach().requires_grad_() for point in (first, second))
            slope = self._quotient(function, one, two)
            best = torch.maximum(best, slope.detach())
            up = torch.autograd.grad(slope.sum(), (one, two))
            length = ball.eps * self.rel_step * (1 - at / self.steps)
            first, second = (ball.step(point.detach(), g, length) for point, g in zip((one, two), up, strict=True))
        with torch.no_grad():
            return torch.maximum(best, self._quotient(function, first, second))

    def _quotient(self, function: Function, one: Tensor, two: Tensor) -> Tensor:
        inner, outer = _SIZES[type(self.norm)]
        with full_precision(one.device):
            apart = function(torch.cat((one, two))).flatten(1)
        output_change = torch.linalg.vector_norm(apart[: len(one)] - apart[len(one) :], outer, dim=1)
        input_change: Tensor = torch.linalg.vector_norm((one - two).flatten(1), inner, dim=1)
        quotient: Tensor = output_change / input_change.clamp(min=1e-9)
        return quotient


def _stages(network: TargetModel, x: Tensor, most: int) -> Iterator[tuple[str, float, Function]]:
    """Yield some submodules in the order of their calls, evenly spread, and the output last."""
    called = _outermost(network, x)
    spots = sorted({round((at + 1) * len(called) / most) - 1 for at in range(most - 1)} - {-1, len(called) - 1})
    for spot in spots:
        name = called[spot]
        yield name, (spot + 1) / len(called), _up_to(network, name)
    yield OUTPUT, 1.0, network.call


def _outermost(network: TargetModel, x: Tensor) -> list[str]:
    """Return the outermost submodules that are called exactly once and return one tensor, in the order of calls."""
    calls: list[str] = []

    def note(name: str) -> Callable[..., None]:
        def hook(part: nn.Module, inputs: object, output: object) -> None:
            calls.append(name if isinstance(output, Tensor) and len(output) == len(x) else "")

        return hook

    module = network.module
    with _hooked({name: note(name) for name, _ in module.named_modules() if name}, module), torch.no_grad():
        network.call(x)
    once = [name for name in calls if name and calls.count(name) == 1]
    largest = [name for name in once if not any(name.startswith(f"{other}.") for other in once)]
    if len(largest) == 1:  # a wrapper around the model: take its submodules
        inside = [name for name in once if name.startswith(f"{largest[0]}.")]
        largest = [name for name in inside if not any(name.startswith(f"{other}.") for other in inside)] or largest
    return largest


def _up_to(network: TargetModel, name: str) -> Function:
    """Return the function from images to the value of a submodule."""

    def stop(part: nn.Module, inputs: object, output: Tensor) -> None:
        raise _Reached(output)

    def function(images: Tensor) -> Tensor:
        try:
            with _hooked({name: stop}, network.module):
                network.call(images)
        except _Reached as reached:
            return reached.value.float()
        raise BadRequest(
            f"The stages of this model cannot be measured, as it does not always call {name}: analyse another model."
        )

    return function


class _Reached(Exception):
    """Ends a forward pass after the wanted submodule; the rest is not needed."""

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.value = value


@contextmanager
def _hooked(hooks: dict[str, Callable[..., None]], module: nn.Module) -> Iterator[None]:
    handles = [module.get_submodule(name).register_forward_hook(hook) for name, hook in hooks.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
