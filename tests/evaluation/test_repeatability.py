"""Randomness, memory and batch mates: told apart, whatever the scale of the logits."""

import cProfile

import pytest
import torch
from torch import Tensor, nn

import robustassay as ra
from robustassay import data
from robustassay.errors import BadModel
from robustassay.evaluation.checks import check_model
from robustassay.evaluation.flags import find_flags
from robustassay.evaluation.inspection import inspect_model
from robustassay.evaluation.repeatability import depends_on_batch
from robustassay.target import LocalModel, relative_difference
from robustassay.target.surrogate import find_surrogate
from tests.support.masked import AnswersFromMemory, Drifts, Masked, Optimises, crowd_dependent, noisy, with_far_class
from tests.support.toys import CPU

IMAGES = data.load("cifar10-1k").take(12)


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 15 * 15, 10)).eval()


def flags_of(model: nn.Module) -> set[str]:
    return {flag.name for flag in inspect_model(model, IMAGES, CPU, None, 4, despite_flags=True).flags}


# ---------------------------------------------------------------- scale


def test_a_class_far_below_the_others_hides_no_randomness(net):
    assert check_model(with_far_class(noisy(net)), IMAGES, CPU, despite_flags=False).random
    assert not check_model(with_far_class(net), IMAGES, CPU, despite_flags=False).random


def test_a_class_far_below_the_others_hides_no_batch_mates(net):
    with pytest.raises(BadModel, match="other images of its batch"):
        check_model(with_far_class(crowd_dependent(net, 1)), IMAGES, CPU, despite_flags=False)


def test_a_surrogate_that_differs_is_refused_beside_a_class_far_below(net):
    class Odd(nn.Module):
        """Its batch norm is traced with a branch that only a batch of eight takes."""

        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.rest = net[0], nn.BatchNorm2d(8), net[1:]
            self.shift = 0.0
            self.eval()

        def forward(self, x: Tensor) -> Tensor:
            z = self.rest(self.norm(self.conv(x)))
            return torch.cat((z + self.shift * z.flip(1), torch.full_like(z[:, :1], -1e9)), 1)

    model, x = Odd(), IMAGES.images(slice(0, 8))
    assert find_surrogate(model, x) is not None

    class Shifts(Odd):
        @property
        def shift(self) -> float:  # 0 while it is traced, and 0.1 when it is called
            return 0.0 if isinstance(self._seen, torch.fx.Proxy) else 0.1

        @shift.setter
        def shift(self, value: float) -> None:
            pass

        def forward(self, x: Tensor) -> Tensor:
            self._seen = x
            return super().forward(x)

    assert find_surrogate(Shifts(), x) is None


def test_differences_are_measured_on_the_scale_of_the_leading_logits():
    one = torch.tensor([[5.0, 1.0, 0.0, -1e9]])
    assert float(relative_difference(one, one + torch.tensor([[0, 0.5, 0, 0]]))) == pytest.approx(0.1, rel=1e-3)
    assert float(relative_difference(one, one + torch.tensor([[0, 0, 0, -1e8]]))) == 0
    assert float(relative_difference(one, one + 3)) == 0, "a shift of all logits changes no margin"
    rounded = torch.tensor([[5.02, 1.0, 0.0]])
    assert float(relative_difference(one[:, :3], rounded)) > 1e-3
    assert float(relative_difference(one[:, :3], rounded, torch.bfloat16)) == 0


# ---------------------------------------------------------------- batches


@pytest.mark.parametrize("more_than", [1, 8, 31])
def test_batch_mates_are_noticed_at_the_sizes_of_search_and_verification(net, more_than):
    with pytest.raises(BadModel, match="other images of its batch"):
        ra.evaluate(crowd_dependent(net, more_than), IMAGES, ra.LInf(0.01), "pgd:steps=1")


def test_a_chosen_batch_size_is_the_one_that_is_checked(net):
    odd = crowd_dependent(net, 80)
    assert check_model(odd, IMAGES, CPU, despite_flags=False)
    with pytest.raises(BadModel, match="number"):
        check_model(odd, IMAGES, CPU, despite_flags=False, batch_size=96)


def test_the_place_in_a_batch_is_noticed(net):
    def after(z: Tensor) -> Tensor:
        return z + torch.arange(len(z))[:, None] / 100 * torch.arange(10)

    with pytest.raises(BadModel, match="batch"):
        check_model(Masked(net, after=after), IMAGES, CPU, despite_flags=False)


def test_a_model_that_draws_one_of_two_parts_is_random_and_not_refused(net):
    other = nn.Sequential(*(part for part in net[:-1]), nn.Linear(8 * 15 * 15, 10)).eval()

    class OneOfTwo(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList((net, other))
            self.eval()

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.parts[int(torch.randint(2, ()))](x)
            return logits

    for seed in range(6):
        torch.manual_seed(seed)
        assert check_model(OneOfTwo(), IMAGES, CPU, despite_flags=False).random


class Seldom(nn.Module):
    """Draws a number in every pass; one pass in five adds noise."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        return logits + torch.randn_like(logits) * (torch.rand(()) < 0.2)


def test_a_model_whose_draws_seldom_change_an_answer_is_random(net):
    for seed in range(8):
        torch.manual_seed(seed)
        assert check_model(Seldom(net), IMAGES, CPU, despite_flags=False).random


# ---------------------------------------------------------------- state


def test_state_that_drifts_is_not_called_randomness(net):
    assert flags_of(Drifts(net)) == {"stateful"}
    assert flags_of(noisy(net)) == {"randomised"}
    assert "stateful" in flags_of(noisy(Drifts(net)))
    assert flags_of(net) == set()


def test_a_model_that_answers_near_copies_from_memory_is_noticed(net):
    assert "stateful" in flags_of(AnswersFromMemory(net))


def test_a_model_that_keeps_its_own_generator_is_random_and_not_stateful(net):
    class OwnNoise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.generator = net, torch.Generator().manual_seed(0)
            self.eval()

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.net(x + 0.05 * torch.randn(x.shape, generator=self.generator))
            return logits

    assert flags_of(OwnNoise()) == {"randomised"}


def test_a_model_that_cannot_be_copied_is_still_inspected(net):
    class Handle:
        def __deepcopy__(self, memo: object) -> None:
            raise TypeError("no copy")

    model = Masked(net)
    object.__setattr__(model, "handle", Handle())
    assert flags_of(model) == set()


# ---------------------------------------------------------------- profilers


def test_flags_are_found_under_a_profiler_which_goes_on_afterwards(net):
    target = LocalModel(Optimises(net), 10, CPU)
    with cProfile.Profile() as profile:
        found = find_flags(target, IMAGES, probabilities=False)
        sorted([3, 1, 2])
    assert "dynamic" in {flag.name for flag in found}
    names = {entry.code for entry in profile.getstats()}
    assert any("sorted" in str(name) for name in names)


def test_dependence_on_a_large_batch_is_sought_with_fewer_images_where_memory_ends():
    sizes = []

    class Small(nn.Module):
        def forward(self, x):
            sizes.append(len(x))
            if len(x) > 24:
                raise torch.OutOfMemoryError("CUDA out of memory")
            sign = -1.0 if len(x) > 12 else 1.0
            return sign * x.flatten(1)[:, :3]

    x = torch.rand(8, 3, 4, 4)
    assert depends_on_batch(Small(), x, x.flatten(1)[:, :3], batch_size=64, images=64)
    assert sizes[-2:] == [32, 16]
