"""Differentiates forward passes, whatever custom backward passes and backward hooks would return."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

Record = Callable[[Any, tuple[Any, ...], Tensor], None]
"""Called with the context of a call, its arguments, and its output with the graph of the forward pass."""


@contextmanager
def differentiate_forward(used: Counter[str]) -> Iterator[None]:
    """Change, for the time of a pass, all custom functions, and leave out backward hooks; `used` counts the calls.

    Models often keep a function's `apply` under another name, so `apply` itself is not replaced.
    """

    def no_hooks(layer: nn.Module) -> tuple[list[Any], list[Any]]:
        used["backward hook"] += 1
        return [], []

    with ExitStack() as changes:
        for function in _custom_functions(Function):
            changes.enter_context(_recorded(function, used))
        changes.enter_context(replaced(nn.Module, "_get_backward_hooks", no_hooks))
        changes.enter_context(replaced(nn.Module, "_get_backward_pre_hooks", lambda layer: no_hooks(layer)[0]))
        yield


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give an object another attribute for a while."""
    missing = object()
    before = vars(owner).get(name, missing)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is missing:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def _custom_functions(parent: Any) -> Iterator[Any]:
    for function in parent.__subclasses__():
        if not function.__module__.startswith("torch."):  # such as checkpoints and backward hooks
            yield function
        yield from _custom_functions(function)


@contextmanager
def _recorded(function: Any, used: Counter[str]) -> Iterator[None]:
    """Run the forward pass of one function with a graph, and let its context go back through that graph."""
    forward, set_up = function.forward, function.setup_context
    outputs: list[Any] = []

    def run(*args: Any) -> Any:
        with torch.enable_grad():
            out = forward(*args)
        outputs.append(out)
        return out.detach() if isinstance(out, Tensor) else out

    def run_with_context(ctx: Any, *args: Any) -> Any:
        out = run(ctx, *args)
        _go_back_through(ctx, args, outputs.pop(), function.__name__, used)
        return out

    def set_up_context(ctx: Any, inputs: Any, output: Any) -> None:
        set_up(ctx, inputs, output)
        _go_back_through(ctx, inputs, outputs.pop(), function.__name__, used)

    with ExitStack() as changes:
        if set_up is Function.setup_context:
            changes.enter_context(replaced(function, "forward", staticmethod(run_with_context)))
        else:
            changes.enter_context(replaced(function, "forward", staticmethod(run)))
            changes.enter_context(replaced(function, "setup_context", staticmethod(set_up_context)))
        yield


def _go_back_through(ctx: Any, args: tuple[Any, ...], out: Any, name: str, used: Counter[str]) -> None:
    """Make a context compute the gradient of the forward pass; straight through where that has none."""
    wanted = [place for place, value in enumerate(args) if isinstance(value, Tensor) and value.requires_grad]
    if not wanted or not isinstance(out, Tensor):
        return
    used[f"custom function {name}"] += 1

    def backward(slope: Tensor) -> tuple[Tensor | None, ...]:
        gradients: list[Tensor | None] = [None] * len(args)
        if out.requires_grad:
            given, graph = [args[place] for place in wanted], torch.is_grad_enabled()
            found = torch.autograd.grad(out, given, slope, retain_graph=True, create_graph=graph, allow_unused=True)
            for place, gradient in zip(wanted, found, strict=True):
                gradients[place] = gradient
        else:
            alike = [place for place in wanted if args[place].shape == out.shape]
            gradients[alike[0] if alike else wanted[0]] = slope if alike else None
        return tuple(gradients)

    ctx.apply = backward
