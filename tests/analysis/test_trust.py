"""What a result says against itself: flags, samples in doubt, accuracy after each stage."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import robustassay as ra
from robustassay.analysis import trust
from robustassay.analysis.doubt import AttackTraits
from robustassay.errors import BadModel
from tests.support.masked import Masked, Optimises, WinnersTakeAll, noisy, quantised

EPS = ra.LInf(8 / 255)


@pytest.fixture(scope="module")
def natural() -> nn.Module:
    return ra.load_model("resnet20-natural")


def flags(model: nn.Module, attack: str = "square:steps=2", **options: object) -> dict[str, str]:
    return ra.evaluate(model, "cifar10-1k", EPS, attack, limit=2, **options).flags  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["resnet20-natural", "resnet56-natural", "resnet20-pgd", "resnet20x2-pgd"])
def test_an_ordinary_model_raises_no_flag(name):
    assert flags(ra.load_model(name)) == {}


def test_each_way_to_hide_a_gradient_raises_its_own_flag(natural):
    saturated = Masked(natural, after=lambda z: torch.sigmoid(5 * z))
    gallery: dict[str, tuple[nn.Module, set[str]]] = {
        "quantised input": (quantised(natural), {"no-gradients"}),
        "detached": (Masked(natural, before=lambda x: x.detach()), {"no-gradients"}),
        "sigmoid": (Masked(natural, after=torch.sigmoid), {"squashed"}),
        "saturated sigmoid": (saturated, {"squashed", "zero-gradients"}),
        "logits x 1e4": (Masked(natural, after=lambda z: 1e4 * z), {"extreme-logits"}),
        "k winners take all": (WinnersTakeAll(natural, 0.4), {"misleading-gradients"}),
        "optimises": (Optimises(natural), {"dynamic", "misleading-gradients"}),
        "random": (noisy(natural), {"randomised"}),
    }
    found = {name: set(flags(model)) for name, (model, _) in gallery.items()}
    assert found == {name: expected for name, (_, expected) in gallery.items()}
    assert flags(natural) == {}, "a flag leaked into the next model"


def test_probabilities_are_refused_and_flagged_where_they_are_accepted(natural):
    softmax = Masked(natural, after=lambda z: z.softmax(1))
    with pytest.raises(BadModel, match="return logits"):
        flags(softmax)
    assert "softmax" in flags(softmax, search=ra.Search(despite_flags=True))


def test_attacks_that_need_gradients_are_refused_where_there_are_none_and_others_are_not(natural):
    with pytest.raises(BadModel, match="PGD would not move"):
        flags(quantised(natural), "pgd:steps=2")
    with pytest.raises(BadModel, match="Express would not move"):
        flags(quantised(natural), "express")
    assert "no-gradients" in flags(quantised(natural), "pgd:steps=2", search=ra.Search(despite_flags=True))
    assert "no-gradients" in flags(quantised(natural), "autoattack:steps=2,queries=5")


@pytest.mark.long
def test_express_sees_through_quantisation_and_says_that_gradients_mislead(natural):
    search = ra.Search(confirm="square:steps=600", despite_flags=True)
    sure = ra.evaluate(quantised(natural), "cifar10-1k", EPS, "express", limit=5, keep_images=False, search=search)
    plain = sure.parts["express"]
    assert sure.flags.keys() >= {"no-gradients", "square-gains"}
    assert list(sure.parts["confirm"].records["sample_id"]) == plain.doubtful
    assert len(plain.doubtful) == round(5 * plain.robust_accuracy) > 0
    assert sure.robust_accuracy < 0.1 < plain.robust_accuracy, "Square breaks what was left in doubt"
    assert len(sure.doubtful) == round(5 * sure.robust_accuracy), "what still stands stays in doubt"


def test_confirming_attacks_only_what_is_in_doubt_and_can_be_read_back(tmp_path):
    model = ra.load_model("resnet20-pgd")
    plain = ra.evaluate(model, "cifar10-1k", EPS, "bim:steps=1", limit=24)
    assert plain.doubtful
    sure = ra.evaluate(
        model, "cifar10-1k", EPS, "bim:steps=1", limit=24, search=ra.Search(confirm="pgd:steps=5"), out=tmp_path / "run"
    )
    assert list(sure.parts) == ["bim", "confirm"]
    assert list(sure.parts["confirm"].records["sample_id"]) == plain.doubtful
    assert sure.robust_accuracy <= plain.robust_accuracy
    stands = sure.records["clean_ok"] & ~sure.records["success"]
    close = sure.records["sample_id"][stands & (sure.records["margin"] < 0.1)]
    assert set(close) <= set(sure.doubtful) < set(plain.doubtful), "a second failure at a small margin ends no doubt"
    again = ra.Result.load(tmp_path / "run")
    pd.testing.assert_frame_equal(again.records, sure.records)


# ---------------------------------------------------------------- from records


def records(**columns: object) -> pd.DataFrame:
    standing = {"clean_ok": True, "success": False, "margin": 1.0, "clean_margin": 2.0, "claimed_by": None}
    return pd.DataFrame({**standing, "backwards": 400, **columns})


def test_close_calls_and_unmoved_samples_are_in_doubt_and_broken_ones_never():
    left = np.array([0.01, 0.7, 0.8, 0.99])
    express = AttackTraits(standard=True)
    assert trust.doubtful(records(margin=2 * left), {}, express).tolist() == [True, False, False, True]
    assert trust.doubtful(records(margin=2 * left), ["randomised"], express).tolist() == [True, False, False, True]
    assert trust.doubtful(records(margin=2 * left), ["zero-gradients"]).all()
    assert not trust.doubtful(records(margin=2 * left, success=True), ["zero-gradients"]).any()
    assert not trust.doubtful(records(margin=2 * left, clean_ok=False, success=True), ()).any()


def test_a_sample_falls_the_more_probably_the_less_margin_and_effort_there_is():
    left = np.array([0.005, 0.02, 0.1, 0.3, 0.9])
    much, little = (
        pd.concat([trust.fall_probability(records(margin=[2 * part], backwards=effort), ()) for part in left])
        for effort in (3000, 40)
    )
    assert (much.diff().dropna() < 0).all()
    assert (little.diff().dropna() < 0).all()
    assert (much < little).all()
    same = records(margin=2 * left, backwards=3000)
    much = trust.fall_probability(same, ())
    assert (much < trust.fall_probability(same, (), AttackTraits("L1"))).all(), "slower ascents"
    assert (much > trust.fall_probability(same, (), AttackTraits(standard=True))).all(), "several kinds of attacks"
    assert much[0] > 0.01, "AutoAttack's own failure leaves a margin of almost zero in doubt"
    assert trust.fall_probability(records(margin=2 * left), ["zero-gradients"]).eq(1).all()
    assert trust.fall_probability(records(margin=2 * left, success=True), ["zero-gradients"]).eq(0).all()


@pytest.mark.parametrize(("found", "flagged"), [(2, False), (3, True)])
def test_square_may_gain_two_samples_in_a_thousand(found, flagged):
    by = ["square"] * found + ["apgd-t"] * 100 + [None] * (900 - found)
    assert ("square-gains" in trust.flags_of(records(claimed_by=by))) is flagged


def test_accuracy_after_each_stage_adds_up():
    table = records(
        clean_ok=[True] * 9 + [False],
        success=[True, True, True, False, False, False, False, False, False, True],
        claimed_by=["a", "a", "c", None, None, None, None, None, None, None],
    )
    after = trust.after_each_stage(table, ["a", "b", "c"])
    assert [(name, rate.count, rate.total) for name, rate in after.items()] == [
        ("a", 7, 10),
        ("b", 7, 10),
        ("c", 6, 10),
    ]


def test_stages_of_a_run_end_at_its_robust_accuracy():
    result = ra.evaluate("resnet20-pgd", "cifar10-1k", EPS, "express", limit=16, keep_images=False)
    assert list(result.stages) == ["pma", "apgd-dlr", "nearest", "apgd-t", "apgd-ce", "fab-t", "square"]
    assert result.stages["square"] == result.robust_accuracy < result.clean_accuracy


# ---------------------------------------------------------------- models that draw random numbers


class NoisyLinear(nn.Module):
    """Two classes apart by the first value; noise of a known size makes it err with a known chance.

    It is drawn for each image, or once for all images of a call.
    """

    def __init__(self, size: float, once_per_call: bool = False) -> None:
        super().__init__()
        self.size, self.once_per_call = size, once_per_call
        self.scale = nn.Parameter(torch.tensor(10.0))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        first = x.flatten(1)[:, 0] + self.size * torch.randn(1 if self.once_per_call else len(x))
        return torch.stack((0.5 - first, first - 0.5), 1) * self.scale


@pytest.mark.parametrize("once_per_call", [False, True])
@pytest.mark.parametrize(("eps", "falls"), [(0.14, True), (0.06, False)])
def test_a_random_model_is_judged_by_what_it_says_most_often(eps, falls, once_per_call):
    x = torch.full((6, 1, 2, 2), 0.4)
    result = ra.evaluate(
        NoisyLinear(0.05, once_per_call),
        (x, torch.zeros(6, dtype=torch.int64)),
        ra.LInf(eps),
        "pgd:steps=10,rel_step=0.3",
    )
    assert list(result.flags) == ["randomised"]
    assert result.clean_accuracy == 1
    assert result.robust_accuracy == (0 if falls else 1)
    if falls:
        assert (result.records["redrawn"] > 0.5).all()
        assert (result.records["redrawn"] < 1).any(), "with this noise some draws stay with the old label"
        assert result.x_adv is not None
        share = float(torch.special.ndtr((result.x_adv.flatten(1)[:, 0] - 0.5) / 0.05).mean())
        protocols = result.random_protocols
        assert protocols is not None
        assert protocols.one_draw == pytest.approx(1 - share, abs=0.07), "six images with 64 draws each"
        assert protocols.any_of_several < 0.001 < protocols.majority < protocols.one_draw


def test_a_random_model_gives_the_same_records_for_the_same_seed(natural):
    runs = [
        ra.evaluate(noisy(natural), "cifar10-1k", ra.LInf(1 / 255), "pgd:steps=3", limit=6, search=ra.Search(eot=4))
        for _ in range(2)
    ]
    first, second = (run.records.drop(columns="seconds") for run in runs)
    pd.testing.assert_frame_equal(first, second)
    assert runs[0].manifest["spec"]["model"]["eot"] == 4
    assert (runs[0].records["backwards"] % 4 == 0).all()
