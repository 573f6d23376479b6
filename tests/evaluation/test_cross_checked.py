"""The cross-check: attacks through other gradients break nothing on honest models, and what masks leave."""

import dataclasses
import json

import pytest
import torch
from torch import Tensor, nn

import robustassay as ra
from robustassay.data import Dataset, from_arrays, load
from robustassay.doctor import remedies
from robustassay.doctor.candidates import OTHER_KINDS
from robustassay.evaluation import cross_checked
from robustassay.results.cross_check import CROSS_CHECK, CROSS_CHECK_FLAG, CrossCheck
from robustassay.store import AFTER
from robustassay.threat import RandomTarget

THREAT = ra.LInf(8 / 255)
CHECKED = ra.Search(self_test=8, despite_flags=True)


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 225, 10)).eval()


class Saturated(nn.Module):
    """Clamped scores of a network that is no registered layer, times a function of the image."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = (net,)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        scores = self.net[0](x)
        lead = (scores - scores.topk(2, 1).values.mean(1, keepdim=True)).mul(1e4).clamp(-1, 1)
        factor = 2 + torch.sin(300 * x.mean((1, 2, 3)))
        logits: Tensor = lead * factor[:, None]
        return logits


def data_for(model: nn.Module) -> Dataset:
    x = load("cifar10-1k").images(slice(0, 12))
    with torch.no_grad():
        return from_arrays(x, model(x).argmax(1))


def test_inner_scores_break_what_attacks_on_the_logits_leave(net, tmp_path):
    model = Saturated(net)
    found = ra.evaluate(model, data_for(model), THREAT, "pgd", search=CHECKED, out=tmp_path)
    assert found.robust_accuracy > 0.5, "or there is nothing to cross-check"
    check = CrossCheck.of(found.manifest)
    assert len(check.broken) >= 6
    assert "as logits" in check.how
    assert CROSS_CHECK_FLAG in found.flags
    assert not found.evidence.earned
    assert len(found.doubtful) == round(found.robust_accuracy * len(found.records))
    assert "cross-check broke" in found.assessment
    assert found.assessment.endswith("add --adaptive auto.")
    assert json.loads((tmp_path / AFTER).read_text())[CROSS_CHECK]["broken"] == list(check.broken)
    adapted = ra.evaluate(model, data_for(model), THREAT, "pgd", search=ra.Search(adaptive="auto", self_test=0))
    assert adapted.robust_accuracy == 0


class Rippled(nn.Module):
    """A network behind ripples of its input that are steeper than the image, but small.

    The cross-check knows the sine, and not `sinc`: only smoothed gradients see through it.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x + 10 * torch.sinc(600 * (x + 0.5)))
        return logits


def test_smoothed_gradients_are_tried_after_a_strong_attack_only(net):
    model = Rippled(net)
    images = data_for(model)
    strong, weak = (ra.evaluate(model, images, THREAT, attack, search=CHECKED) for attack in ("express", "pgd:steps=5"))
    assert strong.robust_accuracy > 0, "or there is nothing to cross-check"
    assert CrossCheck.of(strong.manifest).how == "gradients of noisy copies"
    assert weak.robust_accuracy > 0
    assert CrossCheck.of(weak.manifest).passed


def test_all_samples_may_be_asked(net):
    images = data_for(net).take(4)
    found = ra.evaluate(net, images, ra.LInf(0.01 / 255), "pgd:steps=5", search=CHECKED)
    check = CrossCheck.of(found.manifest)
    assert len(check.asked) == 4
    assert check.passed


@pytest.mark.parametrize(("flag", "earned"), [("misleading-gradients", False), ("randomised", True)])
def test_a_flag_makes_an_upper_bound_of_a_strong_attack_and_names_the_doctor(net, monkeypatch, flag, earned):
    found = ra.evaluate(net, data_for(net).take(4), ra.LInf(0.01 / 255), "express", search=CHECKED)
    assert found.assessment.startswith("AutoAttack-grade, self-test")
    monkeypatch.setattr(type(found), "flags", property(lambda self: {flag: "a reason"}))
    assert found.assessment.startswith("AutoAttack-grade") is earned
    assert (
        found.assessment.startswith(f"Upper bound (flag {flag}") and "assay doctor" in found.assessment
    ) is not earned


def test_other_kinds_of_attack_are_tried_after_a_strong_attack_only(net, monkeypatch):
    monkeypatch.setattr(remedies, "build_cross_checks", lambda probes: iter(()))
    model = Rippled(net)
    images = data_for(model)
    strong, weak = (ra.evaluate(model, images, THREAT, attack, search=CHECKED) for attack in ("express", "pgd:steps=5"))
    assert strong.robust_accuracy > 0, "or there is nothing to cross-check"
    check = CrossCheck.of(strong.manifest)
    assert check.broken
    assert check.how in OTHER_KINDS
    assert check.other_kind
    assert strong.assessment.endswith("add --confirm.")
    assert not CrossCheck.of(weak.manifest).broken


def test_an_honest_model_passes(net):
    found = ra.evaluate(net, data_for(net), ra.LInf(0.2 / 255), "pgd:steps=5", search=CHECKED)
    assert found.robust_accuracy > 0, "or nothing was asked"
    check = CrossCheck.of(found.manifest)
    assert check.asked
    assert check.passed
    assert not check.not_examined
    assert CROSS_CHECK_FLAG not in found.flags


@pytest.mark.parametrize(
    ("attack", "search"),
    [
        ("square:steps=20", CHECKED),
        ("pgd:steps=5", ra.Search(self_test=0)),
        ("pgd:steps=5", ra.Search(self_test=8, query_budget=20)),
    ],
    ids=["no gradients", "switched off", "query budget"],
)
def test_who_has_no_gradients_is_not_cross_checked(attack, search, net):
    found = ra.evaluate(net, data_for(net), ra.LInf(0.2 / 255), attack, search=search)
    assert CROSS_CHECK not in found.manifest


def test_a_finished_check_is_not_made_again(net, tmp_path, monkeypatch):
    first = ra.evaluate(net, data_for(net), ra.LInf(0.2 / 255), "pgd:steps=5", search=CHECKED, out=tmp_path)
    monkeypatch.setattr(cross_checked, "open_adviser", lambda: pytest.fail("made again"))
    again = ra.evaluate(net, data_for(net), ra.LInf(0.2 / 255), "pgd:steps=5", search=CHECKED, out=tmp_path)
    assert again.manifest == first.manifest


class Fails(nn.Module):
    """Works, but not while its functions are followed."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        if torch._C._is_torch_function_mode_enabled():
            raise ValueError("no tracing")
        logits: Tensor = self.net(x)
        return logits


def test_a_model_that_cannot_be_traced_is_not_examined(net):
    model = Fails(net)
    found = ra.evaluate(model, data_for(net), ra.LInf(0.2 / 255), "pgd:steps=5", search=CHECKED)
    assert "no tracing" in CrossCheck.of(found.manifest).not_examined
    assert CROSS_CHECK_FLAG not in found.flags


def test_the_flag_ends_when_another_attack_breaks_the_samples(net):
    model = Saturated(net)
    left = ra.evaluate(model, data_for(model), THREAT, "pgd", search=CHECKED)
    broken = CrossCheck.of(left.manifest).broken
    assert broken
    won = left.records.assign(success=left.records["success"] | left.records["sample_id"].isin(broken))
    other = dataclasses.replace(left, records=won, manifest={**left.manifest, CROSS_CHECK: {}})
    both = ra.Result.worst_of({"pgd": left, "other": other})
    assert CROSS_CHECK_FLAG in left.flags
    assert CROSS_CHECK_FLAG not in both.flags
    assert both.evidence.cross_check.passed
    half = left.records.assign(success=left.records["success"] | left.records["sample_id"].isin(broken[1:]))
    some = ra.Result.worst_of({"pgd": left, "other": dataclasses.replace(other, records=half)})
    assert some.evidence.cross_check.broken == broken[:1]
    assert CROSS_CHECK_FLAG in some.flags


def test_where_nothing_is_left_nothing_is_checked(net):
    found = ra.evaluate(net, data_for(net), ra.LInf(0.2), "pgd", search=CHECKED)
    assert found.robust_accuracy == 0
    assert CROSS_CHECK not in found.manifest


def test_a_targeted_threat_is_not_cross_checked(net):
    threat = ra.ThreatModel(ra.LInf(0.2 / 255), RandomTarget())
    found = ra.evaluate(net, data_for(net), threat, "pgd:steps=5", search=CHECKED)
    assert CROSS_CHECK not in found.manifest
