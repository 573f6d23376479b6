"""Finds NaN in a model's outputs, at once or, on a GPU, every `CHECK_EVERY` iterations: each check makes a GPU wait."""

from typing import Final, final

from torch import Tensor

CHECK_EVERY: Final = 50
"""Iterations between two checks of a watch that checks late."""

NAN_LOGITS: Final = (
    "The model returned NaN in the middle of the run: check it for overflow or division by zero "
    "on images inside [0, 1]."
)
NAN_GRADIENT: Final = (
    "The model's gradient is NaN on an image inside [0, 1]: look for a square root, a norm or a "
    "division at zero; an attack would not move there and the model would look robust."
)


@final
class NanWatch:
    """Records whether any logit or gradient was NaN, and raises `error` when checked.

    With `late`, nothing is raised before `check`. With `finite`, infinity counts as NaN does: reduced precision
    overflows to infinity.
    """

    def __init__(self, error: type[Exception], late: bool = False, finite: bool = False) -> None:
        self._error, self._late, self._finite = error, late, finite
        self._found: dict[str, Tensor] = {}
        self._iterations = 0

    def see_logits(self, logits: Tensor) -> None:
        """Check logits, or note the result for later."""
        self._see(logits, NAN_LOGITS)

    def see_gradient(self, gradient: Tensor) -> None:
        """Check a gradient, or note the result for later."""
        self._see(gradient, NAN_GRADIENT)

    def _see(self, values: Tensor, problem: str) -> None:
        bad = values.isfinite().logical_not().any() if self._finite else values.isnan().any()
        self._found[problem] = self._found[problem] | bad if problem in self._found else bad
        if not self._late:
            self.check()

    def check(self) -> None:
        """Raise if any value seen so far was bad."""
        for problem, found in self._found.items():
            if found:
                self.discard()
                raise self._error(problem)

    def count_iteration(self) -> None:
        """Check once every `CHECK_EVERY` iterations: soon enough to stop a broken run, too seldom to slow one down."""
        self._iterations += 1
        if self._iterations % CHECK_EVERY == 0:
            self.check()

    def discard(self) -> None:
        """Discard the results of the values seen so far, as after a run that ended early."""
        self._found = {}
