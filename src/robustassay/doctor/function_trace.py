"""Follows the functions of a pass; they also show layers that are not registered, and values between layers."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeGuard, final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


@final
@dataclass(frozen=True)
class FunctionCall:
    """One call in a pass, among the calls of a function with a floating tensor as output."""

    function: str
    number: int  # from 1

    def __str__(self) -> str:
        return f"{self.function} {self.number}"


Report = Callable[[FunctionCall, Tensor], None]
"""Called with a call and its output."""


def is_plain(value: Any) -> TypeGuard[Tensor]:
    """Whether this is a tensor of the whole batch, and not one that exists inside of torch.vmap or torch.func.grad."""
    return isinstance(value, Tensor) and not torch._C._functorch.is_functorch_wrapped_tensor(value)


@final
class FunctionTrace(TorchFunctionMode):
    """Reports every floating tensor that a function returns."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self._report, self._calls = report, Counter[str]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function and report what it returns."""
        output = func(*args, **(kwargs or {}))
        if is_plain(output) and output.is_floating_point():
            name = getattr(func, "__name__", "function").strip("_")
            self._calls[name] += 1
            self._report(FunctionCall(name, self._calls[name]), output)
        return output


@contextmanager
def outputs_of(wanted: FunctionCall) -> Iterator[list[Tensor]]:
    """Collect the output of one call while the block runs a pass."""
    outputs: list[Tensor] = []

    def keep(call: FunctionCall, output: Tensor) -> None:
        if call == wanted:
            outputs.append(output)

    with FunctionTrace(keep):
        yield outputs
