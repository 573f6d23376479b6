"""Prior-guided random gradient-free method."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from robustassay import models
from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.gradient_estimate import (
    Derivative,
    attack_loss,
    estimate_gradient,
    forward_difference,
    on_sphere,
    sphere_directions,
)
from robustassay.errors import BadRequest, ModelFailed
from robustassay.registry import register
from robustassay.target import LocalModel, ScoreAccess
from robustassay.threat import L2, LInf, per_row

NONE: Final = "none"
SURROGATE_BATCH: Final = 128

MEASURED_EVERY: Final = 10
"""Steps between two estimates of the gradient's norm."""
MEASURED_WITH: Final = 10
"""Directions per estimate."""

Prior = Callable[[ScoreAccess, Tensor], Tensor]


@final
@register("attack", "prgf")
@dataclass(frozen=True)
class PRGF(Attack[ScoreAccess]):
    """RGF whose directions are biased towards a substitute's gradient (Cheng et al. 2019, arXiv:1906.06919).

    A step queries the present point and one point along the substitute's gradient; every tenth step ten more, to
    estimate the norm of the gradient. It then uses `samples` directions that share the prior by the closed form, or
    the prior alone, which costs no more queries. `surrogate` names the substitute, a model of the zoo with the classes
    of the target; its gradients are no queries. With "none" the prior is a random direction. Unlike the authors' code,
    there is no data prior and no search for sigma, and the loss is the margin.
    """

    info = AttackInfo(
        papers=("1906.06919",),
        formula="as rgf with u = sqrt(w) * v + sqrt(1 - w) * u', v the substitute's gradient, u' orthogonal to it\n"
        "w by closed form from the cosine between v and the gradient, itself estimated from queries",
        reference="thu-ml/Prior-Guided-RGF",
    )
    access = ScoreAccess
    norms = (LInf, L2)

    steps: int = 370
    samples: int = 50
    sigma: float = 1e-3
    rel_step: float = 0.1
    surrogate: str = "resnet20-natural"
    """Substitute model, one of the zoo, or none for random directions."""

    def __call__(self, view: ScoreAccess, x0: Tensor) -> Tensor:
        """Ascend along a mix of the surrogate's gradient and the estimated one."""
        prior = _prior(self.surrogate, x0)
        x, length = x0, torch.zeros(len(x0), dtype=torch.float64, device=x0.device)
        for step in range(self.steps):
            loss = attack_loss(view, x)
            x, loss, length = view.drop_finished(x, loss, length)
            derivative = forward_difference(view, x, loss, self.sigma)
            if step % MEASURED_EVERY == 0:
                length = _length(view, derivative, x)
            prior_direction = on_sphere(prior(view, x)[:, None])
            n = x[0].numel()
            along = derivative(prior_direction)[:, 0].double()
            cosine = torch.where(length > 0, along / (n**0.5 * length), 0).clamp(-1, 1)
            prior_direction = (
                prior_direction * per_row(torch.where(cosine < 0, -1.0, 1.0), prior_direction[:, 0])[:, None]
            )
            weight = mixing_weight(cosine.square(), n, self.samples)
            gradient = self._estimate(view, x, loss, prior_direction, weight)
            x = view.ball.step(x, gradient, self.rel_step * view.ball.eps)
        return x

    def _estimate(self, view: ScoreAccess, x: Tensor, loss: Tensor, prior_direction: Tensor, weight: Tensor) -> Tensor:
        """Return the prior where its weight is one; elsewhere, estimate the gradient around it."""
        gradient, estimated = prior_direction[:, 0].clone(), weight < 1
        if not estimated.any():
            return gradient
        some = view.subset(estimated)
        prior_direction, weight = prior_direction[estimated], weight[estimated].float()[:, None]

        def draw(n: int) -> Tensor:
            noise = some.rng.normal(n, *x.shape[1:])
            overlap = (noise * prior_direction).flatten(2).mean(2, dtype=torch.float64).float()
            aside = on_sphere(noise - per_row(overlap, noise) * prior_direction)
            return per_row(weight.sqrt(), noise) * prior_direction + per_row((1 - weight).sqrt(), noise) * aside

        gradient[estimated] = estimate_gradient(
            forward_difference(some, x[estimated], loss[estimated], self.sigma), draw, self.samples
        )
        return gradient


def mixing_weight(squared_cosine: Tensor, n: int, samples: int) -> Tensor:
    """Return how much of each direction should be the prior, given its squared cosine with the true gradient.

    The weight that brings the estimate from so many directions, in n dimensions, nearest to the gradient: none for a
    prior worse than chance, all for one better than anything the queries could add (theorem 1 of the paper).
    """
    a, m = squared_cosine, n + 2 * samples - 2
    mixed = (1 - a) * (a * m - 1) / (2 * a * n * samples - a.square() * n * m - 1)
    weight = torch.where(a * m >= 2 * samples - 1, 1.0, mixed)
    return torch.where(a * m <= 1, 0.0, weight)


def _length(view: ScoreAccess, derivative: Derivative, x: Tensor) -> Tensor:
    """Estimate the norm of the gradient: the root mean square of derivatives along directions of mean square one."""
    return derivative(sphere_directions(view, x)(MEASURED_WITH)).double().square().mean(1).sqrt()


def _prior(name: str, x0: Tensor) -> Prior:
    """Open the surrogate, and try it on one image before queries are spent."""
    if name == NONE:
        return lambda view, x: view.rng.normal(*x.shape[1:])
    surrogate = LocalModel(models.load(name, x0.device), models.card(name).classes, x0.device, SURROGATE_BATCH)
    try:
        surrogate.logits(x0[:1])
    except ModelFailed as error:
        raise BadRequest(f"P-RGF: the surrogate {name} takes no images of shape {tuple(x0.shape[1:])}.") from error

    def gradient(view: ScoreAccess, x: Tensor) -> Tensor:
        if int(view.goal.labels.max()) >= surrogate.classes:
            raise BadRequest(f"P-RGF: the surrogate {name} knows {surrogate.classes} classes, fewer than the target.")
        return surrogate.gradient(x, lambda logits, goal: goal.loss(logits), view.goal)[0]

    return gradient
