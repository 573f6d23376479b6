"""Smooth versions of saturating functions, masks and logical functions."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from torch import Tensor

LEAK: Final = 0.1
"""Part of the gradient that passes a saturated or masked value under soft rules."""


def straight(out: Tensor, like: Tensor) -> Tensor:
    """Return the values of `out` with the gradient of `like`."""
    return out.detach() + (like - like.detach()).to(out.dtype)


def _inside_range(given: Tensor, out: Tensor) -> Tensor:
    return (given == out).to(out.dtype).clamp(min=LEAK)


SATURATING: Final[Mapping[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "tanh": lambda given, out: (1 - out * out).clamp(min=LEAK),
    "sigmoid": lambda given, out: (out * (1 - out)).clamp(min=LEAK / 4),
    "softsign": lambda given, out: (1 - out.abs()).square().clamp(min=LEAK),
    "erf": lambda given, out: (-given.square()).exp().clamp(min=LEAK),
    **dict.fromkeys(("atan", "arctan"), lambda given, out: (1 / (1 + given.square())).clamp(min=LEAK)),
    **dict.fromkeys(("clamp", "clip", "hardtanh", "relu6"), _inside_range),
}
"""Saturating functions, with a derivative that never vanishes."""

LOGICAL: Final[Mapping[str, Callable[..., Tensor]]] = {
    **dict.fromkeys(("logical_not", "invert", "bitwise_not"), lambda one: 1 - one),
    **dict.fromkeys(("logical_and", "and", "bitwise_and"), lambda one, other: one * other),
    **dict.fromkeys(("logical_or", "or", "bitwise_or"), lambda one, other: one + other - one * other),
    **dict.fromkeys(("logical_xor", "xor", "bitwise_xor", "ne"), lambda one, other: one + other - 2 * one * other),
    "eq": lambda one, other: 1 - (one + other - 2 * one * other),
}
"""Functions of truth values, with smooth versions."""

RESHAPES: Final = frozenset(
    (
        *("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "permute", "transpose", "movedim"),
        *("expand", "expand_as", "view_as", "repeat", "contiguous", "clone", "repeat_interleave"),
    )
)
"""Functions that move values and change none."""


def is_mask(mask: Any, values: Tensor) -> bool:
    """Whether these are zeros and ones of the same shape, without a gradient."""
    if not isinstance(mask, Tensor) or mask.shape != values.shape or mask.requires_grad:
        return False
    return bool(((mask == 0) | (mask == 1)).all())


def flat(args: Any) -> Iterator[Tensor]:
    """Yield the tensors among arguments, also those in lists."""
    for value in args:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from (inner for inner in value if isinstance(inner, Tensor))


def mapped(change: Callable[[Any], Any], args: Any) -> list[Any]:
    """Change every argument, also those in lists."""
    return [type(value)(map(change, value)) if type(value) in (list, tuple) else change(value) for value in args]


def swapped(one: Any, other: Any, value: Any) -> Any:
    """Return the other in place of the one, and any other value as it is."""
    return other if value is one else value
