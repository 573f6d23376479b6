"""Iterations: the clean image is iteration 0, and what the k-th step finds is iteration k, whatever the attack."""

import pytest
import torch
from torch import nn

import robustassay as ra
from robustassay import attacks

QUICK = {
    "apgd": "apgd:steps=6",
    "apgd-t": "apgd-t:steps=4,targets=2",
    "autoattack": "autoattack:steps=3,queries=10",
    "bim": "bim:steps=6",
    "fgsm": "fgsm",
    "gaussian-noise": "gaussian-noise:steps=6",
    "mim": "mim:steps=6",
    "pgd": "pgd:steps=6",
    "pma": "pma:steps=6",
    "square": "square:steps=20",
    "uniform-noise": "uniform-noise:steps=6",
}


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 24), nn.Tanh(), nn.Linear(24, 5)).eval()


@pytest.fixture(scope="module")
def data(model) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.rand(32, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    labels = model(x).argmax(1)
    labels[:4] = (labels[:4] + 1) % 5  # misclassified, so broken at iteration 0
    return x, labels


@pytest.mark.parametrize("norm", [ra.LInf(0.05), ra.L1(12.0)])
@pytest.mark.parametrize("name", QUICK)
def test_a_curve_over_iterations_starts_at_the_clean_accuracy(model, data, name, norm):
    attack = attacks.create(QUICK[name])
    if type(norm) not in attack.norms:
        pytest.skip(f"{name} does not work under {norm.name}")
    result = ra.evaluate(model, data, norm, attack)
    records = result.records
    found = records["claimed_at_iteration"][records["clean_ok"] & records["claimed"]]
    assert len(found), "the attack must break something"
    assert found.min() >= 1
    assert (records["claimed_at_iteration"][~records["clean_ok"].astype(bool)] == 0).all()
    assert result.curve(versus="iterations").at(0).value == result.clean_accuracy


@pytest.mark.parametrize("name", ["apgd", "bim", "pgd"])
def test_the_kth_step_is_iteration_k(name):
    """A sample that step k breaks has cost the gradients of the start point and of k steps."""
    records = ra.evaluate("resnet20-pgd", "cifar10-1k", ra.LInf(6 / 255), f"{name}:steps=20", limit=24).records
    late = records[records["clean_ok"] & records["claimed"] & records["claimed_at_iteration"].between(2, 18)]
    assert len(late), "some must be broken after the first step"
    assert (late["backwards"] == late["claimed_at_iteration"] + 1).all()


def test_the_kth_draw_of_noise_is_iteration_k(model, data):
    records = ra.evaluate(model, data, ra.LInf(0.15), "uniform-noise:steps=40").records
    broken = records[records["clean_ok"] & records["claimed"]]
    assert broken["claimed_at_iteration"].max() > 1
    assert (broken["claimed_at_iteration"] == broken["claimed_at_query"]).all()
    assert (records["iterations"][~records["claimed"]] == 40).all()
