"""Boxes of a service: points are rounded to what is really sent before anyone counts, measures or claims them.

So what is claimed is what survives the encoding, and its distance is that of the encoded image.
"""

import copy
from typing import Any, Final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack
from robustassay.errors import BadRequest
from robustassay.remote.service import RemoteModel
from robustassay.target import DecisionAccess, ScoreAccess, TargetModel
from robustassay.target.access import Ask
from robustassay.threat import Ball, per_row, where_rows

FINEST: Final = 0.5 / 255
"""A smaller change of a value is rounded away."""

HALVINGS: Final = 8
"""How finely a point that rounding carried out of its ball is drawn back."""


class SentDecisions(DecisionAccess):
    """Shows the labels of images as they are sent."""

    def _ask(self, x: Tensor, ask: Ask, passes: tuple[int, int]) -> tuple[Tensor, Tensor]:
        return super()._ask(_sent(self._network, x, self.ball, self._ledger.seeks_minimum), ask, passes)


class SentScores(ScoreAccess):
    """Shows the scores of images as they are sent."""

    def _ask(self, x: Tensor, ask: Ask, passes: tuple[int, int]) -> tuple[Tensor, Tensor]:
        return super()._ask(_sent(self._network, x, self.ball, self._ledger.seeks_minimum), ask, passes)


_SENT: Final[dict[type[DecisionAccess], type[DecisionAccess]]] = {
    DecisionAccess: SentDecisions,
    ScoreAccess: SentScores,
}


def over_the_wire(network: TargetModel, attack: Attack[Any]) -> Attack[Any]:
    """Return the attack as it meets a service; unchanged where the network is none."""
    if not isinstance(network, RemoteModel):
        return attack
    if attack.access not in _SENT:
        raise BadRequest(
            f"{type(attack).__name__} needs gradients, which a service does not show: use one on scores, such as "
            "square or nes, or on labels, such as boundary or hopskipjump."
        )
    if issubclass(attack.access, ScoreAccess) and not network.shows_scores:
        raise BadRequest(
            f"{type(attack).__name__} needs scores, and the service shows labels only: use an attack on labels, such "
            "as boundary or hopskipjump."
        )
    sigma = getattr(attack, "sigma", None)
    if network.service.adapter.eight_bits and isinstance(sigma, float) and sigma < FINEST:
        raise BadRequest(
            f"{type(attack).__name__} probes with steps of sigma={sigma:g}, which 8 bits a value cannot show: use "
            "sigma=0.01 or so, or it would see no change and the service look robust."
        )
    wired = copy.copy(attack)
    object.__setattr__(wired, "access", _SENT[attack.access])
    return wired


def as_sent(network: TargetModel, x: Tensor) -> Tensor:
    """Return images as the network is shown them: unchanged where it is no service."""
    return network.as_sent(x) if isinstance(network, RemoteModel) else x


def _sent(network: TargetModel, x: Tensor, ball: Ball, any_distance: bool) -> Tensor:
    """Round points; those that rounding would carry out of their ball are drawn towards the clean image first."""
    sent = as_sent(network, x)
    if sent is x or any_distance:
        return sent
    out = ball.holds(x, ball.distance(x)) & ~ball.holds(sent, ball.distance(sent))
    if not bool(out.any()):
        return sent
    centre = ball.centre if x.dim() == ball.centre.dim() else ball.centre[:, None]
    low, high, best = torch.zeros_like(out, dtype=x.dtype), torch.ones_like(out, dtype=x.dtype), centre.expand_as(x)
    for _ in range(HALVINGS):
        part = (low + high) / 2
        point = as_sent(network, centre + per_row(part, x) * (x - centre))
        inside = ball.holds(point, ball.distance(point))
        best = where_rows(inside, point, best)
        low, high = torch.where(inside, part, low), torch.where(inside, high, part)
    return where_rows(out, best, sent)
