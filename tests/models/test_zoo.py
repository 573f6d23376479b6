"""The embedded models on embedded images: what the cards promise, and what attacks cost on them."""

import pytest

import robustassay as ra
from robustassay import models
from robustassay.data import load
from robustassay.models.verification import verify

SMALL = ("resnet20-natural", "resnet20-pgd", "vgg11-natural", "convnet-ibp")


@pytest.mark.parametrize("name", models.names())
def test_accuracy_on_the_sample_fits_the_card(name):
    """A wrong normalisation, layer or weight would show on 150 images; 10,000 stand behind the card."""
    found = verify(name, load("cifar10-1k").take(150))
    assert found.verdict == "ok", found.problem
    assert found.images == 150
    assert models.card(name).clean_images == 10_000


def test_rows_that_leave_save_at_least_half_the_gradients():
    result = ra.evaluate("resnet20-natural", "cifar10-1k", ra.LInf(8 / 255), "pgd:steps=40", limit=100)
    assert result.robust_accuracy == 0.0
    assert result.records["backwards"].sum() <= 40 * 100 / 2


def test_adversarial_training_shows():
    natural, trained = (
        ra.evaluate(name, "cifar10-1k", ra.LInf(8 / 255), "bim", limit=48)
        for name in ("resnet20-natural", "resnet20-pgd")
    )
    assert natural.robust_accuracy == 0.0
    assert trained.interval[0] > 0.2
    assert trained.clean_accuracy < natural.clean_accuracy


def test_targets_are_reached_and_verified():
    threat = ra.ThreatModel(ra.LInf(8 / 255), ra.LeastLikely())
    result = ra.evaluate("resnet20-natural", "cifar10-1k", threat, "pgd:steps=20", limit=32)
    assert result.attack_success_rate > 0.9
    won = result.records[result.records["success"]]
    assert (won["adv_label"] == won["target"]).all()


@pytest.mark.parametrize("name", SMALL)
def test_noise_is_weaker_than_a_gradient(name):
    noise, bim = ra.evaluate(name, "cifar10-1k", ra.L2(0.5), ["uniform-noise", "bim"], limit=24).parts.values()
    assert bim.robust_accuracy < noise.robust_accuracy
