"""Random streams: the same numbers whatever a sample's mates are, and numbers that are really random.

Statistical bounds are five standard errors or p > 1e-4 on fixed seeds: a sound generator passes, and passes for ever.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from robustassay.rng import Streams
from tests.support.toys import Numbers, names

DRAWS: dict[str, Callable[[Streams], Tensor]] = {
    "uniform": lambda rng: rng.uniform(3, 5),
    "normal": lambda rng: rng.normal(3, 5),
    "rademacher": lambda rng: rng.rademacher(3, 5),
    "integers": lambda rng: rng.integers(1000, 3, 5),
    "permutation": lambda rng: rng.permutation(15),
}
MANY = 200_000


def flat(values: Tensor) -> Numbers:
    return values.double().flatten().numpy()


def of_many_rows(draw: Callable[[Streams], Tensor], rows: int = 2000) -> Tensor:
    return draw(Streams.of(0, names(rows)))


# ---------------------------------------------------------------- identity


@pytest.mark.parametrize("kind", DRAWS)
def test_a_row_draws_the_same_alone_shuffled_and_in_company(kind: str) -> None:
    draw, ids = DRAWS[kind], names(20)
    together = draw(Streams.of(7, ids))
    alone = torch.cat([draw(Streams.of(7, [sample])) for sample in ids])
    order = np.random.default_rng(0).permutation(20)
    shuffled = draw(Streams.of(7, [ids[i] for i in order]))
    halves = torch.cat([draw(Streams.of(7, ids[:11])), draw(Streams.of(7, ids[11:]))])
    assert torch.equal(together, alone)
    assert torch.equal(together[order], shuffled)
    assert torch.equal(together, halves)


@given(st.data())
def test_sub_views_in_any_pattern_draw_what_each_row_would_draw_alone(data: st.DataObject) -> None:
    """Each row must see its own 1st, 2nd, 3rd ... draw, however views are nested and interleaved."""
    rows = 6
    root = Streams.of(3, names(rows))
    views = [(root, torch.arange(rows))]
    alone = [Streams.of(3, [sample]) for sample in names(rows)]
    for _ in range(data.draw(st.integers(1, 8))):
        view, held = views[data.draw(st.integers(0, len(views) - 1))]
        if data.draw(st.booleans()):
            mask = torch.tensor(
                data.draw(st.lists(st.booleans(), min_size=len(held), max_size=len(held))), dtype=torch.bool
            )
            views.append((view.among(mask), held[mask]))
        else:
            drawn = view.uniform(4)
            expected = [alone[row].uniform(4) for row in held.tolist()]
            assert torch.equal(drawn, torch.cat(expected) if expected else drawn)


def test_among_takes_indices_in_any_order_as_well_as_masks() -> None:
    whole = Streams.of(1, names(5)).normal(6)
    assert torch.equal(Streams.of(1, names(5)).among(torch.tensor([4, 0, 2])).normal(6), whole[[4, 0, 2]])


def test_seed_sample_and_draw_each_change_the_numbers() -> None:
    rng = Streams.of(0, ["a"])
    first, second = rng.uniform(64), rng.uniform(64)
    assert not torch.equal(first, second)
    assert not torch.equal(first, Streams.of(1, ["a"]).uniform(64))
    assert not torch.equal(first, Streams.of(0, ["b"]).uniform(64))
    assert torch.equal(first, Streams.of(0, ["a"]).uniform(64))


def test_torch_global_seed_is_neither_used_nor_moved() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    one = Streams.of(0, ["a"]).normal(8)
    assert torch.equal(torch.rand(3), expected)
    torch.manual_seed(1)
    assert torch.equal(Streams.of(0, ["a"]).normal(8), one)


def test_golden_values_pin_the_generator() -> None:
    """Stored results hang on these: change them only together with SPEC_VERSION."""
    rng = Streams.of(0, ["0", "cifar10/1"])
    uniform, normal, integers = rng.uniform(3), rng.normal(3), rng.integers(10, 8)
    assert (uniform * 2**24).int().tolist() == GOLDEN["uniform"]
    np.testing.assert_allclose(normal.numpy(), GOLDEN["normal"], rtol=1e-6)
    assert integers.tolist() == GOLDEN["integers"]
    assert rng.rademacher(8).int().tolist() == GOLDEN["rademacher"]
    assert rng.permutation(6).tolist() == GOLDEN["permutation"]
    bits = (Streams.of(5, ["x"]).uniform(1000) * 2**24).int().numpy().tobytes()
    assert hashlib.sha256(bits).hexdigest()[:16] == GOLDEN["sha256 of 1000 uniforms"]


GOLDEN: dict[str, Any] = {
    "uniform": [[11039133, 13577986, 8331279], [360481, 14095699, 9421754]],
    "normal": [[0.0118534174, -1.52445698, -0.93918103], [-0.230303809, 0.438291222, 0.233740792]],
    "integers": [[7, 0, 0, 0, 4, 1, 0, 1], [8, 4, 0, 1, 1, 2, 7, 8]],
    "rademacher": [[-1, 1, 1, 1, -1, 1, 1, -1], [-1, 1, -1, 1, 1, 1, -1, 1]],
    "permutation": [[5, 2, 0, 3, 4, 1], [2, 1, 5, 4, 0, 3]],
    "sha256 of 1000 uniforms": "cf300e34ca616780",
}


def test_words_are_those_of_splitmix64_in_plain_python() -> None:
    """A second implementation, with Python's unbounded integers, of what the module's docstring promises."""
    seed, sample, low64 = 11, "some/sample", (1 << 64) - 1

    def finalise(z: int) -> int:
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & low64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & low64
        return z ^ (z >> 31)

    golden = 0x9E3779B97F4A7C15
    key = int.from_bytes(hashlib.blake2b(f"{seed}/{sample}".encode(), digest_size=8).digest(), "little")
    rng = Streams.of(seed, [sample])
    for draw in range(3):
        block = finalise((key + draw * golden) & low64)
        words = [finalise((block + i * golden) & low64) for i in range(1, 51)]
        assert rng.integers(2**62, 50)[0].tolist() == [word >> 2 for word in words]


# ---------------------------------------------------------------- distributions


@pytest.mark.parametrize("one_row", [True, False], ids=["along a row", "across rows"])
def test_uniform_fills_the_unit_interval_evenly(one_row: bool) -> None:
    values = flat(Streams.of(0, ["x"]).uniform(MANY) if one_row else of_many_rows(lambda rng: rng.uniform(100)))
    assert values.min() >= 0
    assert values.max() < 1
    assert stats.kstest(values, "uniform").pvalue > 1e-4


def test_uniform_is_on_the_grid_that_float32_holds_exactly() -> None:
    scaled = Streams.of(0, names(4)).uniform(5000).double() * 2**24
    assert torch.equal(scaled, scaled.round())


@pytest.mark.parametrize("one_row", [True, False], ids=["along a row", "across rows"])
def test_normal_has_the_moments_and_shape_of_a_normal(one_row: bool) -> None:
    values = flat(Streams.of(0, ["x"]).normal(MANY) if one_row else of_many_rows(lambda rng: rng.normal(100)))
    n = len(values)
    assert abs(values.mean()) < 5 / np.sqrt(n)
    assert abs(values.var() - 1) < 5 * np.sqrt(2 / n)
    assert abs(stats.skew(values)) < 5 * np.sqrt(6 / n)
    assert abs(stats.kurtosis(values)) < 5 * np.sqrt(24 / n)
    assert stats.kstest(values, "norm").pvalue > 1e-4


def test_normal_pairs_of_one_transform_are_independent() -> None:
    """Box and Muller make two values of one word: neither they nor their squares may correlate."""
    values = Streams.of(0, ["x"]).normal(MANY)[0].double()
    first, second = values[: MANY // 2], values[MANY // 2 :]
    for a, b in ((first, second), (first.square(), second.square())):
        assert abs(np.corrcoef(a.numpy(), b.numpy())[0, 1]) < 5 / np.sqrt(MANY // 2)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_odd_and_even_sizes_are_equally_good(size: int) -> None:
    assert abs(flat(of_many_rows(lambda rng: rng.normal(size), 20_000)).var() - 1) < 5 * np.sqrt(2 / (20_000 * size))
    assert abs(flat(of_many_rows(lambda rng: rng.uniform(size), 20_000)).mean() - 0.5) < 5 * np.sqrt(
        1 / (12 * 20_000 * size)
    )


def test_rademacher_is_fair_and_has_two_values() -> None:
    values = flat(Streams.of(0, ["x"]).rademacher(MANY))
    assert set(values) == {-1.0, 1.0}
    assert abs(values.mean()) < 5 / np.sqrt(MANY)


@pytest.mark.parametrize("high", [1, 2, 3, 10, 256])
def test_integers_cover_their_range_evenly(high: int) -> None:
    values = Streams.of(0, ["x"]).integers(high, MANY)
    assert values.dtype == torch.int64
    counts = torch.bincount(values.flatten(), minlength=high).numpy()
    assert len(counts) == high
    assert high == 1 or stats.chisquare(counts).pvalue > 1e-4


def test_integers_reach_far_and_stay_inside() -> None:
    values = flat(Streams.of(0, ["x"]).integers(2**40, MANY)) / 2**40
    assert values.max() < 1
    assert stats.kstest(values, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("one_row", [True, False], ids=["draw after draw", "row by row"])
def test_all_24_permutations_of_four_come_up_equally_often(one_row: bool) -> None:
    if one_row:
        rng = Streams.of(0, ["x"])
        drawn = torch.cat([rng.permutation(4) for _ in range(5000)])
    else:
        drawn = of_many_rows(lambda rng: rng.permutation(4), 24_000)
    assert torch.equal(drawn.sort(1).values, torch.arange(4).expand(len(drawn), 4))
    _, counts = np.unique(drawn @ torch.tensor([64, 16, 4, 1]), return_counts=True)
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > 1e-4


# ---------------------------------------------------------------- independence


def correlation(a: Tensor, b: Tensor) -> float:
    return abs(float(np.corrcoef(flat(a), flat(b))[0, 1]))


@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_neighbouring_samples_seeds_and_draws_do_not_correlate(kind: str) -> None:
    def draw(rng: Streams) -> Tensor:
        return rng.uniform(500) if kind == "uniform" else rng.normal(500)

    rows = 200
    limit = 5 / np.sqrt(rows * 499)
    rng = Streams.of(0, [str(i) for i in range(rows)])
    first, second = draw(rng), draw(rng)
    assert correlation(first[:-1], first[1:]) < limit, "sample ids n and n + 1"
    assert correlation(first, draw(Streams.of(1, [str(i) for i in range(rows)]))) < limit, "seeds 0 and 1"
    assert correlation(first, second) < limit, "draws 1 and 2"
    assert correlation(first[:, :-1], first[:, 1:]) < limit, "values n and n + 1 of a draw"
    assert correlation(first[:, :-1], second[:, 1:]) < limit, "a draw is not the last one shifted"


def test_no_value_of_any_stream_is_seen_twice() -> None:
    """All words come from one 64-bit permutation, so streams that overlap would repeat whole values."""
    rng = Streams.of(0, names(50))
    words = torch.cat([rng.integers(2**62, 400) for _ in range(5)], 1).flatten()
    assert len(np.unique(words.numpy())) == len(words)


def test_copies_of_a_row_draw_apart_and_belong_to_it_alone() -> None:
    together = Streams.of(0, names(5)).copied(3)
    drawn = together.integers(2**62, 7)
    assert drawn.shape == (15, 7)
    assert len(np.unique(drawn.flatten().numpy())) == 15 * 7
    alone = Streams.of(0, names(5)[3:4]).copied(3).integers(2**62, 7)
    assert torch.equal(alone, drawn[9:12])
    assert not torch.equal(together.integers(2**62, 7), drawn), "the next draw is another one"


@pytest.mark.parametrize("draws", [1, 2])
def test_steps_drawn_ahead_have_the_numbers_of_one_draw_after_the_other(draws: int) -> None:
    rng, other = Streams.of(3, names(4)).among(torch.tensor([0, 2, 3])), Streams.of(3, names(4))
    ahead = rng.ahead(5, draws)
    first, second = ahead.normal(3, 2).unflatten(0, (3, 5)), ahead.uniform(7).unflatten(0, (3, 5))
    kept = other.among(torch.tensor([0, 2, 3]))
    for step in range(5):
        assert torch.equal(first[:, step], kept.normal(3, 2))
        if draws == 2:
            assert torch.equal(second[:, step], kept.uniform(7))
    assert torch.equal(rng.draws, kept.draws), "the next draw goes on behind them"
