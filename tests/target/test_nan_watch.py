"""NaN in logits or gradients ends a run: at once, or at the next check."""

import pytest
import torch

from robustassay.errors import ModelFailed
from robustassay.target import SurrogateFailed
from robustassay.target.nan_watch import CHECK_EVERY, NanWatch

NAN = torch.tensor([0.0, torch.nan])
INFINITE = torch.tensor([0.0, torch.inf])


def test_nan_is_raised_at_once() -> None:
    with pytest.raises(ModelFailed, match="returned NaN"):
        NanWatch(ModelFailed).see_logits(NAN)
    with pytest.raises(ModelFailed, match="gradient is NaN"):
        NanWatch(ModelFailed).see_gradient(NAN)


def test_a_late_watch_raises_when_checked_and_only_once() -> None:
    watch = NanWatch(ModelFailed, late=True)
    watch.see_gradient(NAN)
    watch.see_gradient(torch.zeros(2))
    with pytest.raises(ModelFailed, match="gradient is NaN"):
        watch.check()
    watch.check()


def test_a_late_watch_checks_by_itself_every_so_many_iterations() -> None:
    watch = NanWatch(ModelFailed, late=True)
    watch.see_logits(NAN)
    for _ in range(CHECK_EVERY - 1):
        watch.count_iteration()
    with pytest.raises(ModelFailed, match="returned NaN"):
        watch.count_iteration()


def test_infinity_counts_in_reduced_precision_only() -> None:
    NanWatch(ModelFailed).see_logits(INFINITE)
    with pytest.raises(SurrogateFailed):
        NanWatch(SurrogateFailed, finite=True).see_logits(INFINITE)


def test_what_is_forgotten_is_not_raised() -> None:
    watch = NanWatch(ModelFailed, late=True)
    watch.see_logits(NAN)
    watch.discard()
    watch.check()
