"""What must hold whatever comes: laws of norms, projections, rates, curves, streams and the store, tried on any input.

Other files hold these to known answers; here are the laws that need none, and sequences of events nobody would write.
"""

import contextlib
import errno
import os
import shutil
import string
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from scipy.stats import binom

from robustassay import data
from robustassay.analysis import curves, rates
from robustassay.analysis.intervals import clopper_pearson, wilson
from robustassay.eps import format_eps, parse_eps
from robustassay.errors import BadData, StoreFailed
from robustassay.evaluation.spec import RunSpec
from robustassay.evaluation.verify import measure
from robustassay.records import SCHEMA, to_pandas
from robustassay.rng import Streams
from robustassay.store import Store
from robustassay.threat import L0, L1, L2, Ball, LInf, Norm

NORMS: dict[str, type[Norm]] = {"Linf": LInf, "L2": L2, "L1": L1, "L0": L0}
CONVEX = ("Linf", "L2", "L1")
D = 6
PIXELS = st.sampled_from([0.0, 1.0, 0.5]) | st.floats(0, 1, width=32)
FAR = st.sampled_from([0.0, 1.0]) | st.floats(-3, 4, width=32)
IMAGES = arrays(np.float32, (1, D), elements=PIXELS)
POINTS = arrays(np.float32, (1, D), elements=FAR)
ROUNDING = 1e-5

every_norm = pytest.mark.parametrize("norm", NORMS)
every_convex_norm = pytest.mark.parametrize("norm", CONVEX)


def ball(norm: str, centre: "np.ndarray", eps: float) -> Ball:
    return Ball(
        NORMS[norm](1.0), torch.from_numpy(centre), torch.tensor([max(1.0, round(eps)) if norm == "L0" else eps])
    )


# ---------------------------------------------------------------- norms and projections


@every_norm
@given(x=POINTS, y=POINTS, scale=st.floats(-3, 3, width=32))
def test_a_distance_is_a_norm(norm, x, y, scale):
    """Zero is nothing, the way round is never shorter, and twice the way is twice as far (but for L0, which counts)."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    assert measure(0 * x, norm)[0] == 0
    assert measure(x + y, norm)[0] <= measure(x, norm)[0] + measure(y, norm)[0] + 1e-9
    factor = float(scale != 0) if norm == "L0" else abs(scale)
    assert measure(scale * x, norm)[0] == pytest.approx(factor * measure(x, norm)[0], abs=1e-9)
    assert measure(x, norm)[0] > 0 or not x.any()


@given(x=POINTS)
def test_the_norms_enclose_each_other(x):
    linf, l2, l1, l0 = (measure(x.astype(np.float64), norm)[0] for norm in ("Linf", "L2", "L1", "L0"))
    assert linf <= l2 + 1e-9
    assert l2 <= l1 + 1e-9
    assert l1 <= l0 * linf + 1e-9
    assert l1 <= np.sqrt(max(l0, 0)) * l2 + 1e-9


@every_convex_norm
@given(centre=IMAGES, x=POINTS, other=POINTS, eps=st.floats(1e-3, 2))
def test_no_point_of_the_ball_is_nearer_than_the_projection(norm, centre, x, other, eps):
    """The law of projections onto convex sets: seen from the projection, no feasible point lies towards x."""
    one = ball(norm, centre, eps)
    nearest, feasible = one.project(torch.from_numpy(x)), one.project(torch.from_numpy(other))
    away = (torch.from_numpy(x).double() - nearest.double()).flatten()
    assert float(away @ (feasible.double() - nearest.double()).flatten()) <= ROUNDING * (1 + float(away.norm()))


@every_convex_norm
@given(centre=IMAGES, x=POINTS, other=POINTS, eps=st.floats(1e-3, 2))
def test_projecting_brings_no_two_points_farther_apart(norm, centre, x, other, eps):
    one = ball(norm, centre, eps)
    apart = (one.project(torch.from_numpy(x)).double() - one.project(torch.from_numpy(other)).double()).norm()
    assert float(apart) <= np.linalg.norm(x.astype(np.float64) - other.astype(np.float64)) + ROUNDING


@every_norm
@given(centre=IMAGES, x=POINTS, eps=st.floats(1e-3, 6), more=st.floats(0, 3))
def test_a_larger_ball_holds_what_a_smaller_one_does_and_projects_no_farther(norm, centre, x, eps, more):
    small, large = ball(norm, centre, eps), ball(norm, centre, eps + more)
    point = torch.from_numpy(x)
    inside = small.project(point)
    assert bool(large.holds(inside, large.distance(inside)).all())
    assert (large.project(point) - point).norm() <= (inside - point).norm() + ROUNDING


@every_convex_norm
@given(centre=IMAGES, x=POINTS, eps=st.floats(1e-3, 6), order=st.permutations(range(D)))
def test_no_pixel_is_special(norm, centre, x, eps, order):
    turned = ball(norm, centre[:, order], eps).project(torch.from_numpy(x[:, order]))
    np.testing.assert_allclose(turned, ball(norm, centre, eps).project(torch.from_numpy(x))[:, order], atol=ROUNDING)


@every_norm
@given(centre=IMAGES, gradient=POINTS, eps=st.floats(1e-3, 6), length=st.floats(1e-3, 1))
def test_no_step_leaves_the_ball_or_goes_downhill(norm, centre, gradient, eps, length):
    one = ball(norm, centre, eps)
    stepped = one.step(one.centre, torch.from_numpy(gradient), torch.tensor([length if norm != "L0" else 1.0]))
    assert bool(one.holds(stepped, one.distance(stepped)).all())
    assert float(((stepped - one.centre) * torch.from_numpy(gradient)).sum()) >= -ROUNDING


@given(st.integers(1, 255), st.floats(1e-6, 1e3))
def test_a_radius_reads_back_as_it_was_written(level, eps):
    for value in (level / 255, eps):
        assert parse_eps(format_eps(value)) == value
    assert parse_eps(f"{level}/255") == level / 255


# ---------------------------------------------------------------- rates and curves

COUNTS = st.integers(0, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.parametrize("interval", [wilson, clopper_pearson])
@given(counts=COUNTS, confidence=st.floats(0.5, 0.999))
def test_an_interval_holds_its_rate_and_mirrors_its_complement(interval, counts, confidence):
    count, total = counts
    low, high = (float(end) for end in interval(count, total, confidence))
    assert 0 <= low <= high <= 1
    assert not total or low <= count / total <= high
    mirrored = interval(total - count, total, confidence)
    assert (1 - float(mirrored[1]), 1 - float(mirrored[0])) == pytest.approx((low, high), abs=1e-9)
    wider = interval(count, total, 0.9995)
    assert float(wider[0]) <= low + 1e-9
    assert float(wider[1]) >= high - 1e-9
    if 0 < count < total:
        narrower = interval(4 * count, 4 * total, confidence)
        assert narrower[1] - narrower[0] < high - low


@given(total=st.integers(1, 60), truth=st.floats(0.001, 0.999), confidence=st.sampled_from([0.8, 0.95, 0.99]))
def test_the_exact_interval_covers_the_truth_as_often_as_it_says(total, truth, confidence):
    """Summed over all outcomes, without a simulation."""
    outcomes = np.arange(total + 1)
    low, high = clopper_pearson(outcomes, total, confidence)
    covered = binom.pmf(outcomes, total, truth)[(low <= truth) & (truth <= high)].sum()
    assert covered >= confidence - 1e-9


SAMPLES = st.lists(
    st.tuples(st.booleans(), st.none() | st.floats(0.01, 2)), min_size=1, max_size=12
)  # right when clean, and what it takes to break


def records_of(rows: "list[tuple[bool, float | None]]", eps: float) -> pd.DataFrame:
    """Records of an attack that seeks the minimum; a clean mistake is broken by nothing."""
    columns: dict[str, list[Any]] = {name: [None] * len(rows) for name in SCHEMA.names}
    found = [0.0 if not right else distance for right, distance in rows]
    columns |= {
        "sample_id": [f"s{k}" for k in range(len(rows))],
        "label": [0] * len(rows),
        "clean_ok": [right for right, _ in rows],
        "claimed": [distance is not None for distance in found],
        "valid": [None if distance is None else True for distance in found],
        "success": [distance is not None and distance <= eps for distance in found],
        "distance": found,
        "margin": [1.0] * len(rows),
        "improvements": [
            [{"iteration": 1, "query": 1, "distance": distance}] if distance else [] for distance in found
        ],
        **{name: [1] * len(rows) for name in ("iterations", "forwards", "backwards", "queries", "seconds")},
        "claimed_at_query": [None if distance is None else int(distance > 0) for distance in found],
        "claimed_at_iteration": [None if distance is None else int(distance > 0) for distance in found],
    }
    return to_pandas(pa.table(columns, schema=SCHEMA))


def manifest_of(eps: float) -> dict[str, object]:
    threat = {"norm": "L2", "eps": eps, "target": None, "query_budget": None}
    return {"title": "a", "key": "k", "spec": {"threat": threat, "attack": {"name": "fmn"}, "model": {"name": "m"}}}


@given(rows=SAMPLES, eps=st.floats(0.05, 2), places=st.lists(st.floats(0, 3), min_size=1, max_size=5))
def test_a_curve_says_at_every_eps_what_records_of_that_eps_would_say(rows, eps, places):
    curve = curves.of_run(manifest_of(eps), records_of(rows, eps), "eps", "accuracy", None)
    for place in (eps, *places):
        again = rates.robust_accuracy(records_of(rows, place))
        assert curve.at(place) == again
    low_to_high = [curve.at(place).count for place in sorted(places)]
    assert low_to_high == sorted(low_to_high, reverse=True), "more room never helps the defender"


@given(rows=st.lists(SAMPLES, min_size=2, max_size=4), eps=st.floats(0.05, 2))
def test_the_worst_case_is_that_of_every_attack_in_any_order(rows, eps):
    n = min(map(len, rows))
    right = [ok for ok, _ in rows[0][:n]]
    parts = {f"a{k}": records_of([(right[at], one[at][1]) for at in range(n)], eps) for k, one in enumerate(rows)}
    worst = rates.worst_case(parts).set_index("sample_id")
    turned = rates.worst_case(dict(reversed(parts.items()))).set_index("sample_id")
    each = np.stack([part["success"].to_numpy(bool) for part in parts.values()])
    assert worst["success"].tolist() == each.any(0).tolist()
    assert turned.loc[worst.index]["success"].tolist() == worst["success"].tolist()
    assert turned.loc[worst.index]["distance"].equals(worst["distance"])
    assert (worst["queries"] == len(parts)).all(), "what all of them cost together"
    assert rates.robust_accuracy(worst).count <= min(rates.robust_accuracy(part).count for part in parts.values())


# ---------------------------------------------------------------- streams, identities

IDS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), min_size=1, max_size=8, unique=True)


@given(ids=IDS, seed=st.integers(-(2**70), 2**70), chosen=st.data())
def test_a_sample_draws_its_numbers_whatever_it_is_called_and_whoever_is_beside_it(ids, seed, chosen):
    together = Streams.of(seed, ids).uniform(4)
    some = chosen.draw(st.lists(st.integers(0, len(ids) - 1), min_size=1, unique=True))
    assert torch.equal(Streams.of(seed, [ids[row] for row in some]).uniform(4), together[some])
    assert len({tuple(row) for row in together.tolist()}) == len(ids), "no two samples share a stream"
    assert not torch.equal(Streams.of(seed + 1, ids).uniform(4), together)
    assert ((together >= 0) & (together < 1)).all()


@given(
    ids=IDS, draws=st.lists(st.sampled_from(["uniform", "normal", "integers", "rademacher"]), min_size=1, max_size=4)
)
def test_no_draw_depends_on_how_many_values_the_one_before_took(ids, draws):
    one, other = Streams.of(0, ids), Streams.of(0, ids)
    for position, kind in enumerate(draws):
        size = (7,) if kind != "integers" else (1000, 7)
        short = (3,) if kind != "integers" else (1000, 3)
        long, brief = getattr(one, kind)(*size), getattr(other, kind)(*short)
        assert len(long) == len(brief) == len(ids)
        if position + 1 < len(draws):
            continue
        assert torch.equal(getattr(one, kind)(*size), getattr(other, kind)(*size))


JSON = st.dictionaries(st.text(string.ascii_letters, max_size=5), st.integers() | st.text(max_size=5), max_size=4)


@given(fields=st.tuples(JSON, JSON, JSON, JSON), seed=st.integers(0, 9), other=JSON)
def test_a_run_is_another_exactly_if_something_in_it_is(fields, seed, other):
    model, dataset, threat, attack = fields
    spec = RunSpec(model, dataset, threat, attack, seed)
    shuffled = RunSpec(*(dict(reversed(one.items())) for one in fields), seed)  # type: ignore[call-arg, arg-type]
    assert shuffled.key == spec.key, "the order of settings is none of its settings"
    assert (RunSpec(other, dataset, threat, attack, seed).key == spec.key) == (other == model)
    assert RunSpec(model, dataset, threat, attack, seed + 1).key != spec.key


@given(text=st.text(min_size=1, max_size=5))
def test_any_id_is_kept_or_refused_at_the_start(text):
    """An id that cannot be written down later must not cost a run."""
    try:
        kept = data.from_arrays(np.zeros((1, 3, 2, 2), np.float32), [0], ids=[text])
    except BadData:
        assert any("\ud800" <= letter <= "\udfff" for letter in text)
        return
    assert pa.array(kept.ids).to_pylist() == [text]


def test_an_id_that_no_file_can_hold_is_refused():
    with pytest.raises(BadData, match="cannot be written"):
        data.from_arrays(np.zeros((1, 3, 2, 2), np.float32), [0], ids=["\ud800"])


# ---------------------------------------------------------------- the store, through any story

ROWS = st.lists(st.integers(0, 15), min_size=1, max_size=4, unique=True)


class StoreStory(RuleBasedStateMachine):
    """Appends, crashes at any step of a write, damage and repair, in any order; a dict says what must be there."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="assay-story-"))
        self.manifest = {"key": "k", "title": "t"}
        self.store = Store.open(self.folder / "run", self.manifest)
        self.known: dict[str, int] = {}
        self.pictured: dict[str, float] = {}
        self.failed: set[str] = set()

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _table(self, rows: list[int]) -> pa.Table:
        """A sample has one record whoever writes it, as in a run."""
        columns: dict[str, list[Any]] = {name: [None] * len(rows) for name in SCHEMA.names}
        columns |= {"sample_id": [f"s{row}" for row in rows], "label": rows}
        return pa.table(columns, schema=SCHEMA)

    def _images(self, rows: list[int]) -> torch.Tensor:
        return torch.tensor(rows, dtype=torch.float32).view(-1, 1, 1, 1).expand(-1, 3, 2, 2)

    @rule(rows=ROWS, pictures=st.booleans())
    def append(self, rows: list[int], pictures: bool) -> None:
        self.store.append(self._table(rows), self._images(rows) if pictures else None)
        self.known |= {f"s{row}": row for row in rows}
        if pictures:
            self.pictured |= {f"s{row}": float(row) for row in rows}

    @rule(rows=ROWS, at=st.integers(0, 3), call=st.sampled_from(["fsync", "replace"]))
    def fail_in_the_middle(self, rows: list[int], at: int, call: str) -> None:
        """The disk is full at the n-th such call: the shard is there or not, whole, and the caller was told."""
        real, calls = getattr(os, call), [0]

        def failing(*args: object) -> object:
            calls[0] += 1
            if calls[0] == at + 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*args)

        setattr(os, call, failing)
        before = set((self.folder / "run" / "shards").glob("*.parquet"))
        told = False
        try:
            self.store.append(self._table(rows), self._images(rows))
        except StoreFailed:
            told = True
        finally:
            setattr(os, call, real)
        placed = set((self.folder / "run" / "shards").glob("*.parquet")) - before
        assert placed or told, "lost without a word"
        if placed:
            self.known |= {f"s{row}": row for row in rows}
            self.pictured |= {f"s{row}": float(row) for row in rows}

    @rule(rows=ROWS)
    def model_fails(self, rows: list[int]) -> None:
        self.store.note_failures({f"s{row}": "it broke" for row in rows})
        self.failed |= {f"s{row}" for row in rows}

    @rule()
    def a_kill_leaves_a_file_half_written(self) -> None:
        (self.folder / "run" / "shards" / ".half.parquet.tmp").write_bytes(b"PAR1")

    @rule()
    def open_again(self) -> None:
        self.store = Store.open(self.folder / "run", self.manifest)

    @rule(place=st.integers(0, 10**6))
    def a_bit_flips_and_the_shard_is_deleted_as_told(self, place: int) -> None:
        shards = sorted((self.folder / "run" / "shards").glob("*.parquet"))
        if not shards:
            return
        shard = shards[place % len(shards)]
        content = bytearray(shard.read_bytes())
        content[place % len(content)] ^= 1
        shard.write_bytes(content)
        with contextlib.suppress(StoreFailed):
            self.store.records()
            raise AssertionError("a flipped bit was read as a record")
        shard.unlink()
        shard.with_suffix(".safetensors").unlink(missing_ok=True)
        kept = self.store.records()["sample_id"].to_pylist()
        self.known = {sample: label for sample, label in self.known.items() if sample in kept}
        self.pictured = {sample: self.pictured[sample] for sample in self.store.images()}

    @invariant()
    def says_what_was_written(self) -> None:
        if not hasattr(self, "store"):
            return
        table = self.store.records()
        found = dict(zip(table["sample_id"].to_pylist(), table["label"].to_pylist(), strict=True))
        assert found == self.known
        assert len(table) == len(found), "one record a sample"
        assert self.store.done() == self.known.keys()
        assert {sample: float(image.mean()) for sample, image in self.store.images().items()} == self.pictured
        assert self.store.done(with_images=True) == self.pictured.keys()
        assert self.store.failures().keys() == self.failed - self.known.keys()


TestStoreStory = StoreStory.TestCase
TestStoreStory.settings = settings(max_examples=25, stateful_step_count=15, deadline=None, derandomize=True)
