"""Layers that are called again in the backward pass, so that a pass keeps only their inputs."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from robustassay.doctor.custom_functions import replaced
from robustassay.target import TargetModel

MANY_CALLS: Final = 3
"""Calls in one pass from which on a layer is called again instead of kept."""


@contextmanager
def called_again(layers: Iterable[nn.Module], within: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """Keep only the inputs of these layers; `within` gives the context of their calls in the backward pass."""
    with ExitStack() as changes:
        for layer in layers:
            again = partial(
                checkpoint, layer.forward, use_reentrant=False, context_fn=lambda: (nullcontext(), within())
            )
            changes.enter_context(replaced(layer, "forward", again))
        yield


@torch.no_grad()
def repeated_layers(target: TargetModel, x: Tensor) -> list[nn.Module]:
    """Find the outermost layers with weights that one pass calls many times."""
    calls: Counter[nn.Module] = Counter()
    with ExitStack() as hooks:
        for part in target.module.modules():
            if part is not target.module and next(part.parameters(), None) is not None:
                hooks.enter_context(part.register_forward_pre_hook(lambda part, given: calls.update([part])))
        target.call_differentiable(x)
    many = [part for part, count in calls.items() if count >= MANY_CALLS]
    inner = {part for outer in many for part in outer.modules() if part is not outer}
    return [part for part in many if part not in inner]
