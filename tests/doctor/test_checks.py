"""The doctor's checks: each on a model made for it, and the judgement of all together."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import robustassay as ra
from robustassay import data
from robustassay.attacks.score.square import Square
from robustassay.doctor import REMEDIES, Diagnosis, IndicatorResult, cross_checks, diagnose
from robustassay.doctor.cross_checks import WhiteBox
from robustassay.doctor.diagnosis import check_all
from robustassay.doctor.gradient_checks import compare_gradients, misleading_gradients, unavailable_gradients
from robustassay.doctor.output_checks import unresponsive_logits, vanishing_loss
from robustassay.doctor.probe_set import ProbeSet
from robustassay.doctor.repeat_checks import batch_mates, memory
from robustassay.evaluation.constant_outputs import is_constant
from robustassay.evaluation.flags import find_flags
from robustassay.evaluation.repeatability import unused_copy
from robustassay.target import LocalModel
from robustassay.threat import LInf
from tests.support import masked
from tests.support.toys import CPU, Linear

EPS = 8 / 255
IMAGES = data.load("cifar10-1k").take(16)


@pytest.fixture(scope="module")
def natural() -> nn.Module:
    return ra.load_model("vgg11-natural")


def probes_of(model: nn.Module, random: bool = False) -> ProbeSet:
    x, background = IMAGES.images(slice(None)), data.load("cifar10-1k").images(slice(16, 64))
    classes = model(x[:1]).shape[1]
    target = LocalModel(model, classes, CPU, random=random)
    return ProbeSet.of(target, IMAGES.ids, x, IMAGES.labels, LInf(EPS), background)


# ---------------------------------------------------------------- joint judgement


def sign(name: str, value: float, kind: str = "") -> IndicatorResult:
    return IndicatorResult(name, value, 0.5, "", ("square", "bpda"), weak_limit=0.1, kind=kind)


def verdicts(*results: IndicatorResult) -> list[str]:
    found = Diagnosis("m", "t", 3, results, {}, 0.0)
    return [found.verdict(result) for result in results]


def test_one_strong_sign_or_two_weak_ones_of_different_kinds_are_an_alarm():
    assert verdicts(sign("a", 0.6), sign("b", 0.0)) == ["alarm", "fine"]
    assert verdicts(sign("a", 0.2), sign("b", 0.0)) == ["fine", "fine"]
    assert verdicts(sign("a", 0.2, "one"), sign("b", 0.3, "two")) == ["alarm", "alarm"]
    assert verdicts(sign("a", 0.2, "one"), sign("b", 0.3, "one")) == ["fine", "fine"]
    assert verdicts(sign("a", 0.2), sign("b", 0.6)) == ["alarm", "alarm"]


def test_what_was_not_examined_is_neither_fine_nor_an_alarm_and_is_shown_everywhere():
    missing = IndicatorResult.not_examined("transfer", 0.1, "no substitute fits")
    found = Diagnosis("m", "t", 3, (missing, sign("b", 0.0)), {}, 0.0)
    assert found.verdict(missing) == "not examined"
    assert not found.alarms
    assert "not examined: transfer (no substitute fits)" in str(found)
    told = found.to_json()
    assert told["not_examined"] == {"transfer": "no substitute fits"}
    assert [one["verdict"] for one in told["indicators"]] == ["not examined", "fine"]


def test_remedies_of_all_alarms_are_named_in_order():
    results = (
        IndicatorResult("a", 0.2, 0.1, "", ("square", "bpda")),
        IndicatorResult("b", 0.1, 0.1, "", ("steps",)),
        IndicatorResult("c", math.inf, 1.0, "", ("bpda", "loss")),
        IndicatorResult("d", 0.0, 1.0, "", (), note="known"),
    )
    found = Diagnosis("m", "t", 3, results, {}, 0.0)
    assert [result.indicator for result in found.alarms] == ["a", "c"]
    assert found.remedies == ("bpda", "loss", "square")
    assert found.because("bpda") == "a, c"
    assert set(found.remedies) <= set(REMEDIES)


# ---------------------------------------------------------------- gradients and logits


PARTLY_WRONG: dict[str, Callable[[nn.Module], nn.Module]] = {
    "columns": masked.partly_detached,
    "losing logits": masked.detached_losers,
    "sizes": masked.rescaled_gradients,
    "signs": masked.mostly_random_signs,
    "some images": lambda module: masked.lies_on_some(module, 0.4),
}


@pytest.mark.parametrize("name", PARTLY_WRONG)
def test_partly_wrong_gradients_are_an_alarm(name, natural):
    assert misleading_gradients(compare_gradients(probes_of(PARTLY_WRONG[name](natural)))).strong


def test_dead_regions_are_no_alarm_and_masked_gradients_are(natural):
    brightness = IMAGES.images(slice(None)).flatten(1).mean(1).sort().values
    dead = masked.DeadRegions(natural, float(brightness[3:5].mean()))
    x = IMAGES.images(slice(None))
    few = compare_gradients(ProbeSet.of(LocalModel(dead, 10, CPU), IMAGES.ids, x, dead(x).argmax(1), LInf(EPS)))
    assert int(few[0].zero.sum()) == 4, "a quarter: more would be no accident"
    assert not unavailable_gradients(few).strong
    assert not misleading_gradients(few).strong
    assert unavailable_gradients(compare_gradients(probes_of(masked.quantised(natural)))).value == 1


def test_coarse_precision_is_not_examined_instead_of_an_alarm(natural, monkeypatch):
    rounded = masked.RoundsActivations(natural, bits=8)
    monkeypatch.setattr(LocalModel, "dtype", torch.bfloat16)
    found = misleading_gradients(compare_gradients(probes_of(rounded)))
    assert not found.strong
    assert not found.weak


def test_noise_drawn_by_numpy_is_repeated_so_gradients_beside_it_are_examined(natural):
    wrong = misleading_gradients(compare_gradients(probes_of(masked.details_by_numpy(natural), random=True)))
    assert wrong.strong, wrong.evidence
    right = misleading_gradients(compare_gradients(probes_of(masked.noisy_by_numpy(natural), random=True)))
    assert not right.unexamined
    assert not right.strong, right.evidence


def test_hidden_scores_are_an_alarm(natural):
    assert unresponsive_logits(probes_of(masked.hidden_scores(natural))).strong
    assert unresponsive_logits(probes_of(natural)).value == 0
    assert unresponsive_logits(probes_of(masked.with_far_class(natural))).value == 0


def test_two_classes_leave_nothing_hidden():
    net = Linear(torch.eye(2, 3072), torch.tensor([1.0, 0.0]))
    x, labels = IMAGES.images(slice(0, 2)), torch.zeros(2, dtype=torch.int64)
    probes = ProbeSet.of(LocalModel(net, 2, CPU), IMAGES.ids[:2], x, labels, LInf(EPS))
    assert "2 classes" in unresponsive_logits(probes).unexamined


def test_margins_of_an_unusual_size_are_counted_and_not_averaged(natural):
    def after(z: Tensor) -> Tensor:
        return torch.where((z.argmax(1, keepdim=True) % 2 == 0), 1e4 * z, z)

    some = vanishing_loss(probes_of(masked.Masked(natural, after=after)), {})
    assert 0 < some.value < 1
    assert some.weak or some.strong
    assert vanishing_loss(probes_of(natural), {}).value == 0
    assert vanishing_loss(probes_of(masked.Masked(natural, after=lambda z: z + 3e7)), {}).strong
    assert vanishing_loss(probes_of(masked.with_far_class(natural)), {}).value == 0


def test_one_image_alone_is_no_strong_sign(natural):
    probes = probes_of(natural).among(torch.arange(16) < 1)
    found = cross_checks.transfer(unbroken(probes))
    assert found.value == 1
    assert found.weak


def test_small_logits_are_not_called_squashed(natural):
    small = LocalModel(masked.Masked(natural, after=lambda z: 0.5 + z / 100), 10, CPU)
    sigmoid = LocalModel(masked.Masked(natural, after=torch.sigmoid), 10, CPU)
    flags = [{flag.name for flag in find_flags(one, IMAGES, probabilities=False)} for one in (small, sigmoid)]
    assert ["squashed" in found for found in flags] == [False, True]


def test_a_scale_that_losses_can_handle_is_a_weak_sign_only(natural):
    def scaled(by: float) -> Callable[[Tensor], Tensor]:
        return lambda z: by * z

    found = {
        factor: vanishing_loss(probes_of(masked.Masked(natural, after=scaled(factor))), {})
        for factor in (1 / 300, 10, 1000)
    }
    assert {factor: (one.weak, one.strong) for factor, one in found.items()} == {
        1 / 300: (True, False),
        10: (True, False),
        1000: (False, True),
    }


# ---------------------------------------------------------------- constant models


def dead() -> nn.Module:
    """A network whose last ReLU is off for every image."""
    last = nn.Linear(4, 10)
    first = nn.Linear(3072, 4)
    torch.nn.init.constant_(first.weight, -1.0)
    torch.nn.init.constant_(first.bias, -1.0)
    torch.nn.init.constant_(last.bias, 0.0)
    last.bias.data[int(IMAGES.labels[0])] = 1.0
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), last).eval()


def test_a_dead_network_is_constant_and_one_that_shows_labels_only_is_not(natural):
    labels_only = masked.Masked(natural, after=lambda z: F.one_hot(z.argmax(1), 10).float())
    for model, constant in ((dead(), True), (labels_only, False), (natural, False)):
        target = LocalModel(model, 10, CPU)
        assert is_constant(target, IMAGES.images(slice(None))) is constant
        assert is_constant(target, IMAGES.images(slice(0, 1))) is constant, "one class of images is enough to tell"
        flags = {flag.name for flag in find_flags(target, IMAGES, probabilities=False)}
        assert ("no-gradients" in flags) is (model is labels_only)


def test_what_needs_changes_is_not_examined_on_a_dead_network():
    found = check_all(probes_of(dead()), ())
    assert not found.alarms
    assert {"unavailable gradients", "unbounded attack fails", "accuracy not falling with eps"} <= {
        result.indicator for result in found.unexamined
    }


# ---------------------------------------------------------------- state and batches


def test_a_used_model_is_compared_with_an_unused_copy(natural):
    for model, changed in ((masked.Drifts(natural), True), (masked.AnswersFromMemory(natural), True), (natural, False)):
        unused = unused_copy(model, torch.device("cpu"))
        probes = probes_of(model)
        assert memory(probes, unused, {}).strong is changed
    assert memory(probes_of(natural), None, {}).unexamined
    assert memory(probes_of(natural), None, {"stateful": "it changes"}).strong


def test_batch_mates_are_noticed_in_large_batches_only(natural):
    assert batch_mates(probes_of(masked.crowd_dependent(natural))).strong
    assert batch_mates(probes_of(natural)).value == 0
    assert batch_mates(probes_of(masked.noisy(natural), random=True)).unexamined


# ---------------------------------------------------------------- cross-checks


def unbroken(probes: ProbeSet) -> WhiteBox:
    """What remains after an attack that reached the clean margins only."""
    return WhiteBox(probes, probes.clean.double())


def test_square_beats_a_white_box_attack_that_did_nothing(natural, monkeypatch):
    monkeypatch.setattr(cross_checks, "QUERIES", 40)
    monkeypatch.setattr(cross_checks, "MIN_QUERIES", 40)
    probes = probes_of(natural)
    assert cross_checks.black_box(unbroken(probes)).strong
    best = WhiteBox(probes, probes.clean.double() - 1e3)
    assert cross_checks.black_box(best).value == 0
    assert "40 queries" in cross_checks.black_box(best).evidence


def test_no_attack_beats_gradient_attacks_that_only_need_more_steps(natural):
    probes = probes_of(natural)
    lower = probes.clean.double() - 1e3
    assert unbroken(probes).beaten(lower).all()
    longer = WhiteBox(probes, probes.clean.double(), cross_checks.LONGER)
    assert not longer.beaten(lower).any(), "longer attacks break every image of a natural network"
    masks = probes_of(masked.quantised(natural))
    assert WhiteBox(masks, masks.clean.double(), cross_checks.LONGER).beaten(masks.clean.double() - 1e3).any()
    assert longer.beaten(lower[:2]).shape == (2,)


def test_a_low_margin_of_one_draw_is_no_success(natural):
    """Of many draws around the clean image, some have a low margin."""
    square = Square(steps=60)
    random = probes_of(masked.noisy(ra.load_model("resnet20-pgd")), random=True)
    broken, margin = random.attacked_by(square)
    assert not broken.all()
    assert torch.equal(margin[~broken], random.clean.double()[~broken])
    assert (margin[broken] <= 0).all()
    same = probes_of(ra.load_model("resnet20-pgd"))
    assert (same.attacked_by(square)[1] < same.clean.double()).all(), "without draws the lowest margin counts"


def test_where_no_zoo_model_fits_a_substitute_is_distilled(natural, monkeypatch):
    monkeypatch.setattr("robustassay.doctor.distillation.STEPS", 120)
    monkeypatch.setattr("robustassay.doctor.distillation.QUERIES", 512)
    eleven = probes_of(masked.with_far_class(natural))
    assert not cross_checks.substitutes_apply(eleven)
    found = cross_checks.transfer(unbroken(eleven))
    assert not found.unexamined
    assert "distilled" in found.evidence
    assert found.strong, "the substitute has learnt nothing"


def test_inner_layers_of_a_saturated_branch_beat_a_white_box_attack_that_did_nothing(natural):
    probes = probes_of(masked.SaturatedBranch(natural, ra.load_model("alexnet-natural")))
    found = cross_checks.inner_layers(unbroken(probes))
    assert found.strong
    assert "decoy" in found.evidence
    assert cross_checks.inner_layers(WhiteBox(probes, probes.clean.double() - 1e3)).value == 0
    assert cross_checks.inner_layers(unbroken(probes_of(natural))).value == 0


@pytest.mark.parametrize("check", [cross_checks.fixed_gradients, cross_checks.smoothed_gradients])
def test_other_gradients_beat_a_white_box_attack_that_did_nothing(check, natural):
    probes = probes_of(masked.quantised(natural))
    assert check(unbroken(probes)).strong
    assert check(WhiteBox(probes, probes.clean.double() - 1e3)).value == 0


def test_a_model_without_functions_that_stop_gradients_needs_no_repair(natural):
    found = cross_checks.fixed_gradients(unbroken(probes_of(natural)))
    assert found.value == 0
    assert found.evidence.startswith("no function")


def test_the_time_bounds_the_queries(natural, monkeypatch):
    probes = probes_of(natural)
    monkeypatch.setattr(cross_checks, "SECONDS", 0.0)
    assert cross_checks.affordable_queries(probes) == cross_checks.MIN_QUERIES
    monkeypatch.setattr(cross_checks, "SECONDS", 1e9)
    assert cross_checks.affordable_queries(probes) == cross_checks.QUERIES


# ---------------------------------------------------------------- whole diagnoses


def test_a_diagnosis_names_what_it_could_not_examine():
    found = diagnose(masked.noisy(ra.load_model("vgg11-natural")), IMAGES, LInf(EPS), samples=4)
    assert "depends on the batch" in {result.indicator for result in found.unexamined}
