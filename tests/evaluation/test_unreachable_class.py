"""A class that comes second almost everywhere and wins nowhere is found; classes of honest models can be reached."""

import pytest
import torch
from torch import Tensor, nn

import robustassay as ra
from robustassay import data
from robustassay.evaluation.unreachable_class import find_unreachable_class
from robustassay.target import LocalModel
from tests.support.toys import CPU

CLASSES = 4


class Follower(nn.Module):
    """Appends a class that follows the winner and never wins."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        z = self.network(x)
        return torch.cat((z, z.amax(1, keepdim=True) - 0.5 - 0.4 * torch.tanh(x.flatten(1).mean(1, keepdim=True))), 1)


@pytest.fixture(scope="module")
def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = nn.Linear(16, CLASSES)
        head.weight.data *= 40  # so that margins are wider than the follower's distance
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.Tanh(), head).eval()


@pytest.fixture(scope="module")
def x() -> Tensor:
    return torch.rand(24, 3, 2, 2, generator=torch.Generator().manual_seed(0))


def found(model: nn.Module, x: Tensor) -> int | None:
    with torch.no_grad():
        logits = model(x)
    return find_unreachable_class(LocalModel(model, logits.shape[1], CPU), x, logits)


def test_a_class_that_never_wins_is_found(network, x):
    assert found(Follower(network), x) == CLASSES
    assert found(Follower(network), x[:4]) is None, "too few images to say so"


def test_a_second_class_behind_one_winner_is_no_sign(network, x):
    """As with a model that predicts one class everywhere: some other class always comes second."""
    model = Follower(network)
    with torch.no_grad():
        winners = model(x).argmax(1)
    most = x[winners == winners.mode().values]
    assert len(most) >= 8
    assert found(model, most) is None


def test_a_class_that_comes_second_on_all_images_but_can_be_reached_is_none(network, x):
    """As with images of one class, whose neighbour comes second."""
    with torch.no_grad():
        first, second = network(x).topk(2, dim=1).indices.unbind(1)
    pair = max(
        (((first == one) & (second == two)).nonzero().squeeze(1) for one in range(CLASSES) for two in range(CLASSES)),
        key=len,
    )
    images = x[pair].repeat(8, 1, 1, 1)[:8]
    assert found(network, images) is None
    assert found(network, x) is None


def test_it_is_a_flag_and_what_stands_is_in_doubt(network, x):
    model = Follower(network).eval()
    with torch.no_grad():
        samples = data.from_arrays(x, model(x).argmax(1))
    result = ra.evaluate(model, samples, ra.LInf(0.01), "pgd:steps=5")
    assert "unreachable-class" in result.flags
    assert len(result.doubtful) == round(result.robust_accuracy * len(x)) > 0
    assert "unreachable-class" not in ra.evaluate(network, samples, ra.LInf(0.01), "pgd:steps=5").flags
