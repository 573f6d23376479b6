"""How many draws of a random model a gradient averages."""

import pytest
import torch
from torch import Tensor, nn

import robustassay as ra
from robustassay import data
from robustassay.evaluation.gradient_noise import DRAWS, GradientNoise, measure_gradient_noise
from robustassay.target import LocalModel

VALUES = 3 * 6 * 6
X = torch.rand(8, 3, 6, 6, generator=torch.Generator().manual_seed(0)) * 0.5 + 0.25
Y = torch.zeros(8, dtype=torch.int64)


class NoisyWeights(nn.Module):
    """A linear model with two classes whose weights are drawn anew for every image."""

    def __init__(self, sigma: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((VALUES,), 1.0))
        self.sigma = sigma

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        margin = (flat * (self.weight + self.sigma * torch.randn_like(flat))).sum(1)
        return torch.stack((margin, 0 * margin), 1)


def expected_cosine(sigma: float, draws: int) -> float:
    return float((1 / (1 + sigma**2 / draws)) ** 0.5)


@pytest.mark.parametrize("sigma", [0.5, 2.0, 4.0])
def test_the_cosine_is_that_of_the_closed_form(sigma):
    torch.manual_seed(0)
    target = LocalModel(NoisyWeights(sigma).eval(), 2, torch.device("cpu"), random=True)
    noise = measure_gradient_noise(target, data.from_arrays(X, Y))
    for draws in DRAWS:
        assert noise.cosine(draws) == pytest.approx(expected_cosine(sigma, draws), abs=0.06)


def test_without_noise_every_number_of_draws_is_enough():
    nothing = torch.zeros(4)
    assert GradientNoise(nothing, nothing).draws == DRAWS[0], "a gradient of zero has no noise either"
    assert GradientNoise(nothing + 1, nothing).draws == DRAWS[0]
    assert GradientNoise(nothing, nothing + 1).draws == DRAWS[-1]


@pytest.mark.parametrize(("sigma", "draws", "flagged"), [(1.0, 20, False), (2.7, 40, False), (15.0, 80, True)])
def test_draws_are_raised_until_the_gradient_is_steady(sigma, draws, flagged):
    model = NoisyWeights(sigma).eval()
    found = ra.evaluate(model, (X, Y), ra.LInf(0.01), "fgsm", search=ra.Search(self_test=0))
    assert found.manifest["spec"]["model"]["eot"] == draws
    assert ("noisy-gradients" in found.flags) == flagged
    assert found.records["backwards"].max() == draws


def test_a_number_that_is_given_holds():
    found = ra.evaluate(NoisyWeights(15.0).eval(), (X, Y), ra.LInf(0.01), "fgsm", search=ra.Search(eot=3, self_test=0))
    assert found.manifest["spec"]["model"]["eot"] == 3
    assert "noisy-gradients" not in found.flags
