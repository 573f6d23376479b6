"""Every registered attack on models whose nearest adversarial point is known: it must break just above, never below.

The tests iterate over the registry. A new attack needs one row in `CASES`; without it they fail.
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
import pytest
import torch
from scipy.optimize import linprog, minimize
from torch import Tensor

from robustassay import attacks
from robustassay.attacks.attack import Attack
from robustassay.errors import BadRequest, ModelFailed, UnknownName
from robustassay.registry import describe, lookup, spell, spell_described
from robustassay.target import GradientAccess
from robustassay.threat import L0, L1, L2, LabelList, LInf, Norm, TargetRule
from tests.support.toys import (
    Constant,
    Linear,
    Numbers,
    Spy,
    at_one_distance,
    distances,
    images,
    names,
    nearest,
    run,
    targeted_distances,
    two_classes,
)


@final
@dataclass(frozen=True)
class Case:
    """What a linear model lets us expect of an attack."""

    reach: float = 1.02
    """It must succeed at this multiple of the exact distance."""
    reach_in_box: Mapping[type[Norm], float] = field(default_factory=dict)
    """The multiple under norms where the pixel box costs it more than that, by design."""
    values: int = 12
    """Size of the images it is tried on."""
    sees_shape: bool = False
    """Whether it works on windows of the image, so that the same values in another shape are another problem."""
    on_toys: bool = True
    """Whether it can attack the tiny models here; one that needs models of the zoo has tests of its own."""
    settings: str = ""
    """Fewer steps than by default, where tiny models need no more."""
    slow: bool = False
    """Whether it takes seconds, so that its targeted rows, its sure models and its binary images are left to
    `make test-long`."""


NOISE = Case(reach=20, values=3)  # a half-space holds nearly half of a ball that is large enough, in any draw

CASES = {
    "apgd": Case(),
    "apgd-t": Case(),
    "autoattack": Case(settings="steps=30,queries=50", sees_shape=True),
    "bandits": Case(reach=1.1, settings="steps=150"),
    "bim": Case(),
    # Random searches, cut short here; tests/attacks/test_decision_attacks.py holds them to 5 %.
    "boundary": Case(reach=2.0, reach_in_box={L2: 4.0}, settings="queries=450"),
    "evolutionary": Case(reach=2.0, settings="queries=500"),
    "geoda": Case(reach=1.3, settings="queries=700,frequencies=12", sees_shape=True),
    "hopskipjump": Case(reach=1.2, reach_in_box={L2: 1.6, LInf: 1.6}, settings="queries=700"),
    "opt": Case(reach=2.0, settings="queries=800"),
    "rays": Case(reach=1.1, settings="queries=400"),
    "sign-opt": Case(reach=1.5, settings="queries=450"),
    "cw": Case(
        settings="steps=500,search_steps=9,rate=0.02,initial_c=0.01,abort_early=false", slow=True
    ),  # pixels at 0, 1 start slowly
    "cw-fast": Case(slow=True),
    "ddn": Case(),
    "deepfool": Case(reach=1.021),  # it goes 2 % too far by design
    "dim": Case(reach=1.6, reach_in_box={L2: 2.5}, sees_shape=True),  # it looks at shrunken images
    "fab": Case(),
    # The squared L2 of the elastic net spreads the move over more values than L1 needs.
    "ead": Case(reach=1.1, reach_in_box={L1: 1.15}, settings="steps=200", slow=True),
    "ead-fast": Case(reach=1.1, reach_in_box={L1: 1.15}, settings="steps=100"),
    "fg": Case(reach_in_box={L2: 2.5}),  # one step along the gradient, cut by the box and not renewed
    "fgsm": Case(),
    "fmn": Case(),
    "gaussian-noise": NOISE,
    # Adam moves all values alike, which is best under Linf and not under L2.
    "liu": Case(reach=1.35, reach_in_box={LInf: 1.02, L2: 1.6}),
    "mim": Case(reach_in_box={L2: 2.5}),  # its steps add up to eps, so what the box cuts off is lost
    # Random directions find the steepest one slowly, and draws are few here.
    "nattack": Case(reach=1.1, settings="steps=30,samples=24,rate=0.05"),
    "nes": Case(reach=1.05, settings="steps=50,samples=40,plateau=5"),
    "prgf": Case(reach=1.05, settings="steps=60,samples=16,surrogate=none"),
    "rgf": Case(reach=1.05, settings="steps=80,samples=16"),
    "simba": Case(reach=1.1, settings="steps=150,basis=pixel"),
    "minimum-radius": Case(reach=1.06, settings="attack=apgd(steps=20)"),
    "spsa": Case(reach=1.1, settings="steps=40,samples=20"),
    "zoo": Case(reach=1.1, settings="steps=80,rate=0.006,search_steps=5,initial_c=0.001"),
    "pma": Case(),
    "nearest": Case(),
    "express": Case(sees_shape=True, slow=True),
    "pgd": Case(reach_in_box={L2: 1.05}),  # walls eat most of each step here, so forty do not undo the random start
    # A random search: exact under Linf, where the answer is a corner; L2 and L1 move windows of three values at once.
    "square": Case(reach=1.3, reach_in_box={L2: 1.5}, settings="steps=500", sees_shape=True),
    "tim": Case(reach=1.3, reach_in_box={LInf: 1.6, L2: 2.5, L1: 2.6}, sees_shape=True),  # it blurs the gradient
    "transfer": Case(on_toys=False),  # tests/attacks/test_transfer.py
    "uniform-noise": NOISE,
}


def make(name: str) -> Attack[Any]:
    return attacks.create(f"{name}:{CASES[name].settings}")


def registered_attacks() -> Iterator[Any]:
    for name in attacks.attack_names():
        if name in CASES and not CASES[name].on_toys:
            continue
        for norm in lookup("attack", name).norms:
            yield pytest.param(name, norm, id=f"{name}-{norm.name}")


def long_if_slow(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.long] if name in CASES and CASES[name].slow else []


def slow_ones_long(rows: Iterable[Any]) -> Iterator[Any]:
    for row in rows:
        yield pytest.param(*row.values, id=row.id, marks=long_if_slow(row.values[0]))


def with_goals(rows: Iterable[Any]) -> Iterator[Any]:
    for row in rows:
        name = row.values[0]
        for targeted in (False, True) if lookup("attack", name).can_target else (False,):
            goal, marks = ("targeted", long_if_slow(name)) if targeted else ("untargeted", list(row.marks))
            yield pytest.param(*row.values, targeted, id=f"{row.id}-{goal}", marks=marks)


# Noise seeks nothing, so there is nothing it should find.
searches = [row for row in registered_attacks() if CASES.get(row.values[0]) is not NOISE]
every_attack = pytest.mark.parametrize(("name", "norm"), list(registered_attacks()))
every_attack_slow_ones_long = pytest.mark.parametrize(("name", "norm"), list(slow_ones_long(registered_attacks())))
every_search = pytest.mark.parametrize(("name", "norm"), searches)
every_attack_and_goal = pytest.mark.parametrize(("name", "norm", "targeted"), list(with_goals(registered_attacks())))
every_attack_and_goal_slow_ones_long = pytest.mark.parametrize(
    ("name", "norm", "targeted"), list(with_goals(slow_ones_long(registered_attacks())))
)
every_search_and_goal = pytest.mark.parametrize(("name", "norm", "targeted"), list(with_goals(searches)))


def test_every_registered_attack_has_its_row_here() -> None:
    assert set(CASES) == set(attacks.attack_names())


# ---------------------------------------------------------------- conformance


@final
@dataclass(frozen=True)
class Ground:
    """Images at one known distance from the nearest adversarial point."""

    model: Linear
    x: Tensor
    distance: float
    target: TargetRule | None

    @property
    def labels(self) -> Tensor:
        return torch.zeros(len(self.x), dtype=torch.int64)


def make_ground(norm: type[Norm], values: int, targeted: bool, in_box: bool, rows: int = 6) -> Ground:
    """Grey images far from the walls; or images whose steepest values are at or near the wall they are pushed to."""
    model = two_classes(values, seed=values, margin=0.1, dead=1)
    climb = (model.weight[1] - model.weight[0]).detach()
    x, labels = images(rows, (values,), low=0.45, high=0.55), torch.zeros(rows, dtype=torch.int64)
    free = torch.ones(values, dtype=torch.bool)
    if in_box:
        steepest = climb.abs().argsort(descending=True)[:6]
        room = torch.tensor([0.0, 0.004, 0.0, 1.0, 0.004, 0.0])
        x[:, steepest] = torch.where(climb[steepest] > 0, 1 - room, room)
        free[steepest] = False
        logits = model(x).detach().mean(0)
        model.bias.data[1] -= logits[1] - logits[0]
    # Let the free values bring the images to where class 0 wins by a little.
    logits, margin = model(x).detach(), torch.linspace(0.1, 0.15, rows)
    x += (logits[:, 0] - logits[:, 1] - margin)[:, None] * climb * free / climb[free].square().sum()
    x, distance = at_one_distance(model, x, labels, norm.name, free.expand(rows, values))
    target = LabelList(dict.fromkeys(names(rows), 1)) if targeted else None
    exact = targeted_distances(model, x, labels + 1, norm.name) if targeted else distances(model, x, labels, norm.name)
    np.testing.assert_allclose(exact, distance, rtol=1e-4)
    return Ground(model, x, distance, target)


def make_l0_ground(values: int, targeted: bool, rows: int = 6) -> Ground:
    """Images of which two values must change, wherever they lie in the box."""
    model = two_classes(values, seed=values, margin=0.8, dead=1)
    x = images(400, (values,), low=0.2, high=0.8)
    logits = model(x).detach()
    exact = distances(model, x, torch.zeros(400, dtype=torch.int64), "L0")
    x = x[(logits.argmax(1) == 0) & torch.from_numpy(exact == 2)][:rows]
    assert len(x) == rows
    return Ground(model, x, 2.0, LabelList(dict.fromkeys(names(rows), 1)) if targeted else None)


def check_conforms(attack: Attack[Any], norm: type[Norm], case: Case, ground: Ground) -> None:
    """Succeed on every row just above the exact distance, and on none just below."""
    above, below = ground.distance * case.reach, ground.distance * 0.99
    if norm is L0:
        above, below = float(min(np.ceil(above), ground.x[0].numel())), ground.distance - 1
    broken, _ = run(ground.model, attack, norm(above), ground.x, ground.labels, target=ground.target)
    assert broken["success"].tolist() == [True] * len(ground.x), "must break every row just above the distance"
    assert (broken["distance"] <= above * (1 + 1e-5)).all()
    assert (broken["distance"] >= ground.distance * (1 - 1e-5)).all(), "nothing is nearer than the nearest"
    if attack.seeks_minimum:
        return  # its distances say what a run with a smaller radius would
    intact, x_adv = run(ground.model, attack, norm(below), ground.x, ground.labels, target=ground.target)
    assert not intact["success"].any(), "cannot break any row below the distance"
    assert torch.equal(x_adv, ground.x), "a failure is the clean image"


@every_attack_and_goal
def test_attack_breaks_just_above_the_exact_distance_and_never_below(
    name: str, norm: type[Norm], targeted: bool
) -> None:
    case = CASES[name]
    ground = make_l0_ground(6, targeted) if norm is L0 else make_ground(norm, case.values, targeted, in_box=False)
    check_conforms(make(name), norm, case, ground)


@every_search_and_goal
def test_attack_uses_what_room_the_pixel_box_leaves(name: str, norm: type[Norm], targeted: bool) -> None:
    """Half of the values are at or near a wall, so steps that ignore the box come up short."""
    case = CASES[name]
    ground = make_l0_ground(6, targeted) if norm is L0 else make_ground(norm, case.values, targeted, in_box=True)
    unboxed = distances(ground.model, ground.x, ground.labels, norm.name, box=False)
    assert (ground.distance > unboxed * 1.02).all(), "the box must matter, or this tests nothing"
    check_conforms(make(name), norm, replace(case, reach=case.reach_in_box.get(norm, case.reach)), ground)


@final
@dataclass(frozen=True)
class DoNothing(Attack[GradientAccess]):
    access = GradientAccess
    norms = (LInf, L2, L1, L0)

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        return x0


@final
@dataclass(frozen=True)
class Lazy(Attack[GradientAccess]):
    """Goes the right way, but 5 % too short or too far; or the wrong way."""

    access = GradientAccess
    norms = (LInf, L2, L1)
    part: float = 0.95
    wrong_way: bool = False

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        gradient, _ = view.gradient(x0)
        delta = view.ball.step(x0, -gradient if self.wrong_way else gradient, view.ball.eps) - x0
        return x0 + self.part * delta


@pytest.mark.parametrize("norm", [LInf, L2, L1, L0])
def test_the_check_above_fails_an_attack_that_does_nothing(norm: type[Norm]) -> None:
    ground = make_l0_ground(6, False) if norm is L0 else make_ground(norm, 12, False, in_box=False)
    with pytest.raises(AssertionError, match="just above"):
        check_conforms(DoNothing(), norm, Case(), ground)


@pytest.mark.parametrize("norm", [LInf, L2, L1])
@pytest.mark.parametrize("fault", [Lazy(0.95), Lazy(1.05), Lazy(1.0, wrong_way=True)], ids=["short", "far", "back"])
def test_the_check_above_fails_an_attack_that_is_five_percent_off(norm: type[Norm], fault: Lazy) -> None:
    ground = make_ground(norm, 12, False, in_box=False)
    check_conforms(Lazy(1.0), norm, Case(), ground)
    with pytest.raises(AssertionError, match="just above"):
        check_conforms(fault, norm, Case(), ground)


# ---------------------------------------------------------------- the distances themselves


def solve(norm: str, slope: Numbers, need: float, room: Numbers) -> float:
    """The same problem by general solvers: linear programs, SLSQP, and brute force."""
    n = len(slope)
    if norm == "L0":
        for count in range(1, n + 1):
            for chosen in itertools.combinations(range(n), count):
                if (slope * room)[list(chosen)].sum() >= need:
                    return float(count)
        return np.inf
    if norm == "L2":
        found = minimize(
            lambda d: d @ d,
            room / 2,
            jac=lambda d: 2 * d,
            bounds=[(0, r) for r in room],
            constraints={"type": "ineq", "fun": lambda d: slope @ d - need, "jac": lambda d: slope},
            options={"ftol": 1e-15, "maxiter": 500},
        )
        return float(np.sqrt(found.fun)) if found.success else np.inf
    if norm == "L1":
        found = linprog(np.ones(n), A_ub=-slope[None], b_ub=[-need], bounds=[(0, r) for r in room])
    else:  # minimise t with d <= t
        caps = np.hstack((np.eye(n), -np.ones((n, 1))))
        gain = np.append(-slope, 0)[None]
        found = linprog(
            np.append(np.zeros(n), 1),
            A_ub=np.vstack((caps, gain)),
            b_ub=np.append(np.zeros(n), -need),
            bounds=[*((0, r) for r in room), (0, None)],
        )
    return float(found.fun) if found.success else np.inf


@pytest.mark.parametrize("norm", ["Linf", "L2", "L1", "L0"])
@pytest.mark.parametrize("seed", range(8))
def test_the_exact_distances_agree_with_general_solvers(norm: str, seed: int) -> None:
    draw = np.random.default_rng(seed)
    slope = np.abs(draw.normal(size=6)) * (draw.random(6) < 0.8)
    room = np.where(draw.random(6) < 0.3, 0.0, draw.random(6))
    need = float((slope * room).sum()) * (0.1 + 0.8 * draw.random())
    assert nearest(norm, slope, need, room) == pytest.approx(solve(norm, slope, need, room), rel=1e-6)
    assert nearest(norm, slope, 2 * float((slope * room).sum()) + 1, room) == np.inf


def test_the_distance_of_many_classes_is_that_of_the_nearest() -> None:
    """By brute force: a fine line search along the best direction of each class changes the label there, not before."""
    draw = torch.Generator().manual_seed(0)
    model = Linear(torch.randn(4, 8, generator=draw), torch.zeros(4))
    x = images(5, (8,))
    labels = model(x).argmax(1)
    weight = model.weight.detach()
    for row, exact in enumerate(distances(model, x, labels, "L2", box=False)):
        directions = torch.stack([w - weight[labels[row]] for k, w in enumerate(weight) if k != labels[row]])
        directions = torch.nn.functional.normalize(directions)
        for factor, changes in ((0.999, False), (1.001, True)):
            moved = x[row] + factor * float(exact) * directions
            assert bool((model(moved).argmax(1) != labels[row]).any()) == changes


# ---------------------------------------------------------------- inputs of all kinds


def quick(name: str) -> Attack[Any]:
    """The attack with few steps, where only its treatment of the input is in question."""
    attack = make(name)
    few = {"steps": 4} if hasattr(attack, "steps") else {"queries": 60} if hasattr(attack, "queries") else {}
    return replace(attack, **few)


SHAPES = [pytest.param((12,), id="(12,)"), pytest.param((3, 2, 2), id="(3, 2, 2)")]
SHAPES += [pytest.param(shape, id=str(shape), marks=pytest.mark.long) for shape in ((1, 3, 4), (2, 6, 1))]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("name", "norm"), [row for row in registered_attacks() if not CASES[row.values[0]].sees_shape])
def test_images_of_any_shape_give_the_same_records(name: str, norm: type[Norm], shape: tuple[int, ...]) -> None:
    model = two_classes(12, seed=3)
    flat = images(5, (12,), low=0, high=1)
    labels = model(flat).argmax(1)
    eps = norm(3 if norm is L0 else float(np.median(distances(model, flat, labels, norm.name))))
    expected, expected_adv = run(model, quick(name), eps, flat, labels)
    records, x_adv = run(model, quick(name), eps, flat.view(5, *shape), labels)
    assert x_adv.shape == (5, *shape)
    assert torch.equal(x_adv.flatten(1), expected_adv)
    assert records.drop(columns="seconds").equals(expected.drop(columns="seconds"))


@pytest.mark.parametrize(
    "layout",
    [
        "channels last",
        "every second row",
        *(pytest.param(other, marks=pytest.mark.long) for other in ("transposed", "expanded")),
    ],
)
@every_attack
def test_the_layout_of_images_in_memory_changes_nothing(name: str, norm: type[Norm], layout: str) -> None:
    model = two_classes(12, seed=3)
    plain = images(4, (3, 2, 2), low=0, high=1)
    if layout == "channels last":
        x = plain.to(memory_format=torch.channels_last)
    elif layout == "every second row":
        x = plain.repeat_interleave(2, 0)[::2]
    elif layout == "transposed":
        x = plain.transpose(1, 3).contiguous().transpose(1, 3)
    else:
        plain = plain[:1].repeat(4, 1, 1, 1)
        x = plain[:1].expand(4, 3, 2, 2)
    assert not x.is_contiguous()
    before = x.clone()
    labels = model(plain).argmax(1)
    eps = norm(3 if norm is L0 else float(np.median(distances(model, plain, labels, norm.name))))
    expected, expected_adv = run(model, quick(name), eps, plain, labels)
    records, x_adv = run(model, quick(name), eps, x, labels)
    assert torch.equal(x, before), "the clean images belong to the caller"
    assert torch.equal(x_adv, expected_adv)
    assert records["success"].equals(expected["success"])


@every_attack
def test_a_batch_of_one_gives_what_the_row_gets_in_company(name: str, norm: type[Norm]) -> None:
    model = two_classes(12, seed=3)
    x = images(5, (12,), low=0, high=1)
    labels = model(x).argmax(1)
    eps = norm(3 if norm is L0 else float(np.median(distances(model, x, labels, norm.name))))
    together, together_adv = run(model, quick(name), eps, x, labels)
    for row in range(5):
        one = slice(row, row + 1)
        records, x_adv = run(model, quick(name), eps, x[one], labels[one], ids=names(5)[one])
        assert torch.equal(x_adv, together_adv[one])
        alone, mate = (frame.drop(columns="seconds").reset_index(drop=True) for frame in (records, together[one]))
        assert alone.astype(object).equals(mate.astype(object))


@every_attack
def test_models_in_float64_are_attacked_as_well(name: str, norm: type[Norm]) -> None:
    single, double = two_classes(12, seed=3), two_classes(12, seed=3, kind=torch.float64)
    x = images(4, (12,), low=0.3, high=0.7)
    labels = single(x).argmax(1)
    eps = norm(3 if norm is L0 else 1.3 * float(distances(single, x, labels, norm.name).max()))
    expected, _ = run(single, quick(name), eps, x, labels)
    records, x_adv = run(double, quick(name), eps, x, labels)
    assert x_adv.dtype == torch.float32
    assert records["success"].equals(expected["success"])
    assert (records["problem"].isna()).all()


@every_attack_and_goal_slow_ones_long
def test_binary_images_are_broken_where_that_is_possible(name: str, norm: type[Norm], targeted: bool) -> None:
    """Every value is exactly 0 or 1, so half of all directions are barred: no NaN, and no pixel is frozen."""
    case = CASES[name]
    values = case.values
    model = two_classes(values, seed=3, margin=0.2)
    x = torch.tensor(list(itertools.product([0.0, 1.0], repeat=3))).repeat(1, values // 3)
    labels = torch.zeros(len(x), dtype=torch.int64)
    x = x[model(x).argmax(1) == 0]
    exact = distances(model, x, labels[: len(x)], norm.name)
    count = 1 if make(name).seeks_minimum else 2
    x, exact = x[np.isfinite(exact)][:count], exact[np.isfinite(exact)][:count]
    assert len(x)
    for image, distance in zip(x, exact, strict=True):
        above = 3.0 * distance if case is NOISE or norm in case.reach_in_box else case.reach * distance
        above = min(above, 1.0) if norm is LInf else above
        if norm is L0:
            above, below = float(min(distance + 2, values)), distance - 1
        else:
            below = 0.99 * distance
        target = LabelList({"row-0": 1}) if targeted else None
        # The distances of an attack that seeks the least one say what a run with a smaller radius would.
        for eps, broken in ((above, True),) if make(name).seeks_minimum else ((above, True), (below, False)):
            if eps <= 0:
                continue
            spy = Spy(model)
            records, x_adv = run(spy, make(name), norm(eps), image[None], labels[:1], target=target)
            assert all(batch.isfinite().all() for batch in spy.seen)
            if not broken or case is not NOISE:
                assert records["success"].tolist() == [broken]
            assert not (records["distance"] < below).any()
            assert x_adv.min() >= 0
            assert x_adv.max() <= 1


@every_attack_and_goal
def test_a_gradient_of_zero_makes_no_nan(name: str, norm: type[Norm], targeted: bool) -> None:
    x = torch.cat((images(3, (1, 2, 3)), torch.zeros(1, 1, 2, 3), torch.ones(1, 1, 2, 3)))
    spy = Spy(Constant())
    target = LabelList(dict.fromkeys(names(5), 2)) if targeted else None
    records, x_adv = run(
        spy, quick(name), norm(1 if norm is LInf else 2), x, torch.zeros(5, dtype=torch.int64), target=target
    )
    assert all(batch.isfinite().all() and batch.min() >= 0 and batch.max() <= 1 for batch in spy.seen)
    assert not records["success"].any()
    assert records["margin"].notna().all()
    assert torch.equal(x_adv, x)


class RootOfNothing(Linear):
    """A model with sane logits whose gradient is 0 times infinity, no number, where a value is nearly black."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 0 * (x * (x > 1e-5)).sqrt().sum(1, keepdim=True)


@pytest.mark.parametrize(
    ("name", "norm"), [row for row in searches if issubclass(lookup("attack", row.values[0]).access, GradientAccess)]
)
def test_a_gradient_that_is_no_number_is_named_and_not_taken_for_robustness(name: str, norm: type[Norm]) -> None:
    """The sign of NaN is 0, so a sign attack would stand still on such a row and call it robust."""
    x = images(3, (4,))
    x[1] = 0.0
    model = RootOfNothing(torch.eye(2, 4), torch.zeros(2))
    with pytest.raises(ModelFailed, match="gradient"):
        run(model, make(name), norm(1 if norm is L0 else 0.9), x, model(x).argmax(1))


@every_attack_slow_ones_long
def test_a_sure_model_is_broken_at_the_same_distance(name: str, norm: type[Norm]) -> None:
    """Scaling all logits changes no label and no distance, so it must not hide a model from an attack."""
    case = CASES[name]
    ground = make_l0_ground(6, False) if norm is L0 else make_ground(norm, case.values, False, in_box=False)
    logits = ground.model(ground.x).detach()
    scale = 40 / float((logits[:, 0] - logits[:, 1]).max())
    sure = Linear(ground.model.weight.detach() * scale, ground.model.bias.detach() * scale)
    check_conforms(make(name), norm, case, Ground(sure, ground.x, ground.distance, None))


@pytest.mark.parametrize("norm", [LInf, L2, L1])
def test_gaussian_noise_goes_to_the_full_radius(norm: type[Norm]) -> None:
    spy = Spy(Constant())
    x = images(1, (12,))
    run(spy, attacks.create("gaussian-noise"), norm(0.1), x, torch.zeros(1, dtype=torch.int64))
    points = torch.cat([batch[:1] for batch in spy.seen])
    points = points[(points != x).any(1)]
    assert len(points) == 10
    order = {LInf: np.inf, L2: 2, L1: 1}[norm]
    np.testing.assert_allclose(np.linalg.norm((points - x).double().numpy(), order, 1), 0.1, rtol=1e-5)


# ---------------------------------------------------------------- what it costs


def test_rows_that_fall_early_cost_little() -> None:
    model = two_classes(48, seed=1)
    x = images(64, (3, 4, 4))
    labels = model(x).argmax(1)
    eps = 3 * float(distances(model, x, labels, "Linf").max())
    records, _ = run(model, attacks.create("pgd:steps=40"), LInf(eps), x, labels)
    assert records["success"].all()
    assert records["backwards"].sum() <= 40 * len(x) / 2
    assert (records["queries"] == records["claimed_at_query"]).all(), "a row stops asking at its first success"


def test_restarts_are_spent_on_survivors_only() -> None:
    model = two_classes(12, seed=3)
    x = images(20, (12,))
    labels = model(x).argmax(1)
    eps = LInf(float(np.median(distances(model, x, labels, "Linf"))))
    once, once_adv = run(model, attacks.create("pgd:steps=10"), eps, x, labels)
    thrice, thrice_adv = run(model, attacks.create("pgd:steps=10,restarts=3"), eps, x, labels)
    fell, stood = once["success"], ~once["success"]
    rows = fell.to_numpy().nonzero()[0].tolist()
    assert fell.any()
    assert stood.any()
    for column in ("backwards", "queries", "iterations", "claimed_at_query"):
        assert thrice.loc[fell, column].equals(once.loc[fell, column])
    assert torch.equal(thrice_adv[rows], once_adv[rows])
    held = stood & ~thrice["success"]
    assert held.any()
    assert (once.loc[held, "backwards"] == 10).all()
    assert (thrice.loc[held, "backwards"] == 30).all()
    assert (thrice.loc[held, "queries"] == 33).all(), "ten steps and one last look, three times"


def test_restarts_start_elsewhere() -> None:
    spy = Spy(Constant())
    x = images(1, (8,))
    run(spy, attacks.create("pgd:steps=1,restarts=3"), LInf(0.1), x, torch.zeros(1, dtype=torch.int64))
    starts = {tuple(batch[0].tolist()) for batch in spy.seen} - {tuple(x[0].tolist())}
    assert len(starts) == 3


@pytest.mark.parametrize(
    ("name", "backwards", "queries"),
    [("fgsm", 1, 2), ("bim", 10, 11), ("mim", 10, 11), ("pgd", 40, 41), ("uniform-noise", 0, 10)],
)
def test_a_row_that_stands_costs_exactly_this(name: str, backwards: int, queries: int) -> None:
    records, _ = run(Constant(), make(name), LInf(0.1), images(3, (4,)), torch.zeros(3, dtype=torch.int64))
    assert records["backwards"].tolist() == [backwards] * 3
    assert records["queries"].tolist() == [queries] * 3
    assert records["forwards"].tolist() == [queries] * 3


def test_images_already_lost_cost_nothing() -> None:
    records, x_adv = run(
        Constant(), attacks.create("pgd"), LInf(0.1), images(3, (4,)), torch.ones(3, dtype=torch.int64)
    )
    assert records["success"].all()
    assert records["distance"].tolist() == [0.0] * 3
    assert records["queries"].tolist() == [0] * 3
    assert torch.equal(x_adv, images(3, (4,)))


@pytest.mark.parametrize("budget", [1, 2, 7])
@every_attack
def test_no_attack_exceeds_its_query_budget(name: str, norm: type[Norm], budget: int) -> None:
    records, _ = run(
        Constant(),
        make(name),
        norm(1),
        images(2, (6,)),
        torch.zeros(2, dtype=torch.int64),
        query_budget=budget,
    )
    spent = 2 if name in ("fgsm", "fg") else 7
    assert records["queries"].tolist() == [min(budget, spent)] * 2


# ---------------------------------------------------------------- attacks by name


def test_create_reads_names_and_settings() -> None:
    pgd = lookup("attack", "pgd")
    assert attacks.create("pgd") == pgd()
    assert attacks.create("PGD:steps=3, rel_step=0.5,restarts=2") == pgd(steps=3, rel_step=0.5, restarts=2)
    assert attacks.create("pgd:rel_step=1") == pgd(rel_step=1.0)
    made = pgd(steps=7)
    assert attacks.create(made) is made


@pytest.mark.parametrize(
    ("spec", "kind", "message"),
    [
        ("pdg", UnknownName, "did you mean pgd"),
        ("", UnknownName, "no attack called ''"),
        ("pgd:step=3", UnknownName, "no setting of pgd called 'step': did you mean steps"),
        ("pgd:steps=three", BadRequest, "steps must be of type int, not 'three'"),
        ("pgd:steps=2.5", BadRequest, "steps must be of type int"),
        ("pgd:steps", BadRequest, "steps must be of type int"),
        ("pgd:steps=0", BadRequest, "steps must be at least 1"),
        ("pgd:steps=-4", BadRequest, "steps must be at least 1"),
        ("pgd:rel_step=-0.1", BadRequest, "rel_step must be a finite number"),
        ("pgd:rel_step=nan", BadRequest, "rel_step must be"),
        ("pgd:rel_step=inf", BadRequest, "rel_step must be"),
        ("pgd:rel_step=1e999", BadRequest, "rel_step must be"),
        ("pgd:rel_step=1/0", BadRequest, "rel_step must be"),
        ("pgd:restarts=0", BadRequest, "restarts must be at least 1"),
    ],
)
def test_create_says_what_is_wrong(spec: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        attacks.create(spec)


def test_one_configuration_has_one_description() -> None:
    """What identifies a run must not depend on whether a number was written 1 or 1.0."""
    pgd = lookup("attack", "pgd")
    assert repr(describe("attack", pgd(rel_step=1))) == repr(describe("attack", pgd(rel_step=1.0)))


@pytest.mark.parametrize("settings", [{"steps": 2.5}, {"steps": "3"}, {"steps": True}, {"rel_step": "0.1"}])
def test_settings_of_the_wrong_type_are_refused_when_made(settings: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        lookup("attack", "pgd")(**settings)


@pytest.mark.parametrize("name", attacks.attack_names())
def test_description_and_creation_are_inverse(name: str) -> None:
    described = describe("attack", attacks.create(name))
    assert described["name"] == name
    assert attacks.create(spell_described(described)) == attacks.create(name)
    assert spell("attack", attacks.create(name)) == name


def test_an_attack_inside_an_attack_is_a_value_with_one_spelling() -> None:
    pgd, mim = lookup("attack", "pgd"), lookup("attack", "mim")
    radius, transfer = lookup("attack", "minimum-radius"), lookup("attack", "transfer")
    spec = "minimum-radius:attack=transfer(source=resnet20-natural,attack=mim(steps=5,decay=0.5)),rounds=3"
    made = attacks.create(spec)
    assert made == radius(transfer("resnet20-natural", mim(steps=5, decay=0.5)), rounds=3)
    assert spell("attack", made) == spec
    described = describe("attack", made)
    assert described["attack"]["attack"] == {"name": "mim", "steps": 5, "decay": 0.5, "path": 1.0}
    assert attacks.create(spell_described(json.loads(json.dumps(described)))) == made
    assert attacks.create("minimum-radius:attack=pgd") == radius(pgd()) == radius()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("minimum-radius:attack=pgd:steps=10;restarts=2", r"in parentheses, as in attack=pgd\(steps=10,restarts=2\)"),
        ("transfer:attack=mim:steps=5/decay=0.5", "in parentheses"),
        ("minimum-radius:attack=pgd(steps=10", "do not match"),
        ("minimum-radius:attack=pgd(steps=10))", "do not match"),
        ("minimum-radius:attack=pgd(steps=10)x", "in parentheses"),
        ("minimum-radius:attack=", "in parentheses"),
        ("minimum-radius:attack=pgd(stepz=10)", "stepz"),
    ],
)
def test_other_spellings_of_inner_attacks_are_refused(spec: str, message: str) -> None:
    with pytest.raises((BadRequest, UnknownName), match=message):
        attacks.create(spec)
    with pytest.raises(BadRequest, match="must be an attack such as"):
        lookup("attack", "minimum-radius")("pgd")
