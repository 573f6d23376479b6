"""Curves of one run against separate runs, closed forms and properties that no curve may break."""

import dataclasses
import math
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import robustassay as ra
from robustassay import Result
from robustassay.analysis import compare, curves
from robustassay.analysis.curves import Curve
from robustassay.analysis.rates import Rate, attack_success_rate, robust_accuracy
from robustassay.cli import main
from robustassay.errors import BadRequest
from robustassay.report.charts import curve_chart
from robustassay.threat import Norm
from tests.support.toys import Linear, distances, images

SAMPLES = 40


def data(seed: int = 0) -> tuple[Linear, torch.Tensor, torch.Tensor]:
    """A linear model of five classes, images, and labels of which some are wrong.

    In double precision: where the two best logits agree to the last bit, a matrix product may call the winner by
    the row that an image has in its batch.
    """
    weight = torch.tensor(np.random.default_rng(seed).normal(size=(5, 27)))
    x = images(SAMPLES, (3, 3, 3), seed)
    model = Linear(weight, -weight.sum(1) / 2)
    labels = model(x.double()).argmax(1)
    labels[::9] = (labels[::9] + 1) % 5
    return model, x, labels


def evaluate(attack: str, eps: float, norm: type[Norm] = ra.LInf, **options: object) -> Result:
    model, x, labels = data()
    return ra.evaluate(model, (x, labels), norm(eps), attack, **options)  # type: ignore[arg-type]


def fallen(result: Result) -> list[str]:
    """The samples that are not standing, from the verdicts alone."""
    records = result.records
    return sorted(records["sample_id"][~records["clean_ok"].astype(bool) | records["success"].astype(bool)])


def fallen_at(curve: Curve, where: float) -> list[str]:
    stands = curve.unbroken(where)
    return sorted(stands.index[~stands])


# ---------------------------------------------------------------- one run equals many


@pytest.mark.parametrize(
    ("attack", "norm"),
    [("fmn:steps=30", ra.LInf), ("fmn:steps=30", ra.L2), ("minimum-radius:attack=bim", ra.LInf)],
)
def test_one_run_of_a_minimum_norm_attack_equals_separate_runs_at_ten_eps(attack, norm):
    typical = 0.0065 if norm is ra.LInf else 0.0275
    result = evaluate(attack, typical, norm)
    records, whole = result.records, result.curve(versus="eps")
    seen = set()
    for part in np.linspace(0.2, 3, 10):
        eps = float(part * typical)
        if attack.startswith("minimum-radius"):  # its search starts from eps: what it found is recomputed instead
            expected = sorted(records["sample_id"][~records["clean_ok"].astype(bool) | (records["distance"] <= eps)])
        else:
            alone = evaluate(attack, eps, norm)
            expected = fallen(alone)
            assert whole.at(eps) == robust_accuracy(alone.records)
            success = dataclasses.replace(whole, measure="success")
            assert success.at(eps) == attack_success_rate(alone.records)
        assert fallen_at(whole, eps) == expected
        seen.add(len(expected))
    assert len(seen) > 4, "the eps chosen show little of the curve"


@pytest.mark.parametrize("attack", ["bim:rel_step=0.07,steps={}", "pgd:rel_step=0.07,steps={}"])
def test_one_run_equals_separate_runs_with_ten_iteration_counts(attack):
    whole = evaluate(attack.format(16), 0.04)
    accuracy, success = whole.curve(versus="iterations"), whole.curve(versus="iterations", rate="success")
    seen = set()
    for steps in (1, 2, 3, 4, 5, 6, 8, 10, 13, 16):
        alone = evaluate(attack.format(steps), 0.04)
        assert fallen_at(accuracy, steps) == fallen(alone)
        assert accuracy.at(steps) == robust_accuracy(alone.records)
        assert success.at(steps) == attack_success_rate(alone.records)
        seen.add(accuracy.at(steps))
    assert len(seen) > 4


@pytest.mark.parametrize("attack", ["simba:basis=pixel,steps=120", "pgd:rel_step=0.07,steps=16,restarts=3"])
def test_one_run_equals_separate_runs_with_ten_query_budgets(attack):
    accuracy = evaluate(attack, 0.04).curve(versus="queries")
    seen = set()
    for budget in (1, 2, 3, 5, 8, 11, 14, 17, 25, 40):
        alone = evaluate(attack, 0.04, search=ra.Search(query_budget=budget))
        assert fallen_at(accuracy, budget) == fallen(alone)
        seen.add(accuracy.at(budget))
    assert len(seen) > 4


def test_a_minimum_norm_attack_within_another_eps_equals_separate_runs_with_that_eps_and_budget():
    attack, eps = "fmn:steps=60,alpha_init=0.002", 0.0275
    whole = evaluate(attack, 0.06, ra.L2)
    accuracy = whole.curve(versus="queries", eps=eps)
    seen = set()
    for budget in (1, 2, 3, 4, 5, 7, 9, 11, 15, 30):
        alone = evaluate(attack, eps, ra.L2, search=ra.Search(query_budget=budget))
        assert fallen_at(accuracy, budget) == fallen(alone)
        seen.add(accuracy.at(budget))
    assert len(seen) > 4
    assert accuracy.at(accuracy.end) == whole.curve(versus="eps").at(eps)
    assert whole.curve(versus="queries").at(60).count < accuracy.at(60).count, "the run's own eps is larger"


def test_on_a_linear_model_the_curve_is_the_exact_one():
    model, x, labels = data()
    predicted = model(x.double()).argmax(1)
    exact = np.where(predicted == labels, distances(model, x, predicted, "L2"), 0)
    curve = evaluate("fmn:steps=200", 0.1, ra.L2).curve()
    assert curve.median == pytest.approx(np.median(exact), rel=0.02)
    assert curve.median >= np.median(exact)
    assert curve.area(0.05) == pytest.approx(np.minimum(exact, 0.05).mean(), rel=0.02)
    assert curve.at(0).count == int((exact > 0).sum())


# ---------------------------------------------------------------- definitions


def table(**columns: object) -> pd.DataFrame:
    """Four samples: a clean mistake, one broken near, one broken far, one that stands."""
    rows = {
        "sample_id": ["wrong", "near", "far", "stands"],
        "target": pd.array([None] * 4, "Int64"),
        "clean_ok": [False, True, True, True],
        "valid": pd.array([True, True, True, None], "boolean"),
        "success": [True, True, False, False],
        "distance": [0.0, 0.1, 0.4, np.nan],
        "iterations": [0, 9, 9, 9],
        "queries": [0, 90, 90, 91],
        "claimed_at_iteration": pd.array([0, 6, 5, None], "Int64"),
        "claimed_at_query": pd.array([0, 61, 52, None], "Int64"),
        "improvements": [
            [],
            [claim(2, 20, 0.5), claim(3, 31, 0.25), claim(6, 61, 0.1)],
            [claim(1, 10, 0.8), claim(5, 52, 0.4)],
            [],
        ],
    }
    return pd.DataFrame({**rows, **columns})


def claim(iteration: int, query: int, distance: float) -> dict[str, float]:
    return {"iteration": iteration, "query": query, "distance": distance}


def test_untargeted_rates_are_dongs():
    accuracy = curves.versus_eps(table(), 0.3, True)
    success = curves.versus_eps(table(), 0.3, True, "success")
    shown = [(0.0, 3, 0), (0.09, 3, 0), (0.1, 2, 1), (0.39, 2, 1), (0.4, 1, 2), (9.0, 1, 2)]
    for eps, standing, broken in shown:
        assert accuracy.at(eps) == Rate(standing, 4), "over all samples"
        assert success.at(eps) == Rate(broken, 3), "over those classified correctly"
    assert accuracy.median == pytest.approx((0.1 + 0.4) / 2)
    assert success.median == 0.4
    assert accuracy.area(0.5) == pytest.approx((0 + 0.1 + 0.4 + 0.5) / 4)
    assert success.area(0.5) == pytest.approx((0.4 + 0.1 + 0) / 3)


def test_targeted_success_is_over_all_samples():
    targeted = table(target=pd.array([1] * 4, "Int64"), distance=[0.2, 0.1, 0.4, np.nan])
    assert curves.versus_eps(targeted, 0.3, True, "success").at(0.15) == Rate(1, 4)
    assert curves.versus_eps(targeted, 0.3, True, "success").at(0.4) == Rate(3, 4)
    assert curves.versus_eps(targeted, 0.3, True).at(0.15) == Rate(2, 4), "a clean mistake is wrong before that"


def test_a_claim_counts_when_the_first_comes_close_enough_and_only_if_the_last_verified():
    effort = curves.versus_effort
    own = effort(table(), "iterations", 0.3, True)
    assert own.breaks_at.tolist() == [0, 3, math.inf, math.inf]
    assert effort(table(), "queries", 0.3, True).breaks_at.tolist() == [0, 31, math.inf, math.inf]
    wide = effort(table(), "iterations", 0.3, True, within=0.6)
    assert wide.breaks_at.tolist() == [0, 2, 5, math.inf]
    refused = table(valid=pd.array([True, False, True, None], "boolean"), success=[True, False, False, False])
    assert effort(refused, "iterations", 0.3, True, within=0.6).breaks_at.tolist() == [0, math.inf, 5, math.inf]
    assert curves.versus_eps(refused, 0.3, True).breaks_at.tolist() == [0, math.inf, 0.4, math.inf]
    refused = table(valid=pd.array([True, True, False, None], "boolean"))
    assert curves.versus_eps(refused, 0.3, True).breaks_at.tolist() == [0, 0.1, math.inf, math.inf]


def test_a_success_a_hair_outside_for_rounding_counts_at_its_own_eps():
    eps = 8 / 255
    rounded = table(distance=[0, eps + 1e-8, 0.4, np.nan])
    assert curves.versus_eps(rounded, eps, True).at(eps) == Rate(2, 4)
    assert curves.versus_effort(rounded, "queries", eps, False).at(90) == Rate(2, 4)


def test_a_run_on_a_fixed_budget_is_one_point_and_says_so():
    curve = evaluate("bim", 0.04).curve()
    assert curve.at(0.04) == robust_accuracy(evaluate("bim", 0.04).records)
    assert curve.to_frame()["eps"].tolist() == [0.04]
    with pytest.raises(BadRequest, match=r"ran at eps 0.04 and has no value at 0.03: run it there"):
        curve.at(0.03)
    with pytest.raises(BadRequest, match=r"has no area: it is known at eps 0.04 only"):
        curve.area(0.04)
    with pytest.raises(BadRequest, match="has no median"):
        _ = curve.median
    with pytest.raises(BadRequest, match=r"ran at eps 0.04 and has no value at 0.03"):
        evaluate("bim", 0.04).curve(versus="iterations", eps=0.03)


def test_a_curve_over_effort_ends_with_its_run_unless_the_attack_had_no_more_to_try():
    cut = evaluate("bim:steps=5", 0.01).curve(versus="iterations")
    assert 0 < cut.at(5).value < 1
    with pytest.raises(BadRequest, match=r"ended after 5 iterations and has no value at 6: run it longer"):
        cut.at(6)
    over = evaluate("deepfool:steps=50", 0.01, ra.L2).curve(versus="iterations")
    assert over.end < 50
    assert over.at(1000) == over.at(over.end)
    assert 0 < over.at(1000).value < 1
    assert evaluate("bim:steps=9", 0.5).curve(versus="iterations").at(1000) == Rate(0, SAMPLES)
    both = curves.merge([over, dataclasses.replace(over, settled=False)], "both")
    with pytest.raises(BadRequest, match="both ended after"):
        both.at(1000)
    for nowhere in (-1, math.inf, math.nan):
        with pytest.raises(BadRequest, match="starts at 0"):
            over.at(nowhere)


def test_curves_pair_samples_for_a_comparison():
    near, far = (evaluate(attack, 0.05, ra.L2).curve() for attack in ("fmn:steps=4,alpha_init=0.002", "fmn:steps=60"))
    found = compare.pair(near.unbroken(0.0275), far.unbroken(0.0275))
    assert found.only_first > found.only_second == 0, "more steps break more, and nothing less"
    assert found.samples == SAMPLES


# ---------------------------------------------------------------- what holds for every curve

ROWS = st.lists(
    st.tuples(st.booleans(), st.one_of(st.just(math.inf), st.floats(0, 2), st.sampled_from([0.25, 0.5, 1.0]))),
    min_size=1,
    max_size=30,
)


def curve_of(rows: list[tuple[bool, float]], measure: str = "accuracy", targeted: bool = False) -> Curve:
    """A curve over eps from what each sample takes; untargeted, a clean mistake takes nothing."""
    ids = pd.Index([str(k) for k in range(len(rows))])
    right = pd.Series([ok for ok, _ in rows], ids, dtype=bool)
    takes = pd.Series([at if ok or targeted else 0.0 for ok, at in rows], ids, dtype=float)
    return Curve("c", "eps", measure, takes, right, targeted, math.inf)  # type: ignore[arg-type]


@given(ROWS, st.sampled_from(["accuracy", "success"]), st.booleans())
def test_curves_go_one_way_and_stay_within_their_bands(rows, measure, targeted):
    curve = curve_of(rows, measure, targeted)
    frame = curve.to_frame()
    step = 1 if measure == "success" else -1
    counted = len(rows) if measure == "accuracy" or targeted else sum(ok for ok, _ in rows)
    assert (frame["total"] == counted).all()
    assert (np.diff(frame["eps"]) > 0).all()
    assert (step * np.diff(frame["count"]) > 0).all(), "every step is one"
    for name in ("low", "high"):
        assert (step * np.diff(frame[name]) >= 0).all()
    if counted:
        assert ((frame["low"] <= frame[measure] + 1e-12) & (frame[measure] <= frame["high"] + 1e-12)).all()
        assert [curve.at(at).count for at in frame["eps"]] == frame["count"].tolist()
        before = [curve.at(math.nextafter(at, 0)).count for at in frame["eps"][1:]]
        assert before == frame["count"].tolist()[:-1], "flat until the next step"


@given(ROWS, st.floats(0.01, 3), st.sampled_from(["accuracy", "success"]))
def test_area_and_median_are_those_of_the_steps(rows, until, measure):
    curve = curve_of(rows, measure)
    if measure == "success" and not any(ok for ok, _ in rows):
        assert math.isnan(curve.area(until))
        return
    frame = curve.to_frame()
    frame = frame[frame["eps"] < until]
    widths = np.diff([*frame["eps"], until])
    assert curve.area(until) == pytest.approx(float((frame[measure] * widths).sum()), abs=1e-12)
    if math.isfinite(curve.median):
        half = curve.at(curve.median).value
        assert half <= 0.5 if measure == "accuracy" else half >= 0.5
        assert (
            curve.median == 0
            or 0.5 in (half, curve.at(curve.median * (1 - 1e-9)).value)
            or ((half > 0.5) != (curve.at(curve.median * (1 - 1e-9)).value > 0.5))
        )


PAIRS = st.integers(1, 20).flatmap(
    lambda n: st.tuples(
        st.lists(st.booleans(), min_size=n, max_size=n),
        *(st.lists(st.one_of(st.just(math.inf), st.floats(0, 2)), min_size=n, max_size=n) for _ in range(3)),
    )
)


@given(PAIRS, st.floats(0, 2), st.randoms(use_true_random=False))
def test_merging_is_the_worst_case_in_any_order(drawn, eps, shuffle):
    right, *takes = drawn
    parts = [curve_of(list(zip(right, one, strict=True))) for one in takes]
    merged = curves.merge(parts, "all")
    stands = [all(one[k] > eps for one in takes) and right[k] for k in range(len(right))]
    assert merged.unbroken(eps).tolist() == stands
    assert merged.at(eps).count == sum(stands) <= min(part.at(eps).count for part in parts)
    shuffle.shuffle(parts)
    nested = curves.merge([parts[0], curves.merge(parts[1:], "two")], "all")
    pd.testing.assert_series_equal(nested.breaks_at, merged.breaks_at)
    pd.testing.assert_series_equal(curves.merge([merged, merged], "all").breaks_at, merged.breaks_at)


def test_merging_does_not_depend_on_the_order_of_the_rows_and_refuses_what_does_not_belong():
    one, other = curve_of([(True, 0.5), (True, 1.0)]), curve_of([(True, 2.0), (True, 0.1)])
    turned = dataclasses.replace(other, breaks_at=other.breaks_at[::-1], clean_ok=other.clean_ok[::-1])
    assert curves.merge([one, turned], "x").breaks_at.to_dict() == {"0": 0.5, "1": 0.1}
    with pytest.raises(BadRequest, match="another model"):
        curves.merge([one, curve_of([(False, 0.5), (True, 1.0)])], "x")
    with pytest.raises(BadRequest, match="other samples"):
        curves.merge([one, curve_of([(True, 0.5)])], "x")
    with pytest.raises(BadRequest, match="something else"):
        curves.merge([one, curve_of([(True, 0.5), (True, 1.0)], "success")], "x")
    with pytest.raises(BadRequest, match="nothing to merge"):
        curves.merge([], "x")


def test_points_on_fixed_budgets_join_and_a_whole_curve_takes_them_in():
    points = [dataclasses.replace(curve_of([(True, eps), (True, 9.0)]), only_at=(eps,)) for eps in (0.5, 0.25)]
    joined = curves.merge(points, "points")
    assert joined.only_at == (0.25, 0.5)
    assert joined.to_frame()["count"].tolist() == [1, 1]
    whole = curves.merge([joined, curve_of([(True, 0.3), (True, 0.4)])], "all")
    assert whole.only_at is None
    assert whole.breaks_at.tolist() == [0.25, 0.4]


@pytest.mark.long
def test_bands_hold_the_truth_at_the_nominal_rate():
    """Samples whose distance is exponential, and of which a tenth are clean mistakes, so that the truth is known."""
    draw, places = np.random.default_rng(0), [0.0, 0.1, 0.4, 1.0, 1.7]
    held = np.zeros((3, len(places)))
    for _ in range(1000):
        rows = list(zip(draw.uniform(size=120) < 0.9, draw.exponential(size=120), strict=True))
        for at, (measure, scale) in enumerate((("accuracy", 0.9), ("success", 1.0))):
            frame = curve_of(rows, measure).to_frame(places)
            truth = scale * np.exp(-np.array(places))
            truth = truth if measure == "accuracy" else 1 - truth
            held[at] += (frame["low"] <= truth) & (truth <= frame["high"])
        half = curve_of(rows).to_frame(places, 0.5)
        held[2] += (half["low"] <= 0.9 * np.exp(-np.array(places))) & (0.9 * np.exp(-np.array(places)) <= half["high"])
    covered = held / 1000
    assert covered[:2].mean() == pytest.approx(0.95, abs=0.015)
    assert (covered[:2] > 0.92).all()
    assert covered[2].mean() == pytest.approx(0.5, abs=0.06)


# ---------------------------------------------------------------- results and the command line


def test_a_result_of_several_attacks_gives_their_worst_case_and_so_does_a_confirmed_one():
    several = evaluate(["deepfool", "fmn:steps=20"], 0.008)  # type: ignore[arg-type]
    merged, alone = several.curve(), [part.curve() for part in several.parts.values()]
    assert merged.label == "worst case of deepfool, fmn"
    for eps in (0.002, 0.005, 0.008, 0.02):
        broken = [set(fallen_at(curve, eps)) for curve in alone]
        assert set(fallen_at(merged, eps)) == broken[0] | broken[1]
    assert merged.at(0.008) == robust_accuracy(several.records)

    sure = evaluate("bim:steps=1,rel_step=0.01", 0.006, search=ra.Search(confirm="bim:steps=20"))
    assert 0 < len(sure.parts["confirm"].records) < SAMPLES
    assert sure.curve().at(0.006) == robust_accuracy(sure.records)
    assert sure.robust_accuracy < sure.parts["bim"].robust_accuracy
    with pytest.raises(BadRequest, match="8-bit view"):
        several.parts["fmn"].counting_uint8_only().curve()
    with pytest.raises(BadRequest, match="not accuracy versus seconds"):
        several.curve(versus="seconds")  # type: ignore[arg-type]


MODEL = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 15 * 15, 10)).eval()
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("curves")
    (folder / "model.py").write_text(MODEL)
    request = ["eval", f"{folder}/model.py:make", "--limit", "60", "--quiet", "--attack"]
    for name, rest in {
        "fmn": ["fmn:steps=20", "--eps", "1/255"],
        "deepfool": ["deepfool", "--eps", "1/255"],
        "bim1": ["bim", "--eps", "1/255"],
        "bim2": ["bim", "--eps", "2/255"],
        "l2": ["ddn:steps=20", "--norm", "L2"],
    }.items():
        assert main([*request, *rest, "--out", str(folder / name)]) == 0
    return folder


def test_the_command_prints_what_the_records_say_and_writes_it(runs, capsys, tmp_path):
    linf = [str(runs / name) for name in ("fmn", "deepfool", "bim1", "bim2")]
    for ending in ("csv", "parquet"):
        assert main(["curve", *linf, "-o", str(tmp_path / f"c.{ending}")]) == 0
    printed = capsys.readouterr().out
    frame = pd.read_csv(tmp_path / "c.csv")
    pd.testing.assert_frame_equal(frame, pd.read_parquet(tmp_path / "c.parquet"), check_dtype=False)
    assert frame["curve"].nunique() == 3, "two runs of bim at two eps are one curve"
    for name in ("fmn", "deepfool"):
        part = frame[frame["curve"].str.endswith(name)]
        result = Result.load(runs / name)
        own = part[part["eps"] <= 1 / 255].iloc[-1]
        assert own["accuracy"] == result.robust_accuracy
        assert (own["low"], own["high"]) == pytest.approx(result.interval)
        assert f"{100 * result.robust_accuracy:.1f} ({100 * result.interval[0]:.1f}" in printed
    points = frame[frame["curve"].str.endswith("bim")]
    assert points["accuracy"].tolist() == [Result.load(runs / name).robust_accuracy for name in ("bim1", "bim2")]


def test_the_worst_case_is_one_curve_a_model(runs, capsys, tmp_path):
    linf = [str(runs / name) for name in ("fmn", "deepfool", "bim1")]
    assert main(["curve", *linf, "--worst-case", "--rate", "success", "-o", str(tmp_path / "c.csv")]) == 0
    frame = pd.read_csv(tmp_path / "c.csv")
    assert frame["curve"].nunique() == 1
    parts = {name: Result.load(runs / name) for name in ("fmn", "deepfool", "bim1")}
    assert frame[frame["eps"] <= 1 / 255]["success"].iloc[-1] == Result.worst_of(parts).attack_success_rate


def test_effort_within_an_eps_and_normalised_l2(runs, tmp_path):
    request = ["curve", str(runs / "fmn"), "--versus", "queries", "--eps", "0.5/255", "-o", str(tmp_path / "q.csv")]
    assert main(request) == 0
    frame = pd.read_csv(tmp_path / "q.csv")
    expected = Result.load(runs / "fmn").curve().at(0.5 / 255).value
    assert frame["accuracy"].iloc[-1] == expected != Result.load(runs / "fmn").robust_accuracy
    assert frame["queries"].dtype == np.int64

    plain = Result.load(runs / "l2").curve()
    assert main(["curve", str(runs / "l2"), "--values", "3072", "-o", str(tmp_path / "n.parquet")]) == 0
    small = pd.read_parquet(tmp_path / "n.parquet")
    assert small["eps"].to_numpy() == pytest.approx(plain.to_frame()["eps"].to_numpy() / math.sqrt(3072))
    assert small["accuracy"].tolist() == plain.to_frame()["accuracy"].tolist()
    (within,) = curve_chart.read_chart(
        [runs / "l2"], "queries", "accuracy", plain.median / math.sqrt(3072), values=3072
    ).curves
    assert within.at(within.end) == plain.at(plain.median) != plain.at(0.5)


def test_pictures_show_every_curve_and_are_the_same_every_time(runs, tmp_path, capsys):
    linf = [str(runs / name) for name in ("fmn", "deepfool", "bim1", "bim2")]
    for name in ("a.png", "a.svg", "b.svg"):
        assert main(["curve", *linf, "-o", str(tmp_path / name)]) == 0
    svg = (tmp_path / "a.svg").read_text()
    assert svg == (tmp_path / "b.svg").read_text()
    assert all(f"{name}" in svg for name in ("fmn", "deepfool", "bim (fixed radius)", "L∞ (1/255)", "60 samples"))
    seen = np.asarray(Image.open(tmp_path / "a.png").convert("RGB")).reshape(-1, 3)
    for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (0x00, 0x9E, 0x73)):
        assert (seen == colour).all(1).sum() > 50


def test_without_matplotlib_a_picture_is_refused_and_the_data_is_not(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["curve", str(runs / "fmn"), "-o", str(tmp_path / "c.png")]) == 2
    assert "pip install 'robustassay[plots]'" in capsys.readouterr().err
    assert main(["curve", str(runs / "fmn"), "-o", str(tmp_path / "c.csv")]) == 0


REFUSED = {
    "ending": (["fmn", "-o", "c.pdf"], "must end in .png, .svg, .csv or .parquet"),
    "two norms": (["fmn", "l2"], "draw one norm at a time"),
    "no run": (["nowhere"], "holds no run"),
    "an eps along eps": (["fmn", "--eps", "1/255"], "leave the one eps out"),
    "another eps": (["bim1", "--versus", "iterations", "--eps", "2/255"], "ran at eps 1/255 and has no value at 2/255"),
    "normalised Linf": (["fmn", "--values", "3072"], "Only L2 distances"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_requests_get_one_sentence(runs, capsys, monkeypatch, case):
    arguments, sentence = REFUSED[case]
    monkeypatch.chdir(runs)
    assert main(["curve", *arguments]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_a_run_that_confirms_makes_no_curve_of_its_own(tmp_path, capsys):
    sure = evaluate("bim:steps=1,rel_step=0.01", 0.006, search=ra.Search(confirm="bim:steps=20"), out=tmp_path)
    alone = curve_chart.read_chart([tmp_path], "eps", "accuracy")
    assert len(alone.curves) == len(alone.left_out) == 1
    assert alone.curves[0].at(0.006) == robust_accuracy(sure.parts["bim"].records)
    merged = curve_chart.read_chart([tmp_path], "eps", "accuracy", worst_case=True)
    assert merged.curves[0].at(0.006) == robust_accuracy(sure.records)
    assert main(["curve", str(tmp_path)]) == 0
    assert "--worst-case includes it" in capsys.readouterr().err
    with pytest.raises(BadRequest, match="only confirm others"):
        curve_chart.read_chart([tmp_path / "confirm"], "eps", "accuracy")
