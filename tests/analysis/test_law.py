"""The law, the frontier and explained variance, against statsmodels and against what must come out."""

import numpy as np
import pytest
import statsmodels.api as sm

from robustassay.analysis import law
from robustassay.errors import BadRequest


def scattered(n=9, noise=0.02, seed=0):
    draw = np.random.default_rng(seed)
    accuracy = draw.uniform(0.5, 0.95, n)
    return accuracy, 0.3 + 0.1 * np.log(1 - accuracy) + noise * draw.normal(size=n)


def test_an_exact_law_is_found():
    accuracy, distortion = scattered(noise=0)
    found = law.fit_law(accuracy, distortion)
    assert (found.a, found.b) == pytest.approx((0.3, 0.1))
    assert found.explained == pytest.approx(1)
    assert found.halving() == pytest.approx(0.1 * np.log(2))
    # halving the error costs what it says
    twice, once = found.at([0.8, 0.9])[0]
    assert twice - once == pytest.approx(found.halving())


def test_intervals_are_those_of_statsmodels():
    accuracy, distortion = scattered()
    ours = law.fit_law(accuracy, distortion, 0.9)
    theirs = sm.OLS(distortion, sm.add_constant(np.log(1 - accuracy))).fit()
    assert (ours.a, ours.b) == pytest.approx(tuple(theirs.params))
    np.testing.assert_allclose([ours.a_interval, ours.b_interval], theirs.conf_int(0.1))
    assert ours.explained == pytest.approx(theirs.rsquared)
    assert ours.p_value == pytest.approx(theirs.pvalues[1])
    places = np.array([0.6, 0.8, 0.99])
    mean, low, high = ours.at(places)
    frame = theirs.get_prediction(np.stack((np.ones(3), np.log(1 - places)), 1)).summary_frame(alpha=0.1)
    np.testing.assert_allclose([mean, low, high], frame[["mean", "mean_ci_lower", "mean_ci_upper"]].to_numpy().T)


@pytest.mark.parametrize(
    ("accuracy", "values"), [([0.5, 0.6], [1, 2]), ([0.5] * 4, range(4)), ([0.5, 0.6, 1.0], [1, 2, 3])]
)
def test_a_law_that_cannot_be_fitted_is_refused(accuracy, values):
    with pytest.raises(BadRequest):
        law.fit_law(accuracy, list(values))


def test_the_frontier_holds_what_nothing_beats():
    accuracy = [0.9, 0.8, 0.7, 0.8, 0.6, 0.9]
    robustness = [0.1, 0.3, 0.5, 0.2, 0.4, 0.1]
    assert law.frontier(accuracy, robustness).tolist() == [True, True, True, False, False, True]
    draw = np.random.default_rng(1)
    x, y = draw.random(40), draw.random(40)
    on = law.frontier(x, y)
    by_hand = [
        not any((x[j] >= x[i] and y[j] >= y[i]) and (x[j] > x[i] or y[j] > y[i]) for j in range(40)) for i in range(40)
    ]
    assert on.tolist() == by_hand
    order = np.argsort(x[on])
    assert (np.diff(y[on][order]) < 0).all()  # which is why a slope fitted to it can only have one sign


def test_variance_explained_is_that_of_statsmodels():
    draw = np.random.default_rng(2)
    groups = list("aabbbccd")
    values = np.array([ord(group) for group in groups]) + 0.3 * draw.normal(size=8)
    ours = law.explained_by_group(values, groups)
    member = np.array([[group == name for name in "abcd"] for group in groups], float)
    theirs = sm.OLS(values, member).fit()
    assert ours.share == pytest.approx(theirs.rsquared)
    assert ours.adjusted == pytest.approx(theirs.rsquared_adj)
    size = draw.normal(size=8)
    line = sm.OLS(values, sm.add_constant(size)).fit()
    by_size = law.explained_by_number(values, size)
    assert (by_size.share, by_size.adjusted) == pytest.approx((line.rsquared, line.rsquared_adj))
    assert ours.p_value < 0.01
    assert by_size.p_value == pytest.approx(line.pvalues[1], abs=0.12)  # shuffling, not normal errors
    assert ours.share > by_size.share


def test_a_group_that_means_nothing_explains_nothing():
    draw = np.random.default_rng(3)
    found = [law.explained_by_group(draw.normal(size=12), list("aabbccddeeff"), seed) for seed in range(30)]
    assert np.mean([one.share for one in found]) > 0.3  # five means for twelve models catch that much by chance
    assert abs(np.mean([one.adjusted for one in found])) < 0.15
    assert 0.35 < np.mean([one.p_value for one in found]) < 0.65
