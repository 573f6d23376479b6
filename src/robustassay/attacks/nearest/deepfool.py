"""DeepFool."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.errors import BadRequest
from robustassay.registry import register
from robustassay.target import GradientAccess
from robustassay.threat import L2, LInf


@final
@register("attack", "deepfool")
@dataclass(frozen=True)
class DeepFool(Attack[GradientAccess]):
    """Steps to the nearest boundary of the linearised model (Moosavi-Dezfooli et al. 2016, arXiv:1511.04599)."""

    info = AttackInfo(
        papers=("1511.04599",),
        formula="for each class t: w_t = grad z_t - grad z_y, f_t = z_y - z_t\n"
        "total <- total + the shortest step d with w_t . d = f_t, over all t;  x = clip(x0 + (1 + overshoot) * total)",
        reference="adv-lib, foolbox",
    )
    access = GradientAccess
    norms = (L2, LInf)
    seeks_minimum = True
    can_target = False

    steps: int = 50
    overshoot: float = 0.02
    """Part by which a step goes beyond the boundary of the linearised model."""
    candidates: int = 10
    """Number of likeliest classes that are tried, the image's own among them."""

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        """Add up the steps until the label changes, with a small overshoot."""
        classes = self._nearest_classes(view, view.scores(x0))
        x, total = x0, torch.zeros_like(x0)
        for _ in range(self.steps):
            jacobian, logits = view.jacobian(x, classes)
            total = total + _step(view, x, jacobian, logits.gather(1, classes))
            x = (view.ball.centre + (1 + self.overshoot) * total).clamp(0, 1)
            view.mark_finished(view.goal.reached(view.scores(x)))
            x, total, classes = view.drop_finished(x, total, classes)
        return x

    def _nearest_classes(self, view: GradientAccess, logits: Tensor) -> Tensor:
        """Return the label of each row and, after it, the classes to try."""
        others = min(self.candidates, logits.shape[1]) - 1
        if others < 1:
            raise BadRequest("DeepFool: candidates counts the image's own class too, so it must be at least 2.")
        own = view.goal.labels[:, None]
        order = logits.scatter(1, own, -torch.inf).argsort(dim=1, descending=True, stable=True)
        return torch.cat((own, order[:, :others]), 1)


def _step(view: GradientAccess, x: Tensor, jacobian: Tensor, logits: Tensor) -> Tensor:
    """Return the smallest step to any class's boundary, if the model were linear; pixels at 0 or 1 stay there."""
    w = (jacobian[:, 1:] - jacobian[:, :1]).flatten(2)
    behind = (logits[:, :1] - logits[:, 1:]).double()
    point = x.flatten(1)[:, None]
    w = w.masked_fill(((point <= 0) & (w < 0)) | ((point >= 1) & (w > 0)), 0)

    dual = view.ball.norm.dual.size(w)
    distance = behind / dual.clamp(min=1e-30)
    nearest = torch.where(dual > 0, distance, torch.inf).argmin(1)
    rows = torch.arange(len(x), device=x.device)
    w, dual = w[rows, nearest], dual[rows, nearest]
    length = torch.where(dual > 0, distance[rows, nearest], 0.0) + 1e-6  # at a tie the distance is zero
    return view.ball.norm.steepest(w, w, w, length.float()).view_as(x)
