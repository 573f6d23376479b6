"""Models that change with their calls are attacked and verified as they were before the first one."""

import pickle
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

import robustassay as ra
from robustassay.data import from_arrays, load
from robustassay.evaluation.first_state import FirstState
from robustassay.evaluation.repeatability import compare_with_unused
from tests.support.masked import AnswersFromMemory, Drifts


class Shrinks(nn.Module):
    """Each call makes the logits smaller, by a buffer changed in place, and leaves its image behind."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.scale = net, nn.Buffer(torch.ones(1))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        self.scale.mul_(0.5)
        bias = float(getattr(self, "last", 0))
        self.last = float(x.mean())
        self.register_buffer("seen", x.detach().mean() + getattr(self, "seen", 0))
        logits: Tensor = self.net(x) * self.scale + bias + self.seen
        return logits


class RepeatsItself(nn.Module):
    """Gives every batch the logits of the first batch of its size."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.first: dict[int, Tensor] = {}
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.first.setdefault(len(x), self.net(x))


class HoldsOn(nn.Module):
    """Gives a batch the logits of the call before, if that had as many images."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.last = net, torch.zeros(0)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        if len(self.last) == len(x):
            return self.last
        self.last = logits.detach()
        return logits


@pytest.fixture
def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 225, 10)).eval()


@pytest.mark.parametrize("change", [Drifts, AnswersFromMemory, Shrinks, RepeatsItself])
def test_every_call_gives_what_the_first_one_gave(net, change):
    x = load("cifar10-1k").images(slice(0, 4))
    expected, first = change(net)(x), FirstState(change(net))
    near = (x + 0.01).clamp(0, 1)
    assert torch.equal(first(x), expected)
    assert torch.equal(first(near), change(net)(near)), "not that of a model that has seen x"
    assert torch.equal(first(x), expected)
    assert torch.equal(pickle.loads(pickle.dumps(first))(x), expected)


def test_the_first_state_follows_the_type_of_the_model(net):
    model = FirstState(Shrinks(net)).double()
    assert model(torch.rand(2, 3, 32, 32, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize("change", [Drifts, AnswersFromMemory, RepeatsItself])
def test_a_model_with_a_state_is_as_robust_as_an_unused_copy_of_it(net, change):
    x = load("cifar10-1k").images(slice(0, 12))
    with torch.no_grad():
        images = from_arrays(x, change(net)(x).argmax(1))
    search = ra.Search(despite_flags=True)
    plain = ra.evaluate(net, images, ra.LInf(4 / 255), "pgd", search=search)
    assert plain.robust_accuracy < 0.2, "or memory protects nothing"
    found = ra.evaluate(change(net), images, ra.LInf(4 / 255), "pgd", search=search)
    assert found.robust_accuracy <= plain.robust_accuracy + 0.1
    assert "stateful" in found.flags


def test_a_memory_of_the_last_call_alone_is_found_whatever_the_last_call_was(net):
    model, x = HoldsOn(net), torch.rand(8, 3, 32, 32)
    unused = deepcopy(model)
    model(x[:1])
    assert compare_with_unused(model, unused, x).changed
    assert not compare_with_unused(net, deepcopy(net), x).changed
