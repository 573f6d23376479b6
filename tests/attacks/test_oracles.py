"""Attacks against independent implementations, from the same start on the same network, to 1e-6.

The network is a small convolutional one with fixed random weights, computed in float64 so that no rounding flips the
sign of a gradient. Its last bias lets class 3 win everywhere by so much that no iterate reaches a goal: assay lets
broken rows go, the others do not, and this way all of them walk the whole path and last points can be compared.

The reference implementation of each attack: FGSM, FG and BIM against foolbox, torchattacks and ART; PGD against
foolbox, which can be given a start; MIM against torchattacks and ART (foolbox accumulates signs, which is another
attack). L1 steps differ by design: foolbox scales the gradient, ART puts all on the one steepest value and ignores how
far it can still change. Where that suffices ART is right and is compared with; elsewhere the step is checked by a
linear program.
"""

import contextlib
import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor, nn

from robustassay import attacks, data
from robustassay.rng import Streams
from robustassay.target import GradientAccess
from robustassay.threat import L1, L2, Ball, Goal, LInf, Norm, Targeted, Untargeted
from tests.support.toys import last_iterate, names, open_access, open_ledger

pytestmark = pytest.mark.oracle


class _Empty(ModuleType):
    """A module that has whatever class is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Absent(Loader, MetaPathFinder):
    """Stands in for packages that the peers import and their attacks never use: downloads and other model kinds."""

    packages = ("git", "requests", "sklearn")

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] in self.packages else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


@contextlib.contextmanager
def _absent_packages_stubbed() -> Iterator[None]:
    """Last in line, so that a package that is installed is the one that is used; gone when the peers are in."""
    finder = _Absent()
    sys.meta_path.append(finder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if getattr(module, "__loader__", None) is finder]:
            del sys.modules[name]


with _absent_packages_stubbed():
    foolbox = importlib.import_module("foolbox")
    torchattacks = importlib.import_module("torchattacks")
    evasion = importlib.import_module("art.attacks.evasion")
    PyTorchClassifier = importlib.import_module("art.estimators.classification").PyTorchClassifier

ROWS = 8
WINNER, TARGET = 3, 5


class Net(nn.Module):
    """Computes and answers in float64, whatever it is given."""

    def __init__(self) -> None:
        super().__init__()
        head = nn.Linear(12 * 49, 10)
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 12, 3, 2), nn.ReLU(), nn.Flatten(), head
        ).double()
        draw = np.random.default_rng(0)
        for parameter in self.parameters():
            fan_in = max(1, parameter[0].numel())
            parameter.data = torch.tensor(draw.normal(size=parameter.shape) * (2 / fan_in) ** 0.5)
        head.bias.data[WINNER] += 12.0
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layers(x.double())
        return logits


@pytest.fixture(scope="module")
def net() -> Net:
    return Net()


@pytest.fixture(scope="module")
def photos() -> Tensor:
    """Real images, with pixels at 0 and 1, where the box cuts steps off."""
    x = data.load("cifar10-1k").images(list(range(0, 400, 400 // ROWS)))
    assert (x == 0).any() or (x == 1).any()
    return x


@pytest.fixture(scope="module")
def pale(photos: Tensor) -> Tensor:
    """The same images at half contrast, far from the walls."""
    return photos * 0.5 + 0.25


def goal_of(targeted: bool) -> Goal:
    return Targeted(torch.full((ROWS,), TARGET)) if targeted else Untargeted(torch.full((ROWS,), WINNER))


both_goals = pytest.mark.parametrize("targeted", [False, True], ids=["untargeted", "targeted"])


# ---------------------------------------------------------------- the peers, each behind one function


def by_foolbox(attack: Any, net: Net, x: Tensor, eps: float, targeted: bool) -> Tensor:
    goal = goal_of(targeted)
    criterion = foolbox.criteria.TargetedMisclassification if targeted else foolbox.criteria.Misclassification
    model = foolbox.PyTorchModel(net, bounds=(0, 1), device="cpu")
    found: Tensor = attack.run(model, x, criterion(goal.labels), epsilon=eps)
    return found


def by_torchattacks(make: Callable[[Net], Any], net: Net, x: Tensor, targeted: bool) -> Tensor:
    attack = make(net)
    if targeted:
        attack.set_mode_targeted_by_label(quiet=True)
    found: Tensor = attack(x, goal_of(targeted).labels)
    return found


def by_art(make: Callable[..., Any], net: Net, x: Tensor, targeted: bool) -> Tensor:
    classifier = PyTorchClassifier(
        net,
        loss=nn.CrossEntropyLoss(),
        input_shape=(3, 32, 32),
        nb_classes=10,
        clip_values=(0.0, 1.0),
        device_type="cpu",
    )
    onehot = np.eye(10, dtype=np.float32)[goal_of(targeted).labels.numpy()]
    return torch.from_numpy(make(classifier, targeted=targeted, batch_size=ROWS).generate(x.numpy(), onehot))


def ours(spec: str, net: Net, norm: Norm, x: Tensor, targeted: bool) -> Tensor:
    last = last_iterate(net, attacks.create(spec), norm, x, goal_of(targeted))
    assert (last - x).abs().max() > 1e-3, "it moved"
    return last


def assert_same(ours: Tensor, theirs: Tensor) -> None:
    apart = float((ours - theirs).abs().max())
    assert apart < 1e-6


# ---------------------------------------------------------------- one step


@both_goals
@pytest.mark.parametrize("eps", [2 / 255, 8 / 255])
def test_fgsm_is_that_of_foolbox_torchattacks_and_art(net: Net, photos: Tensor, eps: float, targeted: bool) -> None:
    found = ours("fgsm", net, LInf(eps), photos, targeted)
    if not targeted:  # foolbox has no targeted one
        assert_same(found, by_foolbox(foolbox.attacks.LinfFastGradientAttack(), net, photos, eps, targeted))
    assert_same(found, by_torchattacks(lambda net: torchattacks.FGSM(net, eps=eps), net, photos, targeted))
    assert_same(
        found,
        by_art(lambda net, **kw: evasion.FastGradientMethod(net, norm=np.inf, eps=eps, **kw), net, photos, targeted),
    )


@both_goals
@pytest.mark.parametrize("eps", [0.25, 2.0])
def test_fg_is_that_of_foolbox_and_art(net: Net, photos: Tensor, eps: float, targeted: bool) -> None:
    """One step has length eps, so there is nothing to project: all clip it to the box and stop."""
    found = ours("fg", net, L2(eps), photos, targeted)
    if not targeted:
        assert_same(found, by_foolbox(foolbox.attacks.L2FastGradientAttack(), net, photos, eps, targeted))
    assert_same(
        found, by_art(lambda net, **kw: evasion.FastGradientMethod(net, norm=2, eps=eps, **kw), net, photos, targeted)
    )


@both_goals
def test_fg_under_l1_is_that_of_art_where_one_value_has_room_for_all(net: Net, pale: Tensor, targeted: bool) -> None:
    eps = 0.2
    found = ours("fg", net, L1(eps), pale, targeted)
    assert ((found != pale).flatten(1).sum(1) == 1).all()
    assert_same(
        found, by_art(lambda net, **kw: evasion.FastGradientMethod(net, norm=1, eps=eps, **kw), net, pale, targeted)
    )


@both_goals
@pytest.mark.parametrize("eps", [0.7, 6.0])
def test_fg_under_l1_solves_the_linear_program_over_ball_and_box(
    net: Net, photos: Tensor, eps: float, targeted: bool
) -> None:
    box = open_access(GradientAccess, net, open_ledger(L1(eps), photos, goal_of(targeted)))
    gradients = box.gradient(photos)[0].flatten(1).double().numpy()
    found = ours("fg", net, L1(eps), photos, targeted)
    for row in range(0, ROWS, 3):
        x, g = photos[row].flatten().double().numpy(), gradients[row]
        best = linprog(
            np.concatenate((-g, g)) / np.abs(g).max(),
            A_ub=np.ones((1, 2 * len(x))),
            b_ub=[eps],
            bounds=np.stack((np.zeros(2 * len(x)), np.concatenate((1 - x, x))), 1),
        )
        expected = x + best.x[: len(x)] - best.x[len(x) :]
        np.testing.assert_allclose(found[row].flatten().numpy(), expected, atol=1e-6)


# ---------------------------------------------------------------- many steps


@both_goals
@pytest.mark.parametrize("eps", [2 / 255, 8 / 255])
def test_bim_is_that_of_foolbox_torchattacks_and_art(net: Net, photos: Tensor, eps: float, targeted: bool) -> None:
    step = 0.2 * eps
    found = ours("bim:steps=10,rel_step=0.2", net, LInf(eps), photos, targeted)
    theirs = foolbox.attacks.LinfBasicIterativeAttack(rel_stepsize=0.2, steps=10, random_start=False)
    assert_same(found, by_foolbox(theirs, net, photos, eps, targeted))
    assert_same(
        found,
        by_torchattacks(lambda net: torchattacks.BIM(net, eps=eps, alpha=step, steps=10), net, photos, targeted),
    )
    assert_same(
        found,
        by_art(
            lambda net, **kw: evasion.BasicIterativeMethod(net, eps, step, max_iter=10, verbose=False, **kw),
            net,
            photos,
            targeted,
        ),
    )


@both_goals
def test_bim_under_l2_is_that_of_foolbox_torchattacks_and_art(net: Net, pale: Tensor, targeted: bool) -> None:
    """At half contrast only, where the box never binds.

    assay projects onto ball and box together, which gives back what the box cuts off; the others scale to the ball
    and then clip, which does not. Where the box is out of reach both are the same scaling.
    """
    eps, step = 1.0, 0.2
    found = ours("bim:steps=10,rel_step=0.2", net, L2(eps), pale, targeted)
    assert found.min() > 0
    assert found.max() < 1
    np.testing.assert_allclose((found - pale).flatten(1).norm(dim=1).numpy(), eps, rtol=1e-5)
    theirs = foolbox.attacks.L2BasicIterativeAttack(rel_stepsize=0.2, steps=10, random_start=False)
    assert_same(found, by_foolbox(theirs, net, pale, eps, targeted))
    assert_same(
        found,
        by_torchattacks(
            lambda net: torchattacks.PGDL2(net, eps=eps, alpha=step, steps=10, random_start=False), net, pale, targeted
        ),
    )
    assert_same(
        found,
        by_art(
            lambda net, **kw: evasion.ProjectedGradientDescent(net, 2, eps, step, max_iter=10, verbose=False, **kw),
            net,
            pale,
            targeted,
        ),
    )


@both_goals
@pytest.mark.parametrize(("spec", "norm"), [("bim", L2(2.0)), ("pgd:steps=15", L2(2.0))])
def test_where_the_box_binds_our_l2_steps_go_at_least_as_far(
    net: Net, photos: Tensor, spec: str, norm: Norm, targeted: bool
) -> None:
    """What the exact projection is for: no length is lost to the walls."""
    found = ours(spec, net, norm, photos, targeted)
    assert ((found == 0) | (found == 1)).any()
    theirs = foolbox.attacks.L2BasicIterativeAttack(rel_stepsize=0.2, steps=10, random_start=False)
    scaled = by_foolbox(theirs, net, photos, norm.eps, targeted)
    length, other = ((x - photos).flatten(1).norm(dim=1) for x in (found, scaled))
    np.testing.assert_allclose(length.numpy(), norm.eps, rtol=1e-4)
    assert (length >= other - 1e-5).all()


@both_goals
@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_mim_is_that_of_torchattacks_and_art(net: Net, photos: Tensor, decay: float, targeted: bool) -> None:
    eps, steps = 8 / 255, 8
    found = ours(f"mim:steps={steps},decay={decay}", net, LInf(eps), photos, targeted)
    assert_same(
        found,
        by_torchattacks(
            lambda net: torchattacks.MIFGSM(net, eps=eps, alpha=eps / steps, steps=steps, decay=decay),
            net,
            photos,
            targeted,
        ),
    )
    assert_same(
        found,
        by_art(
            lambda net, **kw: evasion.MomentumIterativeMethod(
                net, np.inf, eps, eps / steps, decay, steps, verbose=False, **kw
            ),
            net,
            photos,
            targeted,
        ),
    )


def test_mim_is_not_that_of_foolbox(net: Net, photos: Tensor) -> None:
    """foolbox takes signs before it accumulates. If this fails, foolbox has changed: compare with it."""
    eps, steps = 8 / 255, 8
    found = ours(f"mim:steps={steps}", net, LInf(eps), photos, targeted=False)
    attack = foolbox.attacks.LinfMomentumIterativeFastGradientMethod
    theirs = attack(abs_stepsize=eps / steps, steps=steps, random_start=False)
    assert (found - by_foolbox(theirs, net, photos, eps, targeted=False)).abs().max() > 1e-3


@both_goals
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("norm", [LInf(8 / 255), L2(1.0)], ids=["Linf", "L2"])
def test_pgd_is_that_of_foolbox_from_the_same_start(
    net: Net, photos: Tensor, pale: Tensor, norm: Norm, seed: int, targeted: bool
) -> None:
    x = photos if isinstance(norm, LInf) else pale
    found = last_iterate(net, attacks.create("pgd:steps=12,rel_step=0.15"), norm, x, goal_of(targeted), seed)
    start = Ball(norm, x, torch.full((ROWS,), norm.eps)).sample(Streams.of(seed, names(ROWS)))
    assert (start - x).abs().max() > 1e-3
    kind = foolbox.attacks.LinfPGD if isinstance(norm, LInf) else foolbox.attacks.L2PGD
    theirs = kind(rel_stepsize=0.15, steps=12, random_start=True)
    theirs.get_random_start = lambda x0, epsilon: type(x0)(start)
    assert_same(found, by_foolbox(theirs, net, x, norm.eps, targeted))
