"""CLEVER, an estimate of the smallest adversarial distance (Weng et al. 2018, arXiv:1801.10578).

It is neither a bound nor an attack: it is the margin divided by an estimate of the local Lipschitz constant. Where
gradients are masked it is far too high (Goodfellow 2018, arXiv:1804.07870).

The largest gradient norm of each of many batches of random points in a ball is kept. Such maxima tend to a reverse
Weibull distribution, whose end point estimates the Lipschitz constant. The estimate is at most the radius of the ball.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, final

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from robustassay.analysis.weibull import Fit, fit_reverse_weibull
from robustassay.errors import BadRequest
from robustassay.rng import Streams
from robustassay.target import TargetModel
from robustassay.threat import L0, Ball, Goal, LeastLikely, Norm, RandomTarget, Untargeted, labels_of
from robustassay.threat.losses import ranked_classes

Aim = Literal["untargeted", "random", "least-likely", "runner-up"]
Numbers = npt.NDArray[np.float64]

POINTS_PER_QUERY: Final = {"cpu": 256, "cuda": 2048}
VALUES_PER_QUERY: Final = 1 << 24
"""Points per query, by type of device, and pixel values; they change speed and memory, never results."""


@final
@dataclass(frozen=True)
class Clever:
    """The settings of the estimate; the radius of the norm is that of the ball, and the largest possible estimate.

    The authors take 500 batches of 1,024 points, and a radius of 5 in L2; half as many batches change little.
    """

    norm: Norm
    batches: int = 500
    samples: int = 1024  # per batch
    aims: tuple[Aim, ...] = ("untargeted", "random", "least-likely", "runner-up")
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.norm, L0):
            raise BadRequest(f"CLEVER is known under Linf, L2 and L1, not under {self.norm.name}: choose one of these.")
        if self.batches < 2 or self.samples < 1 or not self.aims:
            raise BadRequest("CLEVER needs at least 2 batches of at least 1 sample, and at least one aim.")

    @property
    def gradients(self) -> int:
        """Number of gradients per image."""
        return self.batches * self.samples

    def __call__(self, target: TargetModel, x: Tensor, ids: Sequence[str]) -> pd.DataFrame:
        """Estimate per image and aim; the label is the model's prediction, right or wrong.

        A row has sample_id, aim, label, target (the nearest by estimate, where untargeted), margin (of the logits),
        slope (the estimated Lipschitz constant), steepest (the largest gradient norm), estimate, capped (by the
        radius), and of the fit its shape, p_value (Kolmogorov-Smirnov) and fell_back (to the largest gradient norm).
        """
        logits = target.mean_logits(x)
        labels = labels_of(logits)
        aims = self._classes(ids, labels, logits)
        classes = torch.cat(list(aims.values()), 1)
        maxima = self._maxima(target, x, labels, classes, ids)
        margins = (logits.gather(1, labels[:, None]) - logits.gather(1, classes)).double().cpu().numpy()
        rows: list[dict[str, Any]] = []
        for at, sample in enumerate(ids):
            start = 0
            for aim, aimed in aims.items():
                columns = range(start, start := start + aimed.shape[1])
                candidates = [self._row(int(classes[at, k]), margins[at, k], maxima[at, k]) for k in columns]
                nearest = min(candidates, key=lambda row: float(row["estimate"]))
                rows.append({"sample_id": sample, "aim": aim, "label": int(labels[at]), **nearest})
        return pd.DataFrame(rows)

    def _classes(self, ids: Sequence[str], labels: Tensor, logits: Tensor) -> dict[Aim, Tensor]:
        """Return the classes of each aim, `[rows, k]`: all others if untargeted."""
        others = ranked_classes(logits, Untargeted(labels), logits.shape[1] - 1)
        found: dict[Aim, Tensor] = {
            "untargeted": others,
            "random": RandomTarget().choose(ids, labels, logits, self.seed)[:, None],
            "least-likely": LeastLikely().choose(ids, labels, logits, self.seed)[:, None],
            "runner-up": others[:, :1],
        }
        return {aim: found[aim] for aim in self.aims}

    def _maxima(self, target: TargetModel, x: Tensor, labels: Tensor, classes: Tensor, ids: Sequence[str]) -> Numbers:
        """Return the largest gradient norm of each margin per batch, `[rows, k, batches]`."""
        ball = Ball(self.norm, x, torch.full((len(x),), self.norm.eps, device=x.device))
        rng = Streams.of(self.seed, [f"clever/{sample}" for sample in ids], x.device)
        found = torch.zeros(len(x), classes.shape[1], self.batches, dtype=torch.float64, device=x.device)
        for draws in _chunks(self.gradients, max(1, _points(x) // len(x))):
            points = torch.stack([ball.sample(rng) for _ in draws], 1).flatten(0, 1)
            owner = torch.arange(len(x), device=x.device).repeat_interleave(len(draws))
            sizes = _gradient_norms(target, points, labels[owner], classes[owner], self.norm.dual.order)
            batch = torch.tensor(draws, device=x.device) // self.samples
            by_row = sizes.view(len(x), len(draws), -1).transpose(1, 2)
            found = found.scatter_reduce(2, batch.expand(by_row.shape), by_row, "amax")
        return found.cpu().numpy()

    def _row(self, target: int, margin: float, maxima: Numbers) -> dict[str, Any]:
        fit: Fit = fit_reverse_weibull(maxima)
        reach = margin / fit.end if fit.end > 0 else np.inf
        return {
            "target": target,
            "margin": float(margin),
            "slope": fit.end,
            "steepest": float(maxima.max()),
            "estimate": float(min(reach, self.norm.eps)),
            "capped": bool(reach >= self.norm.eps),
            "shape": fit.shape,
            "p_value": fit.p_value,
            "fell_back": fit.fell_back,
        }


def _points(x: Tensor) -> int:
    """Return how many points one query holds: fewer where images are large."""
    return min(POINTS_PER_QUERY.get(x.device.type, 256), max(64, VALUES_PER_QUERY // x[:1].numel()))


def _gradient_norms(target: TargetModel, points: Tensor, labels: Tensor, classes: Tensor, order: float) -> Tensor:
    """Return the gradient norm of each margin at each point, `[n, k]`."""
    if classes.shape[1] == 1:  # one backward pass instead of two
        gradient, _ = target.gradient(points, _margin, Untargeted(labels), classes)
        gradients = gradient[:, None]
    else:
        jacobian, _ = target.jacobian(points, torch.cat((labels[:, None], classes), 1))
        gradients = jacobian[:, :1] - jacobian[:, 1:]
    sizes: Tensor = torch.linalg.vector_norm(gradients.flatten(2).double(), order, dim=2)
    return sizes


def _margin(logits: Tensor, goal: Goal, classes: Tensor) -> Tensor:
    return (logits.gather(1, goal.labels[:, None]) - logits.gather(1, classes)).squeeze(1)


def _chunks(n: int, size: int) -> Iterator[range]:
    for start in range(0, n, size):
        yield range(start, min(start + size, n))
