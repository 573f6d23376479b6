"""Remedies: every candidate is tried on a few images, and those that break some become remedies in that order."""

import dataclasses
import time
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import robustassay as ra
from robustassay import attacks, data
from robustassay.doctor import Diagnosis, IndicatorResult, remedies
from robustassay.doctor.candidates import FULL_ON_FIX, STARTS, Candidate, build_candidates, from_starts
from robustassay.doctor.clock import seconds_now
from robustassay.doctor.gradient_fixes import FixedGradients, JointOutputs
from robustassay.doctor.probe_set import ProbeSet
from robustassay.doctor.remedies import build_remedies
from robustassay.doctor.taps import find_logit_layer, find_taps
from robustassay.doctor.trials import PLAIN, Trial, passes, run_trials, within_budget
from robustassay.evaluation.adaptive import Remedy
from robustassay.target import LocalModel
from robustassay.threat import LInf
from tests.support.masked import SaturatedBranch
from tests.support.masked_layers import LAYERS, robust_accuracy
from tests.support.toys import CPU, two_classes

EPS = 8 / 255
FINE = Diagnosis("m", "t", 6, (), {}, 0.0)
ALARM = IndicatorResult("unavailable gradients", 1.0, 0.0, "", ("bpda", "smoothing", "square", "transfer"))
MASKED = dataclasses.replace(FINE, results=(ALARM,))


@pytest.fixture(scope="module")
def natural() -> nn.Module:
    return ra.load_model("vgg11-natural")


@pytest.fixture(scope="module")
def robust() -> nn.Module:
    return ra.load_model("resnet20-pgd")


def probes_of(module: nn.Module, n: int = 8) -> ProbeSet:
    images = data.load("cifar10-1k")
    x, y = images.images(slice(0, n)), images.labels[:n]
    return ProbeSet.of(LocalModel(module, 10, CPU), [str(row) for row in range(n)], x, y, LInf(EPS))


def standing(probes: ProbeSet, remedy: Remedy | None = None) -> float:
    """The fraction of images that a plain attack, or the first attack of a remedy, leave."""
    target = probes.target if remedy is None else probes.target.with_module(remedy.module)
    attack = attacks.create(PLAIN if remedy is None else remedy.attacks[0])
    return float((~dataclasses.replace(probes, target=target).broken_by(attack)).float().mean())


SATURATED = pytest.param("saturated branch", marks=pytest.mark.long)


@pytest.mark.parametrize("name", ["rounded branches", "detached branches", SATURATED])
def test_a_remedy_through_all_layers_reaches_the_hand_written_attack(name, natural, robust):
    masked = LAYERS[name](natural, robust)
    probes = probes_of(masked.model)
    assert standing(probes) > 0.4, "or there is nothing to remedy"
    first = next(build_remedies(probes, FINE if name == "saturated branch" else MASKED))
    assert standing(probes, first) <= robust_accuracy(masked, probes.x0, probes.goal.labels, EPS, steps=20)
    assert not first.name.startswith("square")


def test_honest_models_pass_cross_checks_and_get_no_remedy(robust):
    probes = probes_of(robust)
    assert [tap.name for tap in find_taps(probes.target, probes.x0) if not tap.same_as_logits] == []
    assert list(build_remedies(probes, FINE)) == []


class Branches(nn.Module):
    """The first network decides alone; the second one is called last and agrees with it on its own images."""

    def __init__(self, decides: nn.Module, decoy: nn.Module) -> None:
        super().__init__()
        self.decides, self.decoy = decides, decoy
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = torch.sigmoid(self.decides(x)) + 0 * self.decoy(x)
        return logits


def test_a_decoy_that_agrees_on_clean_images_is_not_taken_for_the_logits(natural, robust):
    model = Branches(natural, robust)
    probes = probes_of(model, 12)
    clean = model.decoy(probes.x0).argmax(1) == model.decides(probes.x0).argmax(1)
    agreed = probes.among(clean)
    assert len(agreed) >= 4
    found = find_logit_layer(agreed.target, agreed.x0)
    assert found is None or found.layer in set(model.decides.modules())
    names = {tap.name.split(".")[0]: tap for tap in find_taps(agreed.target, agreed.x0)}
    assert names["decoy"].agrees_clean
    assert names["decides"].agreement > names["decoy"].agreement


def test_inner_layers_are_tried_without_an_alarm(natural, robust):
    names = [one.name for one in build_candidates(probes_of(SaturatedBranch(robust, natural), 4), FINE)]
    assert {"logits-taps", "loss", "targets"} < set(names)
    assert any(name.startswith("logits-tap-decoy") for name in names)
    assert any(name.startswith("logits-tap-module") for name in names)


class Votes(nn.Module):
    """One network sees the image rounded in several ways, and every copy has one vote."""

    def __init__(self, net: nn.Module, copies: int) -> None:
        super().__init__()
        self.net, self.offsets = net, [copy / copies for copy in range(copies)]
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        seen = [self.net(((12 * x + offset).round() - offset) / 12) for offset in self.offsets]
        return torch.stack([F.one_hot(logits.argmax(1), 10).to(x) for logits in seen]).mean(0)


def test_copies_that_vote_are_attacked_together():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3, 4), nn.Softplus(), nn.Flatten(), nn.Linear(4 * 64, 10)).eval()
    model = Votes(net, 4)
    x = data.load("cifar10-1k").images(slice(0, 4))
    probes = ProbeSet.of(LocalModel(model, 10, CPU), list("abcd"), x, model(x).argmax(1), LInf(EPS))
    fixed = {one.name: one.module for one in build_candidates(probes, FINE)}["logits-taps"]
    assert isinstance(fixed, FixedGradients)
    together = next(fix for fix in fixed.fixes if isinstance(fix, JointOutputs))
    found = _slope(fixed.differentiable, x)
    seen = [((12 * x + offset).round() - offset) / 12 for offset in model.offsets]
    truth = torch.stack([_slope(net, image) for image in seen]).mean(0)
    assert torch.allclose(found, together.factors[0] * truth, rtol=1e-3, atol=1e-6)
    alone = dataclasses.replace(probes, target=LocalModel(Votes(net, 1), 10, CPU))
    assert "logits-taps" not in {one.name for one in build_candidates(alone, FINE)}


def _slope(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The gradient of the first logit."""
    image = x.clone().requires_grad_()
    return torch.autograd.grad(function(image)[:, 0].sum(), image)[0]


# ---------------------------------------------------------------- trials and budgets


def candidate(name: str, trial: str, full: tuple[str, ...] = ("pgd",)) -> Candidate:
    return Candidate(name, "", two_classes(4), trial, full, "")


def toy_probes(eps: float) -> ProbeSet:
    x = torch.full((4, 1, 2, 2), 0.5)
    target = LocalModel(two_classes(4), 2, CPU, 8)
    return ProbeSet.of(target, list("abcd"), x, torch.zeros(4, dtype=torch.int64), LInf(eps))


def test_the_cheapest_candidate_that_breaks_every_image_comes_first_and_dearer_ones_are_not_tried():
    slope = float(two_classes(4).weight.detach().diff(dim=0).abs().sum())
    weak, cheap, dear = (
        candidate("a", "pgd:steps=1,rel_step=0.01"),
        candidate("b", "pgd:steps=20"),
        candidate("c", "pgd:steps=50"),
    )
    trials = run_trials(toy_probes(1.05 / slope), [dear, weak, cheap])
    assert [trial.candidate.name for trial in trials] == ["b", "a"]
    assert int(trials[0].broken.sum()) == 4
    below = run_trials(toy_probes(0.95 / slope), [dear, weak, cheap])
    assert {trial.candidate.name for trial in below} == {"a", "b", "c"}
    assert not any(trial.broken.any() for trial in below)


def tried(name: str, broken: list[bool], full: tuple[str, ...] = FULL_ON_FIX) -> Trial:
    return Trial(candidate(name, "pgd", full), torch.tensor(broken), 60)


def test_the_best_fix_attacks_from_many_starts_and_those_that_break_nothing_else_attack_once():
    yes, no = True, False
    trials = [
        tried("loss", [yes, yes, yes], ("apgd",)),
        tried("bpda", [yes, yes, no]),
        tried("smoothing", [yes, no, no]),
        tried("logits", [no, no, yes]),
        tried("square", [no, no, no], ("square",)),
    ]
    order = [one.candidate for one in remedies._with_more_starts(trials)]
    assert [one.name for one in order] == ["bpda", "bpda-again", "loss", "smoothing", "logits", "square"]
    assert order[1].full == (from_starts(STARTS),)
    assert order[3].full == FULL_ON_FIX[:1]
    assert order[4].full == FULL_ON_FIX
    assert remedies._with_more_starts(trials[:1]) == trials[:1]


@pytest.mark.parametrize(("budget", "starts"), [(9999, STARTS), (2700, 8), (1499, None), (400, None)])
def test_an_attack_from_many_starts_gets_half_of_what_is_left(budget, starts):
    target, first = LocalModel(two_classes(4), 2, CPU, 8), candidate("a", "pgd", ("pgd:steps=100",))
    taken = within_budget([Trial.without(first), Trial.without(first.with_more_starts())], target, budget)
    assert [one.full[0] for one in taken] == ["pgd:steps=100", *([from_starts(starts)] if starts else [])]


def test_the_budget_is_spent_in_order_and_square_gets_what_is_left():
    target = LocalModel(two_classes(4), 2, CPU, 8)
    first, second = candidate("a", "pgd", ("pgd:steps=100", "pgd:steps=900")), candidate("square", "pgd", ("square",))
    assert passes("pgd:steps=100", target, first.module) == 300
    taken = within_budget([Trial.without(first), Trial.without(second)], target, 1300)
    assert [one.full for one in taken] == [("pgd:steps=100",), ("square:steps=1000,rescale_schedule=true",)]
    (only, *_) = within_budget([Trial.without(first)], target, 1)
    assert only.full == ("pgd:steps=100",), "one attack is always run"


@pytest.mark.parametrize(
    ("seconds", "budget"), [(1e-9, remedies.MOST_PASSES), (1e9, remedies.LEAST_PASSES), (0.011, 2500), (0.015, 2500)]
)
def test_the_budget_is_what_the_time_allows_in_steps_that_two_calls_agree_on(seconds, budget, monkeypatch):
    monkeypatch.setattr(remedies, "seconds_per_call", lambda probes: seconds)
    probes = toy_probes(0.1)
    share = len(probes) / remedies.BUDGET_IMAGES
    monkeypatch.setattr(remedies, "BUDGET_SECONDS", 40.0 / share)
    assert remedies.passes_per_image(probes) == budget


def test_time_on_a_cpu_is_that_of_the_process_only():
    started = seconds_now(CPU)
    time.sleep(0.2)
    assert seconds_now(CPU) - started < 0.1
