"""Smooth versions of saturating functions, masks and logical functions."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch
from torch import Tensor, softmax
from torch.nn import functional

LEAK: Final = 0.1
"""Part of the gradient that passes a saturated or masked value under soft rules."""


FAST: Final = 50.0
"""Root mean square of the angles of a sine or cosine above which its slope says nothing of where a small step leads."""

WIDE: Final = 8.0
"""Mean gap to the highest value above which a softmax is saturated; it then gets this gap as its temperature."""


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


def softened(name: str, func: Callable[..., Any], args: Any, kwargs: Any) -> Tensor | None:
    """Call a function with a gradient that leads on; return None where its own does.

    What saturates, and products with a mask, get a gradient everywhere, and fast waves none.
    """
    first = args[0]
    if name in SATURATING:
        in_place, given = is_in_place(func, kwargs), first.detach().clone()
        outer = getattr(Tensor, name, None) or getattr(functional, name) if in_place else func
        out = outer(given.clone(), *args[1:], **kwargs)  # it may change what it gets
        soft = straight(out, SATURATING[name](given, out) * first)
        return first.copy_(soft) if in_place else soft
    if name in ("softmax", "logsumexp"):
        dim = args[1] if len(args) > 1 else kwargs.get("dim")
        wide = _wide_softmax(first, dim)
        if wide is None:
            return None
        out = func(*args, **kwargs)
        weighed = (wide.detach() * first).where(first.isfinite(), 0.0)
        mean = weighed.sum(dim, keepdim=out.dim() == first.dim())
        return straight(out, wide if name == "softmax" else mean)
    if name in ("sin", "cos"):
        squares = first.detach().square()
        fast = squares.mean(tuple(range(1, squares.dim())), keepdim=True) > FAST**2 if squares.dim() > 1 else None
        if fast is None or not bool(fast.any()):
            return None
        wave: Tensor = func(*args, **kwargs)
        return torch.where(fast, wave.detach(), wave)
    if name in ("mul", "multiply") and len(args) > 1 and is_mask(args[1], first):
        return straight(func(*args, **kwargs), first * args[1].to(first.dtype).clamp(min=LEAK))
    return None


def is_in_place(func: Callable[..., Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call of a function with these arguments changes its first argument."""
    name = func.__name__
    named = name in _IN_PLACE_OPERATORS or (name.endswith("_") and not name.startswith("__"))
    return named or kwargs.get("inplace") is True


_IN_PLACE_OPERATORS: Final = frozenset(("__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__"))


def _wide_softmax(given: Tensor, dim: Any) -> Tensor | None:
    """Return a softmax at a temperature at which it is not saturated; None where it is not saturated anyway."""
    if isinstance(dim, tuple | list) and len(dim) == 1:
        (dim,) = dim
    if not isinstance(dim, int):
        return None
    gaps = given.detach().amax(dim, keepdim=True) - given.detach()
    finite = gaps.isfinite()  # what is left out has a value of minus infinity
    mean = gaps.where(finite, 0.0).sum(dim, keepdim=True) / finite.sum(dim, keepdim=True).clamp(min=1)
    return softmax(given / mean.where(mean > WIDE, 1.0), dim) if bool((mean > WIDE).any()) else None


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
