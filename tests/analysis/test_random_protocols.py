"""Three protocols for random models, against closed forms; test_trust.py has a model whose noise is known."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from robustassay.analysis.random_protocols import random_protocols


def test_the_protocols_follow_the_binomial_distribution():
    found = random_protocols(pd.DataFrame({"redrawn": [0.6, 0.9], "success": True, "clean_ok": True}), tries=5)
    assert found is not None
    assert found.one_draw == pytest.approx((0.4 + 0.1) / 2)
    assert found.any_of_several == pytest.approx((0.4**5 + 0.1**5) / 2)
    assert found.majority == pytest.approx(np.mean([binom.cdf(2, 5, share) for share in (0.6, 0.9)]))
    assert "one of 5 draws" in found.summary


def test_samples_without_a_success_are_robust_and_wrong_ones_never():
    success, clean_ok = [True, False, False, False], [True, True, True, False]
    mixed = pd.DataFrame({"redrawn": [0.8, np.nan, 0.3, np.nan], "success": success, "clean_ok": clean_ok})
    found = random_protocols(mixed)
    assert found is not None
    assert found.one_draw == pytest.approx((0.2 + 1 + 1 + 0) / 4)
    assert random_protocols(mixed.assign(redrawn=np.nan)) is None, "no random model"
