"""Rules for functions that choose places, count labels or draw: their results get smooth weights.

`argmax`, `topk`, `sort` and draws return indices, which have no gradient. Beside each index its weights are kept, and
whatever is then made of the index, such as one-hot vectors, counts, comparisons and table look-ups, has the gradient of
the mean under these weights.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

import torch
from torch import Tensor

from robustassay.doctor import choices
from robustassay.doctor.choices import Choice, argument
from robustassay.doctor.smooth_functions import RESHAPES, flat, mapped, straight, swapped

if TYPE_CHECKING:
    from robustassay.doctor.function_rules import FunctionRules

Call = Callable[..., Any]

MAX_RANKED: Final = 256
"""Values up to which ranks are softened."""

MAX_CASES: Final = 128
"""Possible choices up to which a function is called with each of them."""


@final
class ChoiceRules:
    """Keeps choices beside the indices that a model computes, and follows them."""

    def __init__(self, rules: "FunctionRules") -> None:
        self.rules = rules
        self.width = choices.SOFT_WIDTH if rules.soft else choices.WIDTH
        self._kept: dict[int, Choice] = {}

    def clear(self) -> None:
        """Forget all choices."""
        self._kept.clear()

    def applies(self, name: str, args: Any) -> bool:
        """Whether there is a rule for a call of this function."""
        if not args:
            return False
        if name in ("max", "min"):
            return len(args) > 1 and isinstance(args[1], int)
        if name in _MAKERS:
            return isinstance(args[0], Tensor)
        return bool(self._kept) and (name in _USERS or name in RESHAPES) and any(map(self.choice, flat(args)))

    def apply(self, name: str, func: Call, args: Any, kwargs: Any) -> Any:
        """Call a function that makes or uses choices."""
        rule = _MAKERS[name] if name in _MAKERS else _USERS.get(name, ChoiceRules._follow)
        return rule(self, func, args, kwargs)

    def choice(self, value: Any) -> Choice | None:
        """Return what is kept beside an index."""
        return self._kept.get(id(value))

    def keep(self, choice: Choice) -> None:
        """Keep a choice beside its index."""
        self._kept[id(choice.index)] = choice

    def _source(self, value: Tensor) -> Tensor | None:
        """Return values with a gradient; None where they have none or are no numbers to compare."""
        given: Tensor = self.rules.with_gradient(value)
        return given if given.requires_grad and given.is_floating_point() and given.dim() else None

    def _arg(self, func: Call, args: Any, kwargs: Any) -> Any:
        out, values = func(*args, **kwargs), self._source(args[0])
        if values is not None:
            sign = -1 if "min" in func.__name__ else 1
            dim, keepdim = argument(args, kwargs, 1, "dim", None), argument(args, kwargs, 2, "keepdim", False)
            self.keep(choices.largest(out, sign * values, dim, keepdim, self.rules.rows, self.width))
        return out

    def _extreme(self, func: Call, args: Any, kwargs: Any) -> Any:
        """`max` and `min` along a dimension return places too."""
        values = self._source(args[0])
        out = func(args[0] if values is None else values, *args[1:], **kwargs)
        if values is not None:
            sign, keepdim = -1 if "min" in func.__name__ else 1, argument(args, kwargs, 2, "keepdim", False)
            self.keep(choices.largest(out.indices, sign * values, args[1], keepdim, self.rules.rows, self.width))
        return out

    def _top(self, func: Call, args: Any, kwargs: Any) -> Any:
        given, values = args[0], self._source(args[0])
        out = func(given if values is None else values, *args[1:], **kwargs)
        if values is not None:
            dim = argument(args, kwargs, 2 if "topk" in func.__name__ else 1, "dim", -1)
            self.keep(choices.in_order(out.indices, values, out.values, dim, self.rules.rows, self.width))
        return out

    def _order(self, func: Call, args: Any, kwargs: Any) -> Any:
        """`argsort`; of an order it gives ranks."""
        out, values, before = func(*args, **kwargs), self._source(args[0]), self.choice(args[0])
        dim = argument(args, kwargs, 1, "dim", -1)
        if before is not None and before.ordered is not None and out.shape[dim] <= MAX_RANKED:
            return self._smooth(out, choices.ranks(before.ordered, dim, self.rules.rows))
        if values is not None:
            signed = -values if argument(args, kwargs, 2, "descending", False) else values
            chosen = signed.gather(dim, out)
            self.keep(choices.in_order(out, signed, chosen, dim, self.rules.rows, self.width))
        return out

    def _draw_places(self, func: Call, args: Any, kwargs: Any) -> Any:
        weights = self._source(args[0])
        out = func(args[0].detach(), *args[1:], **kwargs)
        if weights is not None:
            self.keep(choices.drawn(out, weights))
        return out

    def _draw(self, func: Call, args: Any, kwargs: Any) -> Any:
        """Draw values: their mean is the first argument."""
        mean = self._source(args[0])
        if mean is None or func.__name__.endswith("_"):
            return func(*args, **kwargs)
        self.rules.used["draw"] += 1
        return straight(func(mean.detach(), *args[1:], **kwargs), mean)

    def _interval(self, func: Call, args: Any, kwargs: Any) -> Any:
        """Number the intervals between sorted ends: between its ends, the number counts as linear."""
        out = func(*args, **kwargs)
        value, ends = (args[1], args[0]) if func.__name__ == "searchsorted" else (args[0], args[1])
        given = self._source(value) if isinstance(value, Tensor) else None
        if given is not None and ends.dim() == 1 and len(ends) > 1:
            gaps = ends.diff().clamp(min=1e-12).to(given)
            slope = 1 / gaps[(out - 1).clamp(0, len(gaps) - 1)]
            self.rules.keep(out, out.to(given) + slope * (given - given.detach()))
            self.rules.used["interval"] += 1
        return out

    def _one_hot(self, func: Call, args: Any, kwargs: Any) -> Any:
        out = func(*args, **kwargs)
        return self._smooth(out, self._weights(args[0], out.shape[-1]))

    def _weights(self, index: Tensor, count: int) -> Tensor | None:
        found = self.choice(index)
        return None if found is None else found.spread_over(count)

    def _smooth(self, out: Tensor, smooth: Tensor | None) -> Tensor:
        """Keep the smooth version beside a result."""
        if smooth is not None and smooth.shape == out.shape:
            self.rules.used["choice"] += 1
            self.rules.keep(out, smooth)
        return out

    def _count(self, func: Call, args: Any, kwargs: Any) -> Any:
        """`bincount` of labels."""
        out = func(*args, **kwargs)
        weights = self._weights(args[0], len(out))
        return self._smooth(out, None if weights is None else weights.sum(0))

    def _equal(self, func: Call, args: Any, kwargs: Any) -> Any:
        """Compare labels: the weight of their being equal."""
        out, (one, other) = func(*args, **kwargs), args[:2]
        found = self.choice(one) or self.choice(other)
        if found is None or found.weights is None:
            return out
        count, plain = found.weights.shape[-1], other if self.choice(one) else one
        if (second := self._weights(plain, count)) is None:
            value = torch.as_tensor(plain, device=out.device)
            second = (value[..., None] == torch.arange(count, device=out.device)).to(found.weights)
        same = (found.weights * second).sum(-1)
        return self._smooth(out, (same if "eq" in func.__name__ else 1 - same).expand(out.shape))

    def _mode(self, func: Call, args: Any, kwargs: Any) -> Any:
        """The most frequent label: its weights are the mean of those of all labels."""
        out, found = func(*args, **kwargs), self.choice(args[0])
        if found is not None and found.weights is not None:
            dim, keepdim = argument(args, kwargs, 1, "dim", -1), argument(args, kwargs, 2, "keepdim", False)
            weights = found.weights.mean(dim if dim >= 0 else dim - 1, keepdim=keepdim)
            self.keep(Choice(out.values, lambda: weights))
        return out

    def _cast(self, func: Call, args: Any, kwargs: Any) -> Any:
        """Numbers of choices: the mean number."""
        out, found = func(*args, **kwargs), self.choice(args[0])
        if found is None or not isinstance(out, Tensor) or out is args[0] or found.weights is None:
            return out
        if out.is_floating_point():
            places = torch.arange(found.weights.shape[-1], device=out.device).to(found.weights)
            return self._smooth(out, (found.weights @ places).to(out.dtype))
        if out.dtype != torch.bool:
            self.keep(found.beside(out))
        return out

    def _embed(self, func: Call, args: Any, kwargs: Any) -> Any:
        return self._look_up(func(*args, **kwargs), args[1], args[0])

    def _item(self, func: Call, args: Any, kwargs: Any) -> Any:
        """Look up rows of a table, or select some of the indices themselves."""
        if self.choice(args[0]) is not None:
            return self._follow(func, args, kwargs)
        if isinstance(args[1], Tensor):
            return self._look_up(func(*args, **kwargs), args[0], args[1])
        return self._cases(func, args, kwargs)

    def _look_up(self, out: Tensor, table: Tensor, index: Tensor) -> Tensor:
        """Return the rows that are chosen, with the gradient of the mean row."""
        weights = self._weights(index, len(table))
        if weights is None or (self._carries(table) and not self.rules.soft):
            return out
        if out.is_floating_point():
            self.rules.used["choice"] += 1
            return straight(out, torch.tensordot(weights, table.to(weights), 1))
        if table.dim() == 1 and not bool((table < 0).any()):  # a table of labels
            labels = torch.nn.functional.one_hot(table).to(weights)
            self.keep(Choice(out, lambda: weights @ labels))
        return out

    def _cases(self, func: Call, args: Any, kwargs: Any) -> Any:
        """Call a function of constant values with every possible choice, and take the gradient of the mean."""
        out = func(*args, **kwargs)
        found = next((one for one in map(self.choice, flat(args)) if one is not None), None)
        if found is None or found.weights is None or not isinstance(out, Tensor) or not out.is_floating_point():
            return out
        cases = found.weights.shape[-1]
        if cases > MAX_CASES or found.index.shape != out.shape[: found.index.dim()]:
            return out
        if self._carries(args[0]) and not self.rules.soft:
            return out
        total = torch.zeros_like(out)
        for case in range(cases):
            instead = mapped(partial(swapped, found.index, torch.full_like(found.index, case)), args)
            weight = found.weights[..., case]
            total = total + weight.view(*weight.shape, *(1,) * (out.dim() - weight.dim())) * func(*instead, **kwargs)
        self.rules.used["choice"] += 1
        return straight(out, total)

    def _carries(self, table: Any) -> bool:
        return isinstance(table, Tensor) and table.requires_grad and not isinstance(table, torch.nn.Parameter)

    def _scatter(self, func: Call, args: Any, kwargs: Any) -> Any:
        """Write values at the chosen places."""
        base, dim, index = args[:3]
        value = argument(args, kwargs, 3, "value", kwargs.get("src", 1.0))
        before, out = base.detach().clone(), func(*args, **kwargs)
        found = self.choice(index)
        if found is None or not out.is_floating_point() or (isinstance(value, Tensor) and value.requires_grad):
            return out
        smooth: Tensor | None = None
        if found.members is not None and not isinstance(value, Tensor):
            smooth = found.members * (value - before)
        elif found.weights is not None and dim % base.dim() == base.dim() - 1:
            factor = value[..., None] if isinstance(value, Tensor) else value
            smooth = (found.weights * factor).sum(-2)
        return self._smooth(out, smooth)

    def _follow(self, func: Call, args: Any, kwargs: Any) -> Any:
        """Move weights as a function moves their indices."""
        out = func(*args, **kwargs)
        found = [self.choice(value) for value in flat(args)]
        counts = [one.weights.shape[-1] for one in found if one is not None and one.weights is not None]
        if not isinstance(out, Tensor) or not counts or max(counts) > MAX_CASES or out is args[0]:
            return out

        cases = [
            func(*mapped(partial(self._weight_of, case, max(counts)), args), **kwargs) for case in range(max(counts))
        ]
        self.keep(Choice(out, lambda: torch.stack(cases, -1)))
        return out

    def _weight_of(self, case: int, count: int, value: Any) -> Any:
        """Return the weight of one case; of an index that is no choice, whether it is this case."""
        if not isinstance(value, Tensor):
            return value
        weights = self._weights(value, count)
        return (value == case).to(torch.get_default_dtype()) if weights is None else weights[..., case]


_MAKERS: Final[Mapping[str, Callable[..., Any]]] = {
    **dict.fromkeys(("argmax", "argmin"), ChoiceRules._arg),
    **dict.fromkeys(("max", "min"), ChoiceRules._extreme),
    **dict.fromkeys(("topk", "sort"), ChoiceRules._top),
    "argsort": ChoiceRules._order,
    "multinomial": ChoiceRules._draw_places,
    **dict.fromkeys(("bernoulli", "poisson", "normal"), ChoiceRules._draw),
    **dict.fromkeys(("bucketize", "searchsorted"), ChoiceRules._interval),
}
"""Functions that choose or draw."""

_USERS: Final[Mapping[str, Callable[..., Any]]] = {
    "one_hot": ChoiceRules._one_hot,
    "bincount": ChoiceRules._count,
    **dict.fromkeys(("eq", "ne"), ChoiceRules._equal),
    "mode": ChoiceRules._mode,
    **dict.fromkeys(("long", "int", "float", "double", "half", "to", "type", "type_as"), ChoiceRules._cast),
    "embedding": ChoiceRules._embed,
    "getitem": ChoiceRules._item,
    **dict.fromkeys(("gather", "take_along_dim"), ChoiceRules._cases),
    **dict.fromkeys(("scatter", "scatter_add"), ChoiceRules._scatter),
    **dict.fromkeys(("stack", "cat", "concat", "detach"), ChoiceRules._follow),
}
"""Functions of what was chosen."""
