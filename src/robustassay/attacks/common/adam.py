"""Adam (Kingma & Ba 2015, arXiv:1412.6980), without a learning rate: every attack scales the direction itself."""

from torch import Tensor

MEAN_DECAY, SQUARE_DECAY = 0.9, 0.999


def update_moments(mean: Tensor, square: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Return the running means of the gradient and of its square after one more gradient."""
    return (
        MEAN_DECAY * mean + 0.1 * gradient,
        SQUARE_DECAY * square + 0.001 * gradient.square(),
    )


def direction(mean: Tensor, square: Tensor, steps: int | Tensor, tiny: float = 1e-8) -> Tensor:
    """Return the update for a learning rate of one.

    `steps` counts the gradients in the moments: one number for all values, or a tensor that broadcasts to them.
    """
    return (mean / _bias(MEAN_DECAY, steps, mean)) / ((square / _bias(SQUARE_DECAY, steps, square)).sqrt() + tiny)


def _bias(decay: float, steps: int | Tensor, moment: Tensor) -> float | Tensor:
    """Return what a running mean that began at zero must be divided by."""
    return (1 - decay**steps).to(moment.dtype) if isinstance(steps, Tensor) else 1 - decay**steps
