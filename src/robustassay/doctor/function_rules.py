"""Rules that replace functions without a useful gradient while a model is differentiated.

A model's own graph may stop at a rounding, a comparison, a detached tensor or a custom backward pass, in any number of
places. Under these rules every function still returns its own values; only what autograd sees of it changes.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, Self, final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from robustassay.doctor.choice_rules import ChoiceRules
from robustassay.doctor.choices import around
from robustassay.doctor.custom_functions import differentiate_forward
from robustassay.doctor.inner_gradients import InnerGradients
from robustassay.doctor.smooth_functions import LOGICAL, RESHAPES, flat, is_in_place, mapped, softened, straight

Call = Callable[..., Any]

SOFTNESS: Final = 0.25
"""Width of a smoothed comparison, as a fraction of the typical distance between the two sides."""

ROUNDINGS: Final = frozenset(("round", "floor", "ceil", "trunc", "fix", "sign", "sgn"))
COMPARISONS: Final[Mapping[str, int]] = {
    name: sign
    for names, sign in ((("gt", "ge", "greater", "greater_equal"), 1), (("lt", "le", "less", "less_equal"), -1))
    for name in names
}
"""Comparisons, with the sign by which the difference of their two sides grows towards True."""

GATES: Final = frozenset(("mul", "multiply", "where", "masked_fill"))
"""Functions that select or scale values by a mask."""


_DETACHED, _SETS_GRADIENT_FLAG, _READS_GRADIENT = (
    getattr(vars(torch._C.TensorBase)[name], method)
    for name, method in (("data", "__get__"), ("requires_grad", "__set__"), ("grad", "__get__"))
)


@final
class FunctionRules(TorchFunctionMode):
    """Runs a model so that the function that it computes is differentiated, not the graph that it offers.

    Rounding passes gradients straight through, and so do detached tensors, casts to integers and blocks without
    gradients. Comparisons get the gradient of a sigmoid, choices and draws that of a mean. Custom functions are
    differentiated in their forward pass. With `soft`, masks and saturated functions let a part of the gradient pass.
    With `unroll`, gradients that the model computes itself are differentiated too; otherwise they count as constants.
    """

    def __init__(self, rows: int, soft: bool = False, unroll: bool = False) -> None:
        super().__init__()
        self.rows, self.soft = rows, soft
        self.used: Counter[str] = Counter()
        """How often each rule was applied."""
        self._smooth: dict[int, tuple[Tensor, Tensor]] = {}
        self._views: dict[int, tuple[Tensor, Tensor]] = {}  # detached tensors, with the tensors whose values they share
        self._inner, self._choices = InnerGradients(unroll), ChoiceRules(self)

    def __enter__(self) -> Self:
        self._patch = differentiate_forward(self.used)
        self._patch.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._patch.__exit__(*error)
        self._smooth.clear()
        self._views.clear()
        self._choices.clear()

    def __torch_function__(self, func: Call, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Apply the rule for a function, with gradients enabled; without a rule, call it."""
        if func is torch._C._set_grad_enabled:
            return func(*args)
        try:
            with torch.inference_mode(False), torch.enable_grad():
                return self._apply(func, args, kwargs or {})
        except RuntimeError:
            if torch.is_grad_enabled():
                raise
            return func(*args, **(kwargs or {}))  # an in-place update of a leaf, as an optimiser does

    def _apply(self, func: Call, args: Any, kwargs: Any) -> Any:
        name = getattr(func, "__name__", "").strip("_")
        first = args[0] if args else None
        if name not in _RULES and id(first) in self._views and is_in_place(func, kwargs):
            owner = self._views[id(first)][1]
            return func(first if owner.is_leaf else owner, *args[1:], **kwargs)  # both share their values
        if self._choices.applies(name, args):
            return self._choices.apply(name, func, args, kwargs)
        if name in _RULES and isinstance(first, Tensor | list | tuple):
            return _RULES[name](self, func, args, kwargs)
        if name in ("get", "set"):
            return self._attribute(func, args)
        if name in ROUNDINGS and isinstance(first, Tensor):
            return self._round(name, func, args, kwargs)
        if name in COMPARISONS and isinstance(first, Tensor):
            return self._compare(COMPARISONS[name], func, args, kwargs)
        if any(id(value) in self._smooth for value in flat(args)):
            return self._with_smooth(name, func, args, kwargs)
        if self.soft and isinstance(first, Tensor) and first.requires_grad:
            return self._soft(name, func, args, kwargs)
        return func(*args, **kwargs)

    def _round(self, name: str, func: Call, args: Any, kwargs: Any) -> Tensor:
        first = self.with_gradient(args[0])
        if not first.requires_grad:
            rounded: Tensor = func(*args, **kwargs)
            return rounded
        self.used[name] += 1
        outer: Call = getattr(torch, name)
        out = straight(outer(first.detach(), *args[1:], **kwargs), first)
        return args[0].copy_(out) if is_in_place(func, kwargs) else out

    def _compare(self, sign: int, func: Call, args: Any, kwargs: Any) -> Tensor:
        """Keep a sigmoid of the difference beside the result, for whatever uses it as numbers."""
        out: Tensor = func(*args, **kwargs)
        left, right = (self.with_gradient(side) for side in args[:2])
        difference = sign * (left - right)
        if not difference.requires_grad or not difference.is_floating_point():
            return out
        self.keep(out, torch.sigmoid(difference / (SOFTNESS * self._typical(difference))))
        return out

    def _typical(self, difference: Tensor) -> Tensor:
        """Return the root mean square per image, so that results do not depend on the batch."""
        squares = difference.detach().square()
        per_image = squares.dim() > 1 and squares.shape[0] == self.rows
        mean = squares.mean(tuple(range(1, squares.dim())), keepdim=True) if per_image else squares.mean()
        return mean.sqrt().clamp(min=1e-12)

    def keep(self, out: Tensor, smooth: Tensor) -> None:
        """Keep a smooth version of an output, for what is made of it."""
        self._smooth[id(out)] = (out, smooth)  # the tensor itself too, or its id may be given to another

    def with_gradient(self, value: Any) -> Any:
        """Return values with the gradient of their smooth version, where they have one."""
        kept = self._smooth.get(id(value)) if isinstance(value, Tensor) else None
        if kept is None:
            return value
        return straight(value.to(kept[1].dtype), kept[1])

    def _with_smooth(self, name: str, func: Call, args: Any, kwargs: Any) -> Any:
        """Call a function of values that have a smooth version."""
        self.used["comparison or cast"] += 1
        if name in GATES:
            return self._gate(name, func, args, kwargs)
        if name in LOGICAL and isinstance(args[0], Tensor) and args[0].dtype == torch.bool:
            out = func(*args, **kwargs)
            self.keep(out, LOGICAL[name](*(self._smooth_of(value) for value in args)))
            return out
        if name in ("embedding", "getitem") and len(args) > 1 and isinstance(args[1], Tensor):
            return self._look_up(name, func, args, kwargs)
        if name == "one_hot":
            self.keep(out := func(*args, **kwargs), around(args[0], self._smooth_of(args[0]), out.shape[-1]))
            return out
        floats = all(value.is_floating_point() for value in flat(args) if id(value) in self._smooth)
        if floats and name not in RESHAPES:
            return func(*mapped(self.with_gradient, args), **kwargs)
        out = func(*args, **kwargs)
        try:
            smooth = func(*mapped(self._smooth_of, args), **kwargs)
        except (RuntimeError, TypeError):
            return out
        if isinstance(out, Tensor) and isinstance(smooth, Tensor) and out.shape == smooth.shape:
            self.keep(out, smooth)
        return out

    def _smooth_of(self, value: Any) -> Any:
        return self._smooth[id(value)][1] if id(value) in self._smooth else value

    def _gate(self, name: str, func: Call, args: Any, kwargs: Any) -> Any:
        """Select or scale by a mask: with soft rules through the smooth mask, else as the mask says."""
        gated = [value for value in flat(args) if id(value) not in self._smooth]
        carries = any(value.requires_grad and not isinstance(value, torch.nn.Parameter) for value in gated)
        out: Tensor = func(*args, **kwargs)
        if carries and not self.soft:
            return out
        given = [self._smooth_of(value) for value in args]
        if name == "where":
            smooth = given[0] * given[1] + (1 - given[0]) * given[2]
        elif name == "masked_fill":
            smooth = given[0] * (1 - given[1]) + given[1] * given[2]
        else:
            smooth = given[0] * given[1]
        if not out.is_floating_point():
            self.keep(out, smooth)
            return out
        return straight(out, smooth)

    def _look_up(self, name: str, func: Call, args: Any, kwargs: Any) -> Any:
        """Look up rows of a table: between neighbouring rows the table counts as linear."""
        index, table = (args[0], args[1]) if name == "embedding" else (args[1], args[0])
        out = func(*args, **kwargs)
        if index.dtype == torch.bool or id(index) not in self._smooth:
            return out
        above, below = (index + 1).clamp(max=len(table) - 1), (index - 1).clamp(min=0)
        slope = (table[above] - table[below]).detach()
        position = self._smooth[id(index)][1]
        per_step = slope / (above - below).clamp(min=1).view(*index.shape, *(1,) * (slope.dim() - index.dim()))
        moved = position.view(*index.shape, *(1,) * (slope.dim() - index.dim()))
        return straight(out, per_step * moved)

    def _soft(self, name: str, func: Call, args: Any, kwargs: Any) -> Any:
        """Let a part of the gradient pass where a function saturates or a mask stops it."""
        soft = softened(name, func, args, kwargs)
        if soft is None:
            return func(*args, **kwargs)
        self.used["mask" if name in GATES else name] += 1
        return soft

    def _detach(self, func: Call, args: Any, kwargs: Any) -> Any:
        value = self.with_gradient(args[0])
        if not value.requires_grad:
            return func(*args, **kwargs)
        self.used["detach"] += 1
        if func.__name__ == "detach_":
            return args[0]
        out = value.clone()
        self._views[id(out)] = (out, args[0])
        return out

    def _cast(self, func: Call, args: Any, kwargs: Any) -> Any:
        """Cast: integers keep the floating values beside them, and floating values get them back."""
        if func.__name__.startswith("__"):  # to a number of Python
            return self._leave(func, args, kwargs)
        source, out = args[0], func(*args, **kwargs)
        if not isinstance(out, Tensor) or out is source:
            return out
        smooth = self._smooth_of(source)
        if smooth.requires_grad and (smooth is not source or not out.is_floating_point()):
            self.used["comparison or cast"] += 1
            self.keep(out, smooth.to(out.dtype) if out.is_floating_point() else smooth)
        return out

    def _leave(self, func: Call, args: Any, kwargs: Any) -> Any:
        """Give values to code outside of PyTorch, which takes none with a graph."""
        return func(args[0].detach(), *args[1:], **kwargs)

    def _attribute(self, func: Call, args: Any) -> Any:
        if func == _DETACHED:
            return self._detach(func, args, {})
        if func == _READS_GRADIENT and (found := self._inner.read(args[0])) is not None:
            return found
        if func == _SETS_GRADIENT_FLAG:
            return self._inner.track(func, args, {})
        return func(*args)

    def _inner_gradient(self, func: Call, args: Any, kwargs: Any) -> Any:
        name = func.__name__.strip("_")
        if name == "requires_grad":
            return self._inner.track(func, args, kwargs)
        self.used["inner gradient"] += 1
        return self._inner.differentiate(func, args, kwargs) if name == "grad" else self._inner.backward(args[0])

    def _no_hook(self, func: Call, args: Any, kwargs: Any) -> Any:
        self.used["gradient hook"] += 1
        return func(args[0].detach().requires_grad_(), lambda gradient: None)

    def _remainder(self, func: Call, args: Any, kwargs: Any) -> Any:
        """Give a remainder no gradient: what is left of a value without it is the rounded value."""
        self.used["remainder"] += 1
        return func(self.with_gradient(args[0]).detach(), *args[1:], **kwargs)

    def _floor_divide(self, func: Call, args: Any, kwargs: Any) -> Any:
        first = self.with_gradient(args[0])
        self.used["floor"] += 1
        return straight(func(first.detach(), *args[1:], **kwargs), first / args[1])


_RULES: Final[Mapping[str, Callable[..., Any]]] = {
    **dict.fromkeys(("detach", "deepcopy"), FunctionRules._detach),
    **dict.fromkeys(("numpy", "array", "item", "tolist"), FunctionRules._leave),
    **dict.fromkeys(("long", "int", "short", "byte", "char", "float", "double", "half"), FunctionRules._cast),
    **dict.fromkeys(("bfloat16", "to", "type", "type_as", "bool"), FunctionRules._cast),
    **dict.fromkeys(("requires_grad", "grad", "backward"), FunctionRules._inner_gradient),
    "register_hook": FunctionRules._no_hook,
    **dict.fromkeys(("remainder", "fmod", "mod"), FunctionRules._remainder),
    **dict.fromkeys(("floor_divide", "floordiv"), FunctionRules._floor_divide),
}
