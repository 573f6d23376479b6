"""The smallest perturbation onto a hyperplane inside the pixel box: it changes the label of a linear model.

Flat perturbations `[rows, n]` with lower <= 0 <= upper, as in `norms`. Only values that help move, each between zero
and its bound; all grow together until the sum is reached (Croce & Hein 2020, arXiv:1907.02044, who sort the points
where values reach their bounds).
"""

from typing import Final

import torch
from torch import Tensor

from robustassay.threat.norms import L1, L2, LInf, Norm

_TINY: Final = torch.finfo(torch.float64).tiny
_HUGE: Final = torch.finfo(torch.float64).max  # not infinity: infinity times a zero slope is NaN


def onto_hyperplane(norm: Norm, w: Tensor, c: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Return, in float64, the smallest d in the box with <w, d> = c, or the one that comes nearest to c.

    Values that cannot help stay unchanged: of several smallest perturbations, the one that changes fewest values.
    """
    w, need = w.double(), c.double().abs()[:, None]
    helps = torch.where(c[:, None] < 0, -w, w)
    room = (helps > 0).double() * upper - (helps < 0).double() * lower
    if isinstance(norm, LInf):
        size = torch.minimum(_level(need, w.abs(), room), room)
    elif isinstance(norm, L2):
        full_at = torch.where(w == 0, 0, room / w.abs()).clamp(max=_HUGE)
        size = torch.minimum(_level(need, w.square(), full_at) * w.abs(), room)
    elif isinstance(norm, L1):
        size = _steepest_first(need, w.abs(), room)
    else:
        raise TypeError(f"no projection onto a hyperplane is known for {norm.name}")
    return size * helps.sign()


def _level(need: Tensor, rate: Tensor, full_at: Tensor) -> Tensor:
    """Find the level t at which values that each give rate * min(t, full_at) give `need` in all.

    Where they cannot, the level is beyond all bounds, so that every value reaches its bound. What they give is concave
    in t, so Newton's method from below never passes the solution, and ends in a few steps at it. Sums over a part of
    the values multiply by 0 and 1: on a CPU, filling by a mask takes ten times as long.
    """
    most = rate * full_at
    level = (need / rate.sum(-1, keepdim=True).clamp(min=_TINY)).clamp(max=_HUGE)
    while True:
        has_room = (full_at > level).to(rate.dtype)
        rate_left = (rate * has_room).sum(-1, keepdim=True)
        given_by_full = (most * (1 - has_room)).sum(-1, keepdim=True)
        found = torch.where(rate_left > 0, (need - given_by_full) / rate_left.clamp(min=_TINY), _HUGE).clamp(max=_HUGE)
        if bool((found <= level).all()):
            return torch.maximum(found, level)
        level = torch.maximum(found, level)


def _steepest_first(need: Tensor, slope: Tensor, room: Tensor) -> Tensor:
    """Move the value of the steepest slope up to its bound, then the next."""
    slope, order = slope.sort(dim=-1, descending=True, stable=True)
    room = room.gather(-1, order)
    most = slope * room
    left = (need - (most.cumsum(-1) - most)).clamp(min=0)
    return torch.zeros_like(room).scatter_(-1, order, torch.minimum(left / slope.clamp(min=_TINY), room))
