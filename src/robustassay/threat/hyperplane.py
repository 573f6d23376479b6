"""The smallest move onto a hyperplane inside the pixel box: what a linear model takes to change its mind.

Flat perturbations `[rows, n]` with lower <= 0 <= upper, as in `norms`. Only values whose slope helps move, each
between zero and the room it has, so the problem is one of filling: how far must all go together until the sum is
right. Sorting the points where a value meets its wall finds the answer exactly (Croce & Hein 2020,
arXiv:1907.02044).
"""

from typing import Final

import torch
from torch import Tensor

from robustassay.threat.norms import L1, L2, LInf, Norm

_TINY: Final = torch.finfo(torch.float64).tiny
_HUGE: Final = torch.finfo(torch.float64).max  # and not infinity, which times a slope of zero is no number


def onto_hyperplane(norm: Norm, w: Tensor, c: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Return, in float64, the smallest d in the box with <w, d> = c, or the one that comes nearest to c.

    Values that cannot help stay where they are: of several smallest moves, the one that touches least.
    """
    w, need = w.double(), c.double().abs()[:, None]
    helps = torch.where(c[:, None] < 0, -w, w)
    room = torch.where(helps > 0, upper, -lower).double().masked_fill(w == 0, 0)
    if isinstance(norm, LInf):
        size = torch.minimum(_level(need, w.abs(), room), room)
    elif isinstance(norm, L2):
        full_at = torch.where(w == 0, 0, room / w.abs())
        size = torch.minimum(_level(need, w.square(), full_at) * w.abs(), room)
    elif isinstance(norm, L1):
        size = _steepest_first(need, w.abs(), room)
    else:
        raise TypeError(f"no projection onto a hyperplane is known for {norm.name}")
    return size * helps.sign()


def _level(need: Tensor, rate: Tensor, full_at: Tensor) -> Tensor:
    """Find the level t at which values that each give rate * min(t, full_at) give `need` in all.

    The level is beyond all walls where they cannot, so that everything fills up.
    """
    full_at, order = full_at.sort(-1)
    rate = rate.gather(-1, order)
    most = rate * full_at
    given_by_full = most.cumsum(-1) - most
    rate_left = rate.flip(-1).cumsum(-1).flip(-1)
    given = given_by_full + rate_left * full_at
    first = (given < need).sum(-1, keepdim=True)
    at = first.clamp(max=rate.shape[-1] - 1)
    level = (need - given_by_full.gather(-1, at)) / rate_left.gather(-1, at).clamp(min=_TINY)
    return torch.where(first < rate.shape[-1], level, _HUGE)


def _steepest_first(need: Tensor, slope: Tensor, room: Tensor) -> Tensor:
    """Let the value of steepest slope go up to its wall, then the next."""
    slope, order = slope.sort(dim=-1, descending=True, stable=True)
    room = room.gather(-1, order)
    most = slope * room
    left = (need - (most.cumsum(-1) - most)).clamp(min=0)
    return torch.zeros_like(room).scatter_(-1, order, torch.minimum(left / slope.clamp(min=_TINY), room))
