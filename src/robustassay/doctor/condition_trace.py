"""Follows the conditions of a pass, such as thresholds: which images fulfil them, and how far the others are from it.

The distance of a condition is positive where it holds and negative where it does not. That of a comparison is the
difference of its sides, that of "and" the smaller and that of "or" the larger of two: an ascent on it leads into the
middle of a small window, where the product of smooth comparisons has no slope (Fainekos & Pappas 2009,
doi:10.1016/j.tcs.2009.06.021).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from robustassay.doctor.function_rules import COMPARISONS
from robustassay.doctor.function_trace import is_plain
from robustassay.doctor.smooth_functions import RESHAPES

Report = Callable[[int, str, Tensor, Tensor], None]
"""Called with the number of a condition, its function, its truth values and its distances, both per image."""

_JOINED: Final[Mapping[str, Callable[[Tensor, Tensor], Tensor]]] = {
    **dict.fromkeys(("and", "bitwise_and", "logical_and", "mul", "multiply"), torch.minimum),
    **dict.fromkeys(("or", "bitwise_or", "logical_or"), torch.maximum),
}
_REDUCED: Final[Mapping[str, Callable[..., Tensor]]] = {
    **dict.fromkeys(("all", "prod", "amin"), torch.amin),
    **dict.fromkeys(("any", "amax"), torch.amax),
}
_INVERTED: Final = frozenset(("invert", "logical_not", "bitwise_not", "rsub"))
_MOVED: Final = RESHAPES | {"getitem"}
_KEPT: Final = _MOVED | {"float", "double", "half", "to", "type", "type_as", "long", "int", "bool"}
"""Functions that leave truth values what they are, perhaps as numbers."""


@final
class ConditionTrace(TorchFunctionMode):
    """Reports every condition on whole images; one of them, by its number from 1, gets its other value."""

    def __init__(self, rows: int, report: Report, inverted: int = 0) -> None:
        super().__init__()
        self._rows, self._report, self._inverted = rows, report, inverted
        self._distances: dict[int, tuple[Tensor, Tensor]] = {}  # the conditions too, or their ids may be given away
        self._count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function, and follow its output if it is a condition."""
        output = func(*args, **(kwargs or {}))
        if not is_plain(output) or not args:
            return output
        name = getattr(func, "__name__", "").strip("_")
        with torch._C.DisableTorchFunction(), torch.enable_grad():
            distance = self._distance(name, func, args, kwargs or {}, output)
        if distance is None or distance.shape != output.shape:
            return output
        self._distances[id(output)] = (output, distance)
        if name in _KEPT or output.numel() != self._rows or output.shape[:1] != (self._rows,):
            return output
        self._count += 1
        with torch._C.DisableTorchFunction():
            self._report(self._count, name, output.reshape(-1).bool(), distance.reshape(-1))
            return output.logical_not().to(output.dtype) if self._count == self._inverted else output

    def _distance(self, name: str, func: Any, args: Any, kwargs: Any, output: Tensor) -> Tensor | None:
        """Return the distance of an output; None if it is no condition."""
        known = [self._known(value) for value in args]
        first = known[0]
        if first is None:
            return _compared(name, args) if output.dtype == torch.bool else None
        if name in _INVERTED:
            return -first
        if name in _JOINED and len(args) > 1:
            second = known[1]
            return None if second is None else _JOINED[name](first, second)
        if name in _REDUCED:
            dim = args[1] if len(args) > 1 else kwargs.get("dim", tuple(range(first.dim())))
            return _REDUCED[name](first, dim, keepdim=kwargs.get("keepdim", False))
        if name in COMPARISONS and not isinstance(args[1], Tensor):
            return COMPARISONS[name] * first  # zeros and ones compared with a number between them
        if name in _KEPT:
            return func(first, *args[1:], **kwargs) if name in _MOVED else first
        return None

    def _known(self, value: Any) -> Tensor | None:
        return self._distances[id(value)][1] if id(value) in self._distances else None


def _compared(name: str, args: Any) -> Tensor | None:
    """Return the distance of a comparison; None for other functions, and for truth values."""
    if len(args) < 2 or (name not in COMPARISONS and name not in ("eq", "ne")):
        return None
    left, right = (torch.as_tensor(side) for side in args[:2])
    if torch.bool in (left.dtype, right.dtype):
        return None
    difference = left.double() - right.double()
    if name in COMPARISONS:
        return COMPARISONS[name] * difference
    return -difference.abs() if name == "eq" else difference.abs()
