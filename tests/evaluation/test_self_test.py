"""The self-test: an attack that works finds planted adversarial examples, one that does not work misses them."""

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

import robustassay as ra
from robustassay.attacks.attack import Attack
from robustassay.data import Dataset, from_arrays, load
from robustassay.errors import BadRequest, Interrupted
from robustassay.evaluation import self_test
from robustassay.evaluation.planting import plant
from robustassay.evaluation.self_test import choose_samples, run_self_test
from robustassay.interrupt import StopRequest
from robustassay.rng import Streams
from robustassay.store import AFTER
from robustassay.target import GradientAccess, LocalModel
from robustassay.threat import Ball
from tests.support.masked import Masked, noisy, quantised

THREAT = ra.LInf(8 / 255)
TESTED = ra.Search(self_test=8, despite_flags=True)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 49, 10)
    return nn.Sequential(*layers).eval()


@pytest.fixture(scope="module")
def dataset(model) -> Dataset:
    x = load("cifar10-1k").images(slice(0, 16))
    with torch.no_grad():
        return from_arrays(x, model(x).argmax(1))


@dataclass(frozen=True)
class Descends(Attack[GradientAccess]):
    """PGD with the wrong sign."""

    access = GradientAccess
    norms = (ra.LInf,)
    steps: int = 40

    def __call__(self, view, x0):
        x = view.ball.sample(view.rng)
        for _ in range(self.steps):
            gradient, _ = view.gradient(x)
            x = view.ball.step(x, -gradient, 0.1 * view.ball.eps)
            (x,) = view.drop_finished(x)
        return x


@pytest.mark.parametrize(
    ("attack", "norm"),
    [
        ("pgd", THREAT),
        ("pgd", ra.L2(0.5)),
        ("pgd", ra.L1(12)),
        ("apgd", THREAT),
        ("express", THREAT),
        ("ddn", ra.L2(0.5)),
    ],
    ids=str,
)
def test_attacks_that_work_pass(model, dataset, attack, norm):
    found = ra.evaluate(model, dataset, norm, attack, search=TESTED)
    assert found.self_test.passed
    assert found.self_test.rate.total >= 6
    assert "self-test" not in found.flags


@pytest.mark.parametrize("attack", ["pgd:steps=1", Descends()], ids=["one step", "wrong sign"])
def test_attacks_that_do_not_work_fail_and_all_that_stands_is_in_doubt(model, dataset, attack):
    found = ra.evaluate(model, dataset, THREAT, attack, search=TESTED)
    assert found.self_test.rate.count == 0
    assert found.self_test.rate.total >= 6
    assert "self-test" in found.flags
    assert found.evidence.label.endswith(", self-test failed)")
    assert len(found.doubtful) == round(len(dataset) * found.robust_accuracy) > 0


@pytest.mark.parametrize(
    "mask",
    [quantised, lambda model: Masked(model, after=lambda z: 1e5 * z)],
    ids=["quantised", "logits of a hundred thousand"],
)
def test_pgd_fails_on_a_masked_model(model, dataset, mask):
    found = ra.evaluate(mask(model), dataset, THREAT, "pgd", search=TESTED)
    assert found.self_test.examined
    assert not found.self_test.passed


def test_the_planted_point_is_in_the_ball_and_adversarial_and_random_points_are_not(model, dataset):
    x0 = dataset.images(slice(0, 8))
    target = LocalModel.of(model, x0, torch.device("cpu"))
    for by_gradient in (False, True):
        planted = plant(target, THREAT, dataset.ids[:8], x0, 0, by_gradient)
        binary = planted.target(range(len(planted.ids)))
        ball = Ball(THREAT, planted.x0, torch.full((len(planted.ids),), THREAT.eps))
        assert len(planted.ids) >= 6
        assert (binary.logits(planted.x_adv).argmax(1) == 1).all()
        assert ball.holds(planted.x_adv, ball.distance(planted.x_adv)).all()
        rng = Streams.of(1, planted.ids)
        tried = torch.stack([binary.logits(ball.sample(rng)).argmax(1) for _ in range(50)])
        assert tried.float().mean() < 0.01
        assert (binary.logits(planted.x0).argmax(1) == 0).all()


def test_heads_look_at_features_and_at_logits_in_turn(model, dataset):
    x0 = dataset.images(slice(0, 8))
    planted = plant(LocalModel.of(model, x0, torch.device("cpu")), THREAT, dataset.ids[:8], x0, 0)
    on_features, on_logits = planted.weights[:, :-10].abs().sum(1) > 0, planted.weights[:, -10:].abs().sum(1) > 0
    assert (on_features != on_logits).all()
    assert on_features.any()
    assert on_logits.any()


def test_records_and_keys_do_not_change_and_the_test_is_stored_beside_them(model, dataset, tmp_path, monkeypatch):
    plain = ra.evaluate(model, dataset, THREAT, "pgd:steps=3", search=ra.Search(self_test=0), out=tmp_path / "run")
    assert not plain.self_test.examined
    assert not (tmp_path / "run" / AFTER).exists()
    shards = {path.name for path in (tmp_path / "run" / "shards").iterdir()}
    tested = ra.evaluate(model, dataset, THREAT, "pgd:steps=3", search=TESTED, out=tmp_path / "run")
    assert {path.name for path in (tmp_path / "run" / "shards").iterdir()} == shards
    assert tested.manifest["key"] == plain.manifest["key"]
    pd.testing.assert_frame_equal(tested.records, plain.records)
    fresh = ra.evaluate(model, dataset, THREAT, "pgd:steps=3", search=TESTED)
    pd.testing.assert_frame_equal(fresh.records.drop(columns="seconds"), plain.records.drop(columns="seconds"))
    held = json.loads((tmp_path / "run" / AFTER).read_text())["self_test"]
    assert held["forwards"] > 8 * 64
    assert held["planted"] == len(held["found"]) == fresh.self_test.rate.total
    monkeypatch.setattr(self_test, "plant", lambda *_: pytest.fail("the test was made again"))
    again = ra.evaluate(model, dataset, THREAT, "pgd:steps=3", search=TESTED, out=tmp_path / "run")
    assert again.self_test.found == tested.self_test.found == fresh.self_test.found
    loaded = ra.Result.load(tmp_path / "run")
    assert loaded.self_test == again.self_test
    loaded.save(tmp_path / "copy")
    assert ra.Result.load(tmp_path / "copy").self_test == again.self_test


def test_of_several_attacks_one_must_find_an_example(model, dataset):
    both = ra.evaluate(model, dataset, THREAT, ["pgd:steps=1", "pgd"], search=TESTED)
    weak, strong = both.parts.values()
    assert weak.self_test.asked == strong.self_test.asked
    assert "self-test" in weak.flags
    assert not strong.flags
    assert both.self_test.passed
    assert not both.flags
    assert both.self_test.forwards == weak.self_test.forwards + strong.self_test.forwards


def test_a_confirming_attack_is_tested_on_what_was_not_found(model, dataset):
    found = ra.evaluate(model, dataset, THREAT, "pgd:steps=1", search=ra.Search(self_test=4, confirm="pgd:steps=20"))
    missed = [sample for sample, hit in found.parts["pgd"].self_test.found.items() if not hit]
    assert missed
    assert set(found.parts["confirm"].self_test.asked) >= set(missed)
    assert found.self_test.passed


@pytest.mark.parametrize(
    "attack",
    [
        "apgd-t", "fab:steps=10", "deepfool", "cw:steps=20,search_steps=1", "fmn:steps=20",
        "autoattack:steps=10,queries=20",
        "square:steps=20", "nes", "spsa", "simba", "rgf", "boundary", "hopskipjump", "sign-opt", "rays", "geoda",
        "evolutionary", "transfer:source=resnet20-natural,attack=pgd(steps=1)", "uniform-noise",
    ],
)  # fmt: skip
def test_attacks_of_every_access_can_be_tested(model, dataset, attack):
    """Two classes are too few for some losses, and decision attacks start from other images."""
    (norm,) = [one for one in (THREAT, ra.L2(0.5)) if type(one) in type(ra.attacks.create(attack)).norms][:1]
    search = ra.Search(self_test=2, despite_flags=True, query_budget=60)
    found = ra.evaluate(model, dataset, norm, attack, search=search, limit=2)
    assert found.self_test.examined, found.self_test.not_examined


def test_random_models_are_tested_with_their_draws(model, dataset):
    found = ra.evaluate(
        noisy(model, 0.002), dataset, THREAT, "pgd:steps=20", search=ra.Search(self_test=4, eot=4), limit=8
    )
    assert found.self_test.passed
    assert found.self_test.forwards > 4 * 4 * 64


def test_targeted_attacks_are_tested(model, dataset):
    threat = ra.ThreatModel(THREAT, ra.RandomTarget())
    assert ra.evaluate(model, dataset, threat, "pgd", search=TESTED).self_test.passed


def test_services_and_models_that_fail_are_not_examined(model, dataset):
    service: Any = SimpleNamespace(target=SimpleNamespace(is_remote=True))
    assert "service" in run_self_test(service, ra.attacks.create("square"), ["a"], StopRequest()).not_examined
    constant = Masked(model, after=lambda z: 0 * z + torch.arange(10))
    found = ra.evaluate(constant, dataset, THREAT, "pgd:steps=1", search=TESTED).self_test
    assert found.not_examined or found.examined  # features still vary: only heads on logits cannot be planted
    flat = Masked(model, before=lambda x: 0 * x)
    blind = ra.evaluate(flat, dataset, THREAT, "square:steps=2", search=TESTED).self_test
    assert "did not move" in blind.not_examined
    assert not blind.passed


def test_a_request_to_stop_ends_a_self_test(model, dataset):
    from robustassay.evaluation.prepare import prepare

    prepared = prepare(model, dataset, THREAT, "pgd", search=TESTED)
    stop = StopRequest()
    stop.asked = True
    with pytest.raises(Interrupted, match="self-test"):
        run_self_test(prepared, ra.attacks.create("pgd"), dataset.ids[:2], stop)


def test_unbroken_samples_come_first():
    records = pd.DataFrame({"sample_id": list("abcdefgh"), "clean_ok": True, "success": [True, False] * 4})
    assert choose_samples(records, 2) == ["b", "f"]
    assert choose_samples(records, 6) == ["b", "d", "f", "h", "a", "c"]
    assert choose_samples(records, 20) == list("bdfhaceg")


def test_a_negative_number_of_samples_is_refused():
    with pytest.raises(BadRequest, match="0 for none"):
        ra.Search(self_test=-1)


def test_attacks_of_one_evaluation_share_the_planted_examples(model, dataset, monkeypatch):
    calls = []

    def counted(*given):
        calls.append(given)
        return plant(*given)

    monkeypatch.setattr(self_test, "plant", counted)
    result = ra.evaluate(model, dataset, THREAT, ["fgsm", "bim:steps=2"], limit=4, search=TESTED)
    assert len(calls) == 1
    assert all(part.self_test.examined for part in result.parts.values())


class PerImage(nn.Module):
    """A network that is called with one image at a time, inside of vmap."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = torch.vmap(lambda image: self.net(image[None])[0])(x)
        return logits


def test_a_model_inside_of_vmap_is_read_by_its_logits(model, dataset):
    found = ra.evaluate(PerImage(model), dataset, THREAT, "pgd", search=TESTED)
    assert found.self_test.passed
