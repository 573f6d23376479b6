"""Diverse inputs and smoothed gradients: the transforms by themselves, in MIM's loop, and beside torchattacks."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.ndimage import correlate1d
from scipy.stats import norm as normal
from torch import Tensor, nn

import robustassay as ra
from robustassay import attacks, data
from robustassay.attacks.attack import Attack
from robustassay.attacks.common import transforms
from robustassay.errors import BadRequest
from robustassay.rng import Streams
from robustassay.target import GradientAccess
from robustassay.threat import L1, L2, LInf, Norm, Untargeted
from tests.support.toys import Constant, Spy, images, last_iterate, names, open_access, open_ledger, run

every_norm = pytest.mark.parametrize("norm", [LInf(8 / 255), L2(0.5), L1(10)], ids=lambda norm: norm.name)
NEVER = 1e9
"""A margin no point reaches, so that no row leaves before the last step."""


def photos(rows: int) -> tuple[Tensor, Tensor]:
    sample = data.load("cifar10-1k")
    return sample.images(list(range(rows))), torch.as_tensor(sample.labels[:rows])


def conv_net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Conv2d(3, 8, 3, 2), nn.SiLU(), nn.Conv2d(8, 12, 3, 2), nn.SiLU(), nn.AdaptiveAvgPool2d(3)]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(108, 10)).eval()


# ---------------------------------------------------------------- the change of the input


def changed(low: float, probability: float, x: Tensor, seed: int = 0) -> Tensor:
    change = transforms.diverse(low, probability)(Streams.of(seed, names(len(x))), x)
    return change(x, torch.arange(len(x)))


def window(image: Tensor) -> tuple[int, int, int, int]:
    """Top, left, height and width of what is not black; the images given have no black pixel."""
    lit = (image != 0).all(0)
    rows, columns = lit.any(1).nonzero().flatten(), lit.any(0).nonzero().flatten()
    top, left = int(rows[0]), int(columns[0])
    return top, left, int(rows[-1]) + 1 - top, int(columns[-1]) + 1 - left


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 20, 31), (2, 17, 9)], ids=str)
def test_each_image_is_shrunk_and_padded_as_torch_does_it(shape: tuple[int, ...]) -> None:
    x = images(40, shape, low=0.2, high=0.9)
    found = changed(0.6, 1.0, x)
    sizes, places = set(), set()
    for image, after in zip(x, found, strict=True):
        top, left, height, width = window(after)
        small = F.interpolate(image[None], size=(height, width), mode="bilinear", align_corners=False)[0]
        beside = (left, shape[2] - left - width, top, shape[1] - top - height)
        torch.testing.assert_close(after, F.pad(small, beside), atol=5e-6, rtol=0)
        assert min(height / shape[1], width / shape[2]) >= 0.6
        sizes.add((height, width))
        places.add((top, left))
    assert len(sizes) >= 4, "rows draw their own sizes"
    assert len(places) > 10, "and their own places"


def test_every_size_and_every_place_can_be_drawn() -> None:
    x = images(600, (1, 6, 6), low=0.2, high=0.9)
    seen = {window(after)[:3] for after in changed(0.5, 1.0, x)}
    expected = {(top, left, size) for size in (3, 4, 5, 6) for top in range(7 - size) for left in range(7 - size)}
    assert seen == expected


def test_as_many_rows_are_changed_as_the_probability_says() -> None:
    x = images(2000, (1, 4, 4), low=0.2, high=0.9)
    found = changed(0.5, 0.3, x)
    small = (found == 0).flatten(1).any(1)
    whole = (found == x).flatten(1).all(1)
    assert (small | whole | ((found - x).abs().flatten(1).amax(1) < 1e-6)).all()
    assert abs(float(small.float().mean()) - 0.3 * 2 / 3) < 0.04, "a third of the draws are of full size"


def test_the_gradient_is_that_of_interpolation_and_padding() -> None:
    x = images(5, (3, 16, 16), low=0.2, high=0.9).requires_grad_()
    after = changed(0.6, 1.0, x)
    weight = torch.randn(after.shape, generator=torch.Generator().manual_seed(0))
    (gradient,) = torch.autograd.grad((after * weight).sum(), x)
    for row in range(5):
        top, left, height, width = window(after[row].detach())
        image = x[row : row + 1].detach().requires_grad_()
        small = F.interpolate(image, size=(height, width), mode="bilinear", align_corners=False)
        part = weight[row : row + 1, :, top : top + height, left : left + width]
        (expected,) = torch.autograd.grad((small * part).sum(), image)
        torch.testing.assert_close(gradient[row : row + 1], expected, atol=1e-5, rtol=0)


def test_many_points_of_a_row_share_its_draw() -> None:
    x = images(3, (1, 8, 8), low=0.2, high=0.9)
    change = transforms.diverse(0.5, 1.0)(Streams.of(0, names(3)), x)
    owner = torch.tensor([0, 0, 2, 1, 2])
    assert torch.equal(change(x[owner], owner), change(x, torch.arange(3))[owner])


# ---------------------------------------------------------------- the smoothing of gradients


@pytest.mark.parametrize("kernel", [1, 3, 5, 15])
def test_the_window_is_a_gaussian_that_sums_to_one(kernel: int) -> None:
    density = normal.pdf(np.linspace(-3, 3, kernel))
    weights = transforms.gaussian(kernel)
    np.testing.assert_allclose(weights, density / density.sum(), rtol=1e-12)
    assert sum(weights) == pytest.approx(1)


@pytest.mark.parametrize("shape", [(3, 32, 32), (2, 5, 9), (7, 6)], ids=str)
@pytest.mark.parametrize("kernel", [3, 5, 7])
def test_smoothing_is_correlation_with_zeros_beyond_the_edge(kernel: int, shape: tuple[int, ...]) -> None:
    gradient = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))
    weights = np.array(transforms.gaussian(kernel))
    expected = gradient.double().numpy()
    for axis in (-2, -1):
        expected = correlate1d(expected, weights, axis=axis, mode="constant")
    np.testing.assert_allclose(transforms.smoothed(gradient, kernel).numpy(), expected, atol=1e-6)


def test_smoothing_leaves_a_row_the_bits_it_has_alone() -> None:
    gradient = torch.randn(9, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    together = transforms.smoothed(gradient, 7)
    assert all(torch.equal(transforms.smoothed(gradient[row : row + 1], 7)[0], together[row]) for row in range(9))


@pytest.mark.parametrize("spec", ["tim:kernel=4", "dim:kernel=2", "dim:low=0", "dim:low=1.1", "dim:probability=1.5"])
def test_settings_without_meaning_are_refused(spec: str) -> None:
    with pytest.raises(BadRequest, match=r"kernel must be an odd|low is the smallest part"):
        attacks.create(spec)


# ---------------------------------------------------------------- in MIM's loop


@every_norm
@pytest.mark.parametrize("spec", ["dim:probability=0", "tim:kernel=1", "dim:low=1,probability=0,kernel=1"])
def test_settings_that_change_nothing_give_the_bits_of_mim(spec: str, norm: Norm) -> None:
    net = conv_net()
    x, _ = photos(6)
    plain, plain_adv = run(net, attacks.create("mim"), norm, x, net(x).argmax(1))
    found, x_adv = run(net, attacks.create(spec), norm, x, net(x).argmax(1))
    assert plain["success"].any()
    assert torch.equal(x_adv, plain_adv)
    same = [name for name in plain.columns if name not in ("seconds", "forwards")]
    assert found[same].equals(plain[same])


@every_norm
@pytest.mark.parametrize("spec", ["dim:low=0.6,probability=1", "tim:kernel=7", "dim:kernel=5"])
def test_other_settings_do_not(spec: str, norm: Norm) -> None:
    net = conv_net()
    x, _ = photos(4)
    goal = Untargeted(net(x).argmax(1))
    points = []
    for attack in ("mim", spec):
        box = open_access(GradientAccess, net, open_ledger(norm, x, goal))
        box.require_margin(NEVER)
        points.append(attacks.create(attack)(box, x))
    assert not torch.equal(*points)


@every_norm
@pytest.mark.parametrize("spec", ["dim", "tim", "dim:kernel=5"])
def test_a_row_alone_gets_the_bits_it_gets_in_company(spec: str, norm: Norm) -> None:
    net = conv_net()
    x, _ = photos(9)
    labels = net(x).argmax(1)
    together, together_adv = run(net, attacks.create(spec), norm, x, labels)
    for part in (slice(0, 1), slice(4, 5), slice(3, 8)):
        alone, alone_adv = run(net, attacks.create(spec), norm, x[part], labels[part], ids=names(9)[part])
        assert torch.equal(alone_adv, together_adv[part])
        assert alone["queries"].tolist() == together["queries"][part].tolist()


def test_what_a_row_that_stands_pays() -> None:
    """Through a change of the input the image itself must be looked at too; a smoothed gradient costs no look."""
    x, labels = images(3, (1, 4, 4)), torch.zeros(3, dtype=torch.int64)
    for name, forwards in (("mim", 11), ("tim", 11), ("dim", 21)):
        records, _ = run(Constant(), attacks.create(name), LInf(0.1), x, labels)
        assert records["backwards"].tolist() == [10] * 3
        assert records["queries"].tolist() == [11] * 3
        assert records["forwards"].tolist() == [forwards] * 3


# ---------------------------------------------------------------- with any other attack


class Through(Attack[GradientAccess]):
    """Any attack through any transform, as the evaluation runs it."""

    access = GradientAccess
    norms = (LInf, L2, L1)

    def __init__(self, spec: str, transform: Any) -> None:
        object.__setattr__(self, "spec", spec)
        object.__setattr__(self, "transform", transform)

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        return transforms.through(view, attacks.create(self.spec), self.transform)  # type: ignore[attr-defined]


@pytest.mark.parametrize("spec", ["pgd:steps=8", "bim", "fgsm", "mim", "apgd:steps=10", "pma:steps=10"])
@pytest.mark.parametrize("steady", [transforms.diverse(0.7, 0.0), transforms.smoothed_on_the_way_back(1)])
def test_every_gradient_attack_runs_through_a_transform(spec: str, steady: Any) -> None:
    """Rows leave on the way; a transform that changes nothing leaves the attack its bits and its count of queries."""
    net, eps = conv_net(), LInf(1.5 / 255)
    x, _ = photos(10)
    labels = net(x).argmax(1)
    plain, plain_adv = run(net, attacks.create(spec), eps, x, labels)
    assert len(set(plain["success"])) == 2, "some rows must leave before the others"
    found, x_adv = run(net, Through(spec, steady), eps, x, labels)
    if not spec.startswith(("pgd", "apgd", "pma")):  # these draw a start, and the transform draws before it
        assert torch.equal(x_adv, plain_adv)
        assert found["queries"].equals(plain["queries"])
    real, real_adv = run(net, Through(spec, transforms.diverse(0.7, 1.0)), eps, x, labels)
    assert real["problem"].isna().all()
    assert not torch.equal(real_adv, x_adv)


def test_smoothing_on_the_way_back_is_smoothing_afterwards() -> None:
    net = conv_net()
    x, _ = photos(4)
    box = open_access(GradientAccess, net, open_ledger(LInf(0.1), x, Untargeted(net(x).argmax(1))))
    plain, logits = box.gradient(x)
    inside, seen = box.with_input_transform(transforms.smoothed_on_the_way_back(5)).gradient(x)
    assert torch.equal(inside, transforms.smoothed(plain, 5))
    assert torch.equal(seen, logits)


# ---------------------------------------------------------------- beside torchattacks


oracles = importlib.import_module("tests.attacks.test_oracles")


def draws_of_dim(low: float, probability: float, rows: int) -> Callable[[Tensor], Tensor]:
    """What DIM with seed 0 draws, step after step."""
    rng, draw = Streams.of(0, names(rows)), transforms.diverse(low, probability)
    return lambda x: draw(rng, x.detach())(x, torch.arange(rows))


@pytest.mark.parametrize("decay", [0.0, 1.0])
def test_tim_is_that_of_torchattacks(decay: float) -> None:
    net, eps = oracles.Net(), 8 / 255
    x, _ = photos(oracles.ROWS)
    found = last_iterate(net, attacks.create(f"tim:kernel=7,decay={decay}"), LInf(eps), x, oracles.goal_of(False))
    theirs = oracles.torchattacks.TIFGSM(
        net, eps=eps, alpha=eps / 10, steps=10, decay=decay, len_kernel=7, diversity_prob=0
    )
    apart = (found - theirs(x, oracles.goal_of(False).labels)).abs()
    assert (apart > 1e-6).float().mean() < 1e-3, "signs of gradients that are almost zero may differ"


def test_dim_is_that_of_torchattacks_with_the_same_draws() -> None:
    net, eps = oracles.Net(), 8 / 255
    x, _ = photos(oracles.ROWS)
    found = last_iterate(net, attacks.create("dim:low=0.8,probability=0.7"), LInf(eps), x, oracles.goal_of(False))
    theirs = oracles.torchattacks.DIFGSM(net, eps=eps, alpha=eps / 10, steps=10, decay=1.0)
    theirs.input_diversity = draws_of_dim(0.8, 0.7, oracles.ROWS)
    apart = (found - theirs(x, oracles.goal_of(False).labels)).abs()
    assert (apart > 1e-6).float().mean() < 1e-3


@pytest.mark.long
def test_diverse_inputs_transfer_at_least_as_well() -> None:
    """From one embedded network to another, at half of 8/255, where both already fool 49 of 50.

    No row may leave at its first success on the source.
    """
    source, other = ra.load_model("resnet20-natural"), ra.load_model("resnet56-natural")
    x, labels = photos(60)
    with torch.no_grad():
        both = (source(x).argmax(1) == labels) & (other(x).argmax(1) == labels)
    x, labels = x[both][:50], labels[both][:50]
    assert len(x) == 50
    rates = []
    for spec in ("mim:steps=20", "dim:steps=20"):
        box = open_access(GradientAccess, source, open_ledger(LInf(4 / 255), x, Untargeted(labels)))
        box.require_margin(NEVER)
        last = attacks.create(spec)(box, x)
        with torch.no_grad():
            rates.append(float((other(last).argmax(1) != labels).float().mean()))
    assert rates[1] >= rates[0] > 0.5


def test_success_is_judged_on_the_image_itself() -> None:
    """Every image shown to the model is either a whole one or one that was changed; claims are whole ones."""
    net = conv_net()
    x, _ = photos(8)
    spy = Spy(net)
    records, x_adv = run(spy, attacks.create("dim:low=0.5,probability=1"), LInf(8 / 255), x, net(x).argmax(1))
    assert records["success"].any()
    assert records["problem"].isna().all()
    assert (net(x_adv).argmax(1) != net(x).argmax(1)).tolist() == records["success"].tolist()
