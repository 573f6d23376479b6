"""Prior-guided random gradient-free method."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from robustassay import models
from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.common.gradient_estimate import Rise, forward, height, on_sphere, slope, sphere
from robustassay.errors import BadRequest, ModelFailed
from robustassay.registry import register
from robustassay.target import LocalModel, ScoreAccess
from robustassay.threat import L2, LInf, per_row

NONE: Final = "none"
SURROGATE_BATCH: Final = 128

MEASURED_EVERY: Final = 10
"""How many steps an estimate of the slope's length serves."""
MEASURED_WITH: Final = 10
"""How many directions it takes."""

Prior = Callable[[ScoreAccess, Tensor], Tensor]


@final
@register("attack", "prgf")
@dataclass(frozen=True)
class PRGF(Attack[ScoreAccess]):
    """RGF whose directions lean towards a surrogate's gradient (Cheng et al. 2019, arXiv:1906.06919).

    A step looks, asks one point along the surrogate's gradient, every tenth time ten more to learn how long the
    slope is, and mixes by the closed form: `samples` directions that share the gradient, or the gradient alone, which
    costs nothing more. `surrogate` is a model of the zoo with the classes of the target; its gradients are no
    queries. With "none" the prior is a random direction: a surrogate that knows nothing. Without the authors' data
    prior and their search for a sigma; the loss is the margin.
    """

    info = AttackInfo(
        papers=("1906.06919",),
        formula="as rgf with u = sqrt(w) * v + sqrt(1 - w) * u', v the surrogate's gradient, u' orthogonal to it\n"
        "w by closed form from the cosine between v and the slope, itself estimated from queries",
        reference="thu-ml/Prior-Guided-RGF",
    )
    access = ScoreAccess
    norms = (LInf, L2)

    steps: int = 370
    samples: int = 50
    sigma: float = 1e-3
    rel_step: float = 0.1
    surrogate: str = "resnet20-natural"

    def __call__(self, view: ScoreAccess, x0: Tensor) -> Tensor:
        """Climb along what the surrogate knows and what queries add to it."""
        prior = _prior(self.surrogate, x0)
        x, length = x0, torch.zeros(len(x0), dtype=torch.float64, device=x0.device)
        for step in range(self.steps):
            here = height(view, x)
            x, here, length = view.drop_finished(x, here, length)
            rise = forward(view, x, here, self.sigma)
            if step % MEASURED_EVERY == 0:
                length = _length(view, rise, x)
            guide = on_sphere(prior(view, x)[:, None])
            n = x[0].numel()
            along = rise(guide)[:, 0].double()
            cosine = torch.where(length > 0, along / (n**0.5 * length), 0).clamp(-1, 1)
            guide = guide * per_row(torch.where(cosine < 0, -1.0, 1.0), guide[:, 0])[:, None]
            weight = mixing_weight(cosine.square(), n, self.samples)
            climb = self._climb(view, x, here, guide, weight)
            x = view.ball.step(x, climb, self.rel_step * view.ball.eps)
        return x

    def _climb(self, view: ScoreAccess, x: Tensor, here: Tensor, guide: Tensor, weight: Tensor) -> Tensor:
        """Return the guide itself where it is trusted alone, and ask around it elsewhere."""
        climb, asks = guide[:, 0].clone(), weight < 1
        if not asks.any():
            return climb
        box = view.subset(asks)
        guide, weight = guide[asks], weight[asks].float()[:, None]

        def draw(n: int) -> Tensor:
            noise = box.rng.normal(n, *x.shape[1:])
            overlap = (noise * guide).flatten(2).mean(2, dtype=torch.float64).float()
            aside = on_sphere(noise - per_row(overlap, noise) * guide)
            return per_row(weight.sqrt(), noise) * guide + per_row((1 - weight).sqrt(), noise) * aside

        climb[asks] = slope(forward(box, x[asks], here[asks], self.sigma), draw, self.samples)
        return climb


def mixing_weight(squared_cosine: Tensor, n: int, samples: int) -> Tensor:
    """Return how much of each direction should be the prior, given its squared cosine with the true slope.

    The weight that brings the estimate from so many directions, in n dimensions, nearest to the slope: none for a
    prior worse than chance, all for one better than anything the queries could add (theorem 1 of the paper).
    """
    a, m = squared_cosine, n + 2 * samples - 2
    mixed = (1 - a) * (a * m - 1) / (2 * a * n * samples - a.square() * n * m - 1)
    weight = torch.where(a * m >= 2 * samples - 1, 1.0, mixed)
    return torch.where(a * m <= 1, 0.0, weight)


def _length(view: ScoreAccess, rise: Rise, x: Tensor) -> Tensor:
    """Estimate the Euclidean length of the slope: along directions of mean square one its mean square is that."""
    return rise(sphere(view, x)(MEASURED_WITH)).double().square().mean(1).sqrt()


def _prior(name: str, x0: Tensor) -> Prior:
    """Open the surrogate, and try it on one image before queries are spent."""
    if name == NONE:
        return lambda view, x: view.rng.normal(*x.shape[1:])
    network = LocalModel(models.load(name, x0.device), models.card(name).classes, x0.device, SURROGATE_BATCH)
    try:
        network.logits(x0[:1])
    except ModelFailed as error:
        raise BadRequest(f"P-RGF: the surrogate {name} takes no images of shape {tuple(x0.shape[1:])}.") from error

    def gradient(view: ScoreAccess, x: Tensor) -> Tensor:
        if int(view.goal.labels.max()) >= network.classes:
            raise BadRequest(f"P-RGF: the surrogate {name} knows {network.classes} classes, fewer than the target.")
        return network.gradient(x, lambda logits, goal: goal.loss(logits), view.goal)[0]

    return gradient
