"""Smooth versions of saturating functions, masks and logical functions."""

from collections.abc import Callable, Mapping
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
    **dict.fromkeys(("clamp", "clip", "hardtanh", "relu6"), _inside_range),
}
"""Saturating functions, with a derivative that never vanishes."""

LOGICAL: Final[Mapping[str, Callable[..., Tensor]]] = {
    **dict.fromkeys(("logical_not", "invert", "bitwise_not"), lambda one: 1 - one),
    **dict.fromkeys(("logical_and", "and", "bitwise_and"), lambda one, other: one * other),
    **dict.fromkeys(("logical_or", "or", "bitwise_or"), lambda one, other: one + other - one * other),
}


def is_mask(mask: Any, values: Tensor) -> bool:
    """Whether these are zeros and ones of the same shape, without a gradient."""
    if not isinstance(mask, Tensor) or mask.shape != values.shape or mask.requires_grad:
        return False
    return bool(((mask == 0) | (mask == 1)).all())
