"""Losses that attacks increase, one number per row, for targeted and untargeted goals."""

from torch import Tensor

from robustassay.threat.goals import Goal, Untargeted


def own_loss(logits: Tensor, goal: Goal) -> Tensor:
    """Return the goal's own loss: cross-entropy."""
    return goal.loss(logits)


def dlr(logits: Tensor, goal: Goal) -> Tensor:
    """Difference of logits ratio (Croce & Hein 2020, arXiv:2003.01690): unchanged when logits are scaled or shifted."""
    return -goal.margin(logits) / _spread(logits, ranks=1)


def dlr_towards(logits: Tensor, goal: Goal, target: Tensor) -> Tensor:
    """DLR that pushes the true class below one chosen class; for a targeted goal, plain DLR."""
    if not isinstance(goal, Untargeted):
        return dlr(logits, goal)
    own = logits.gather(-1, goal.labels[:, None]).squeeze(-1)
    chosen = logits.gather(-1, target[:, None]).squeeze(-1)
    return (chosen - own) / _spread(logits, ranks=2)


def _spread(logits: Tensor, ranks: int) -> Tensor:
    """Highest logit minus the mean of the next `ranks` from the third on; one where there are only two classes."""
    if logits.shape[-1] < 3:
        return logits.new_ones(logits.shape[:-1])
    top = logits.topk(min(2 + ranks, logits.shape[-1]), dim=-1).values
    return top[..., 0] - top[..., 2:].mean(-1) + 1e-12


def probability_margin(logits: Tensor, goal: Goal) -> Tensor:
    """Margin between probabilities (Ma et al. 2024, arXiv:2411.15210), bounded whatever the scale of the logits."""
    # float64 for the reason given in cross_entropy: float32 exp depends on the batch
    return -goal.margin(logits.double().softmax(-1)).to(logits.dtype)


def logit_margin(logits: Tensor, goal: Goal) -> Tensor:
    """Minus the logit margin."""
    return -goal.margin(logits)


def ranked_classes(logits: Tensor, goal: Goal, count: int) -> Tensor:
    """Return the classes to aim at, likeliest first: all but the label, or the target alone."""
    if not isinstance(goal, Untargeted):
        return goal.labels[:, None]
    others = logits.scatter(1, goal.labels[:, None], float("-inf"))
    return others.argsort(dim=1, descending=True, stable=True)[:, : min(count, logits.shape[1] - 1)]
