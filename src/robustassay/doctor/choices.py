"""Choices of a model, such as the place of a largest value, each with smooth weights of what could be chosen."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, final

import torch
from torch import Tensor

WIDTH: Final = 1.0
SOFT_WIDTH: Final = 4.0
"""Widths of a softened choice, as multiples of the typical spread of the values; the second one for soft rules."""

MAX_WEIGHTS: Final = 1 << 15
"""Weights per image up to which every chosen place has its own; above, a set of places has weights as a whole."""


@final
class Choice:
    """Indices, and the weights of all that could be chosen in place of each, computed where they are asked for."""

    def __init__(
        self,
        index: Tensor,
        weigh: Callable[[], Tensor | None],
        weigh_members: Callable[[], Tensor | None] = lambda: None,
        ordered: Tensor | None = None,
    ) -> None:
        self.index = index  # kept, or its id may be given to another
        self.ordered = ordered
        """The values that the indices bring into order, if they do."""
        self._weigh, self._weigh_members = weigh, weigh_members

    @cached_property
    def weights(self) -> Tensor | None:
        """The weights, `[*index.shape, count]`; None where there would be too many."""
        return self._weigh()

    @cached_property
    def members(self) -> Tensor | None:
        """The weight of each place to be among the chosen ones, in the shape of the values, where it is a set."""
        return self._weigh_members()

    def spread_over(self, count: int) -> Tensor | None:
        """Return the weights over so many values; None where they do not fit."""
        if self.weights is None or self.weights.shape[-1] > count:
            return None
        return torch.nn.functional.pad(self.weights, (0, count - self.weights.shape[-1]))

    def beside(self, index: Tensor) -> "Choice":
        """Return the same beside other indices of the same values."""
        return Choice(index, lambda: self.weights, lambda: self.members, self.ordered)


def spread(values: Tensor, dim: int, rows: int) -> Tensor:
    """Return the typical deviation along a dimension: one per image where values belong to images, else one each."""
    per_slice = values.detach().var(dim, correction=0, keepdim=True)
    if values.shape[0] == rows and dim % values.dim():
        per_slice = per_slice.mean(tuple(range(1, values.dim())), keepdim=True)
    return per_slice.sqrt().clamp(min=1e-12)


def largest(index: Tensor, values: Tensor, dim: int | None, keepdim: bool, rows: int, width: float) -> Choice:
    """Soften the place of the largest value."""

    def weigh() -> Tensor:
        given, place = (values.flatten(), 0) if dim is None else (values, dim)
        weights = (given / (width * spread(given, place, rows))).softmax(place).movedim(place, -1)
        return weights.unsqueeze(place if place >= 0 else place - 1) if keepdim and dim is not None else weights

    return Choice(index, weigh)


def in_order(index: Tensor, values: Tensor, chosen: Tensor, dim: int, rows: int, width: float) -> Choice:
    """Soften the places of the largest or smallest values, in order (SoftSort, Prillo and Eisenschlos 2020)."""
    given, ranked = values.movedim(dim, -1), chosen.movedim(dim, -1)
    count, size = ranked.shape[-1], width * spread(given, -1, rows)

    def weigh() -> Tensor | None:
        if count * given[0].numel() > MAX_WEIGHTS:
            return None
        reach = (ranked[..., :1] - ranked[..., -1:]).detach().abs() / count if count > 1 else size
        near = -(ranked[..., None] - given[..., None, :]).abs() / (width * reach.clamp(min=1e-12))[..., None]
        return near.softmax(-1).movedim(-2, dim if dim >= 0 else dim - 1)

    if count == given.shape[-1]:
        return Choice(index, weigh, ordered=values)
    return Choice(index, weigh, lambda: _members(given, ranked, 0.25 * size).movedim(-1, dim))


def _members(values: Tensor, ranked: Tensor, size: Tensor) -> Tensor:
    """Return a sigmoid around the last value that is chosen, on the side of the first."""
    limit = ranked[..., -1:].detach()
    sign = torch.where(ranked[..., :1].detach() >= limit, 1.0, -1.0)
    return torch.sigmoid(sign * (values - limit) / size)


def ranks(values: Tensor, dim: int, rows: int) -> Tensor:
    """Return how many values each one exceeds, with smooth comparisons."""
    values = values.movedim(dim, -1)
    size = 0.25 * spread(values, -1, rows)[..., None]
    return torch.sigmoid((values[..., :, None] - values[..., None, :]) / size).sum(-1).movedim(-1, dim)


def drawn(index: Tensor, weights: Tensor) -> Choice:
    """Give each draw from probabilities these probabilities."""
    shares = weights / weights.sum(-1, keepdim=True)
    return Choice(index, lambda: shares[..., None, :].expand(*index.shape, shares.shape[-1]))


def around(index: Tensor, position: Tensor, count: int) -> Tensor:
    """Return weights of the neighbours of a rounded position: a step of one moves half the weight to each side."""
    places = torch.arange(count, device=index.device)
    moved = index.to(position.dtype) + position - position.detach()
    return (1 - (moved[..., None] - places).abs() / 2).relu()


def argument(args: Any, kwargs: Any, place: int, name: str, default: Any) -> Any:
    """Return an argument that was given by its place or by its name."""
    return args[place] if len(args) > place else kwargs.get(name, default)
