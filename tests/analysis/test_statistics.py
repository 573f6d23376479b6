"""Intervals, paired tests, ranks and sample sizes, against scipy, statsmodels, networkx and simulation."""

from itertools import pairwise

import networkx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as peer_mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from robustassay.analysis import intervals, ranks
from robustassay.analysis.compare import Paired, compare, mcnemar, pair
from robustassay.analysis.power import power_of, samples_needed
from robustassay.analysis.rates import Rate
from robustassay.errors import BadRequest

COUNTS = st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
CONFIDENCE = st.sampled_from([0.5, 0.9, 0.95, 0.99])


# ---------------------------------------------------------------- intervals of a rate


@given(COUNTS, CONFIDENCE)
def test_intervals_equal_those_of_scipy_and_statsmodels(counts, confidence):
    count, total = counts
    for ours, scipys, theirs in (("wilson", "wilson", "wilson"), ("exact", "exact", "beta")):
        found = Rate(count, total).interval(confidence, ours)  # type: ignore[arg-type]
        peer = stats.binomtest(count, total).proportion_ci(confidence, method=scipys)
        assert found == pytest.approx((peer.low, peer.high), abs=1e-10)
        assert found == pytest.approx(proportion_confint(count, total, 1 - confidence, theirs), abs=1e-10)


def test_an_array_of_counts_gives_what_each_gives_alone():
    counts = np.arange(51)
    for of, method in ((intervals.wilson, "wilson"), (intervals.clopper_pearson, "exact")):
        low, high = of(counts, 50, 0.9)
        assert list(zip(low, high, strict=True)) == [Rate(int(k), 50).interval(0.9, method) for k in counts]  # type: ignore[arg-type]
        assert (np.diff(low) > 0).all()
        assert (np.diff(high) > 0).all()


def test_the_ends_of_the_scale_are_reached_and_nothing_says_nothing():
    for method in ("wilson", "exact"):
        assert Rate(0, 7).interval(method=method)[0] == 0
        assert Rate(7, 7).interval(method=method)[1] == 1
        assert Rate(0, 0).interval(method=method) == (0, 1)
    with pytest.raises(BadRequest, match="between 0 and 1"):
        Rate(1, 2).interval(95)


# ---------------------------------------------------------------- two sides on the same samples


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_equals_statsmodels_and_scipy(first, second):
    found = mcnemar(first, second)
    assert found == pytest.approx(peer_mcnemar([[5, first], [second, 9]], exact=True).pvalue, rel=1e-9)
    if first + second:
        assert found == pytest.approx(stats.binomtest(first, first + second).pvalue, rel=1e-9)


def table(standing: list[bool], clean_ok: list[bool] | None = None, ids: list[str] | None = None) -> pd.DataFrame:
    right = [True] * len(standing) if clean_ok is None else clean_ok
    return pd.DataFrame(
        {"sample_id": ids or list(map(str, range(len(standing)))), "clean_ok": right, "success": ~np.array(standing)}
    )


def test_runs_are_compared_sample_by_sample_whatever_their_order():
    first = table([True, True, True, False, True], ids=list("abcde"))
    second = table([False, True, True, True, True], [True, True, True, True, False], ids=list("ecdba"))
    assert compare(first, second) == Paired(both=2, only_first=2, only_second=1, neither=0)
    assert compare(first, second).difference == pytest.approx(1 / 5)
    assert compare(second, first).difference == pytest.approx(-1 / 5)
    assert compare(first, second.iloc[:2]) == Paired(both=1, only_first=1, only_second=0, neither=0)
    with pytest.raises(BadRequest, match="share no sample"):
        compare(first, second.iloc[:0])


def test_the_bootstrap_agrees_with_scipys_on_the_samples_themselves():
    found = Paired(both=40, only_first=25, only_second=10, neither=45)
    outcomes = [(1, 1)] * 40 + [(1, 0)] * 25 + [(0, 1)] * 10 + [(0, 0)] * 45
    difference = np.array([one - other for one, other in outcomes])
    peer = stats.bootstrap(
        (difference,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(5)
    ).confidence_interval
    assert found.bootstrap(resamples=20_000) == pytest.approx((peer.low, peer.high), abs=1.01 / 120)
    assert found.bootstrap(seed=3) == found.bootstrap(seed=3)
    ends = {found.bootstrap(resamples=50, seed=seed) for seed in range(8)}
    assert len(ends) > 1
    low, high = found.bootstrap(0.5)
    assert found.bootstrap(0.99)[0] < low < found.difference < high < found.bootstrap(0.99)[1]


@pytest.mark.parametrize(("ahead", "behind", "n"), [(0.15, 0.05, 200), (0.02, 0.01, 300), (0.3, 0.3, 60)])
def test_intervals_of_a_difference_hold_the_truth_as_often_as_they_say(ahead, behind, n):
    drawn = np.random.default_rng(0).multinomial(n, [ahead, behind, 1 - ahead - behind], 1500)
    held = {"interval": 0, "bootstrap": 0}
    for first, second, rest in drawn.tolist():
        found = Paired(rest, first, second, 0)
        for name, (low, high) in (("interval", found.interval()), ("bootstrap", found.bootstrap(resamples=400))):
            held[name] += low <= ahead - behind <= high
    assert 0.935 < held["interval"] / 1500 < 0.985
    assert 0.90 < held["bootstrap"] / 1500 < 0.99


def test_where_no_sample_differs_the_interval_still_has_a_width():
    low, high = Paired(50, 0, 0, 50).interval()
    assert low == -high
    assert 0.02 < high < 0.05
    assert Paired(50, 0, 0, 50).bootstrap() == (0, 0)
    assert Paired(50, 0, 0, 50).chance == 1


# ---------------------------------------------------------------- ranks


@settings(max_examples=12)  # statsmodels takes a tenth of a second a call
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_equals_statsmodels(chances):
    assert ranks.holm(chances) == pytest.approx(multipletests(chances, method="holm")[1])


def outcome(good: int, total: int, start: int = 0) -> pd.Series:
    stands = np.zeros(total, dtype=bool)
    stands[start : start + good] = True
    return pd.Series(stands, index=[str(k) for k in range(total)])


def test_entries_that_cannot_be_told_apart_share_a_group_and_a_range_of_ranks():
    found = ranks.rank(
        {"low": outcome(20, 200), "middle": outcome(26, 200), "high": outcome(32, 200), "top": outcome(90, 200)}
    )
    assert [place.name for place in found.places] == ["top", "high", "middle", "low"]
    assert found.groups == (("top",), ("high", "middle"), ("middle", "low"))
    assert found.letters() == {"top": "a", "high": "b", "middle": "b c", "low": "c"}
    assert [(place.best, place.worst) for place in found.places] == [(1, 1), (2, 3), (2, 4), (3, 4)]
    assert found.chances[frozenset(("high", "low"))] == pytest.approx(3 * 2 * 0.5**12)
    one_by_one = mcnemar(6, 0)
    assert one_by_one < 0.05 < found.chances[frozenset(("high", "middle"))], "told apart but for the correction"


def test_equal_entries_are_rarely_told_apart_and_ranges_hold_the_true_ranks():
    draw = np.random.default_rng(0)
    ids = list(map(str, range(150)))
    false_alarms = 0
    for _ in range(300):
        chance = draw.uniform(size=150)
        equal = {name: pd.Series(draw.uniform(size=150) < chance, ids) for name in "abcd"}
        false_alarms += len(ranks.rank(equal).groups) > 1
    assert false_alarms / 300 < 0.06

    missed = 0
    truth = {"a": 0.75, "b": 0.7, "c": 0.45, "d": 0.2}
    for _ in range(200):
        hard = draw.uniform(size=150)
        found = ranks.rank(
            {name: pd.Series(0.7 * hard + 0.3 * draw.uniform(size=150) < p, ids) for name, p in truth.items()}
        )
        places = {place.name: place for place in found.places}
        missed += any(not places[name].best <= at <= places[name].worst for at, name in enumerate("abcd", 1))
    assert missed / 200 < 0.06
    assert places["d"].best == places["d"].worst == 4


@given(
    st.integers(1, 9).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))))
    )
)
def test_groups_are_the_largest_sets_of_entries_alike(drawn):
    n, edges = drawn
    graph = networkx.Graph()
    graph.add_nodes_from(map(str, range(n)))
    graph.add_edges_from((str(a), str(b)) for a, b in edges if a != b)
    found = ranks._cliques({name: set(graph[name]) for name in graph}, set(), set(graph), set())
    assert sorted(map(sorted, found)) == sorted(map(sorted, networkx.find_cliques(graph)))


def test_a_hundred_equal_entries_are_one_group_at_once():
    found = ranks.rank({f"m{k:03}": outcome(30, 60) for k in range(100)})
    assert [len(group) for group in found.groups] == [100]
    assert {(place.best, place.worst) for place in found.places} == {(1, 100)}


def test_ranks_of_runs_use_robust_accuracy_and_refuse_other_samples():
    parts = {"weak": table([False] * 40 + [True] * 10), "strong": table([True] * 45 + [False] * 5)}
    found = ranks.rank_runs(parts)
    assert [(place.name, place.rate) for place in found.places] == [("strong", Rate(45, 50)), ("weak", Rate(10, 50))]
    assert found.groups == (("strong",), ("weak",))
    with pytest.raises(BadRequest, match="covers other samples"):
        ranks.rank_runs({**parts, "short": parts["weak"].iloc[:20]})
    with pytest.raises(BadRequest, match="nothing to rank"):
        ranks.rank_runs({})


# ---------------------------------------------------------------- how many samples


@pytest.mark.parametrize(("ahead", "behind"), [(0.4, 0.1), (0.5, 0.0), (0.3, 0.25)])
@pytest.mark.parametrize("n", [5, 11, 24])
def test_power_equals_the_sum_over_all_tables(n, ahead, behind):
    by_hand = sum(
        stats.multinomial.pmf([first, second, n - first - second], n, [ahead, behind, 1 - ahead - behind])
        for first in range(n + 1)
        for second in range(n - first + 1)
        if first > second and peer_mcnemar([[0, first], [second, 0]], exact=True).pvalue <= 0.05
    )
    assert power_of(n, ahead, behind) == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.parametrize(("first", "second", "disagreement"), [(0.5, 0.45, 0.1), (0.6, 0.5, None), (0.44, 0.41, 0.05)])
def test_the_sample_size_is_the_first_that_is_enough(first, second, disagreement):
    n = samples_needed(first, second, disagreement)
    differ = disagreement or first * (1 - second) + second * (1 - first)
    ahead, behind = (differ + first - second) / 2, (differ - first + second) / 2
    powers = [power_of(k, ahead, behind) for k in (n - 1, n)]
    assert powers[0] < 0.8 <= powers[1]
    assert all(power_of(k, ahead, behind) > 0.79 for k in range(n, n + 40))
    drawn = np.random.default_rng(0).multinomial(n, [ahead, behind, 1 - differ], 1500)
    told = np.mean([a > b and mcnemar(a, b) <= 0.05 for a, b, _ in drawn.tolist()])
    assert told == pytest.approx(0.8, abs=0.035)
    assert samples_needed(second, first, disagreement) == n
    assert samples_needed(first, second, disagreement, power=0.95) > n
    assert samples_needed(first, second, disagreement, confidence=0.99) > n


def test_models_that_fail_together_need_fewer_samples():
    sizes = [samples_needed(0.5, 0.45, part) for part in (0.05, 0.1, 0.2, 0.4)]
    assert all(fewer < more for fewer, more in pairwise(sizes))
    assert samples_needed(0.5, 0.45) == samples_needed(0.5, 0.45, 0.5)


def test_a_pilot_gives_the_disagreement():
    pilot = pair(outcome(60, 100), outcome(50, 100, start=15))
    assert pilot.disagreement == pytest.approx(0.2)
    assert samples_needed(0.6, 0.5, pilot.disagreement) < samples_needed(0.6, 0.5)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((0.5, 0.5), "No test separates"),
        ((0.5, 1.5), "between 0 and 1"),
        ((0.5, 0.4, 0.05), "differ on 0.1 to 0.9 of the samples"),
        ((0.5, 0.4, 0.2, 1.0), "power must lie"),
        ((0.5, 0.4, 0.2, 0.8, 95), "confidence must lie"),
    ],
)
def test_impossible_requests_get_a_sentence(arguments, sentence):
    with pytest.raises(BadRequest, match=sentence):
        samples_needed(*arguments)
