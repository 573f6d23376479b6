"""Attacks that see scores alone: what they estimate, what they ask, and what it costs, to the query."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robustassay import attacks, data, models
from robustassay.attacks.attack import Attack
from robustassay.attacks.common.gradient_estimate import (
    attack_loss,
    blocks,
    central_difference,
    estimate_gradient,
    forward_difference,
    normal_directions,
    on_sphere,
    sign_directions,
    sphere_directions,
)
from robustassay.attacks.common.patterns import PatternBasis, coarse, cosines, pixels
from robustassay.attacks.score import bandits, spsa, zoo
from robustassay.attacks.score.nattack import NAttack
from robustassay.attacks.score.prgf import PRGF, mixing_weight
from robustassay.errors import BadRequest, UnknownName
from robustassay.evaluation.wave import Wave, run_wave
from robustassay.rng import Streams
from robustassay.target import LocalModel, ScoreAccess
from robustassay.threat import L2, LInf, Norm, RandomTarget, ThreatModel, Untargeted
from tests.attacks.test_attacks import Case, check_conforms, make_ground
from tests.attacks.test_oracles import PyTorchClassifier, evasion
from tests.support.toys import (
    CPU,
    Constant,
    Linear,
    Spy,
    ignore_step,
    images,
    names,
    open_access,
    open_ledger,
    run,
    two_classes,
)

QUICK = {
    "nes": "nes:steps=3,samples=10",
    "spsa": "spsa:steps=3,samples=10",
    "nattack": "nattack:steps=3,samples=10",
    "rgf": "rgf:steps=3,samples=10",
    "prgf": "prgf:steps=3,samples=10,surrogate=none",
    "simba": "simba:steps=40",
    "bandits": "bandits:steps=12",
    "zoo": "zoo:steps=3,samples=5",
}
every_attack = pytest.mark.parametrize("name", QUICK)


def every_attack_and_norm() -> list[Any]:
    return [
        pytest.param(name, norm, id=f"{name}-{norm.name}")
        for name in QUICK
        for norm in type(attacks.create(name)).norms
    ]


class Bowl(nn.Module):
    """Class 1 is the nearer the closer an image is to its own place, and never wins; in float64."""

    def __init__(self, place: Tensor) -> None:
        super().__init__()
        self.place = nn.Parameter(place.double())
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        depth = 40 * (x.double().flatten(1) - self.place).square().sum(1)
        return torch.stack((0 * depth, -30 - depth), 1)


def grey(rows: int, values: int) -> Tensor:
    return torch.full((rows, values), 0.5)


def open_score_box(module: nn.Module, x: Tensor, norm: Norm | None = None, seed: int = 0) -> ScoreAccess:
    labels = torch.zeros(len(x), dtype=torch.int64)
    box: ScoreAccess = open_access(ScoreAccess, module, open_ledger(norm or L2(1e-3), x, Untargeted(labels)), seed=seed)
    return box


def climb_of(model: Linear) -> Tensor:
    """The gradient of the height: from class 0 to class 1."""
    return (model.weight[1] - model.weight[0]).detach()


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return torch.cosine_similarity(a.double(), b.double(), dim=-1)


# ---------------------------------------------------------------- estimates of a known gradient

DIRECTIONS = {"nes": normal_directions, "spsa": sign_directions, "rgf": sphere_directions}
every_direction = pytest.mark.parametrize("kind", DIRECTIONS)


def estimates(kind: str, module: nn.Module, x: Tensor, count: int, sigma: float = 1e-3, seed: int = 0) -> Tensor:
    """One estimate per row, as the attack of that name makes it."""
    box = open_score_box(module, x, seed=seed)
    rise = (
        forward_difference(box, x, attack_loss(box, x), sigma) if kind == "rgf" else central_difference(box, x, sigma)
    )
    return estimate_gradient(rise, DIRECTIONS[kind](box, x), count)


@pytest.mark.parametrize(("d", "q"), [(40, 10), (100, 30), (100, 200)])
@every_direction
def test_estimates_are_as_close_to_the_gradient_as_theory_says(kind: str, d: int, q: int) -> None:
    model = two_classes(d, seed=1, margin=5.0)
    found = cosine(estimates(kind, model, grey(300, d), q), climb_of(model))
    assert float(found.mean()) == pytest.approx(math.sqrt(q / (d + q)), rel=0.03)


@every_direction
def test_estimates_are_unbiased(kind: str) -> None:
    """Their mean over many rows is the gradient, in direction and in length."""
    d, q, rows = 60, 30, 1200
    model = two_classes(d, seed=2, margin=5.0)
    truth = climb_of(model).double()
    mean = estimates(kind, model, grey(rows, d), q).double().mean(0)
    assert float(mean @ truth / truth.square().sum()) == pytest.approx(1, abs=4 * math.sqrt(2 / (q * rows)))
    assert float((mean - truth).norm() / truth.norm()) < 1.3 * math.sqrt(d / (q * rows))


def test_pairs_cancel_curvature_however_wide_they_are() -> None:
    """On a quadratic, central differences stay exact; forward ones see the curvature."""
    d, q, rows = 20, 25, 800
    place = torch.tensor(np.random.default_rng(0).uniform(0.3, 0.7, d))
    bowl, x = Bowl(place), grey(rows, d)
    truth = -80 * (0.5 - place)
    by_pairs, by_base = (estimates(kind, bowl, x, q, sigma=0.05).double() for kind in ("nes", "rgf"))
    error = [(found.mean(0) - truth).norm() / truth.norm() for found in (by_pairs, by_base)]
    assert error[0] < 1.3 * math.sqrt(d / (q * rows))
    assert cosine(by_pairs, truth).mean() > cosine(by_base, truth).mean() + 0.05


@every_direction
def test_a_value_at_the_wall_keeps_its_sign_and_half_its_slope(kind: str) -> None:
    d, q, rows = 30, 40, 800
    model = two_classes(d, seed=4, margin=5.0)
    x = grey(rows, d)
    x[:, :5], x[:, 5:10] = 0.0, 1.0
    mean, truth = estimates(kind, model, x, q).mean(0), climb_of(model)
    part = torch.cat((torch.full((10,), 0.5), torch.ones(20)))
    assert float((mean - part * truth).norm() / truth.norm()) < 0.05


@pytest.mark.parametrize("name", ["nes:steps=1,samples=60", "rgf:steps=1,samples=30"])
def test_the_first_step_is_as_good_as_its_estimate(name: str) -> None:
    """The attacks as they are: one L2 step from grey goes along the estimate."""
    d, rows = 100, 300
    model, x = two_classes(d, seed=1, margin=5.0), grey(rows, d)
    moved = attacks.create(name)(open_score_box(model, x, L2(0.01)), x) - x
    assert float(cosine(moved, climb_of(model)).mean()) == pytest.approx(math.sqrt(30 / 130), rel=0.03)


# ---------------------------------------------------------------- P-RGF: how much to trust a prior


def nearness(weight: Any, a: float, n: int, q: int) -> Any:
    """Squared cosine that an estimate of weight `weight` attains, E[g.ghat]^2 / E|ghat|^2, from its second moment C."""
    aside = (1 - weight) / (n - 1)
    once = weight * a + aside * (1 - a)
    twice = weight**2 * a + aside**2 * (1 - a)
    return once**2 / ((1 - 1 / q) * twice + once / q)


@pytest.mark.parametrize(("n", "q"), [(12, 4), (60, 8), (3072, 50), (3072, 500), (150_528, 50)])
def test_the_mixing_weight_is_the_best_of_all(n: int, q: int) -> None:
    grid = np.linspace(0, 1, 100_001)
    none, all_ = 1 / (n + 2 * q - 2), (2 * q - 1) / (n + 2 * q - 2)
    squared = np.concatenate((np.geomspace(1e-7, 0.999, 20), np.linspace(none, all_, 20)))
    weights = mixing_weight(torch.tensor(squared), n, q).numpy()
    assert (weights[squared < none] == 0).all()
    assert (weights[squared > all_] == 1).all()
    assert ((weights > 0.001) & (weights < 0.999)).sum() >= 10
    for a, weight in zip(squared, weights, strict=True):
        best = grid[nearness(grid, a, n, q).argmax()]
        assert nearness(weight, a, n, q) >= nearness(grid, a, n, q).max() * (1 - 1e-9)
        assert weight == pytest.approx(best, abs=3e-5)


@pytest.mark.parametrize("a", [0.004, 0.05, 0.12, 0.35])
def test_directions_drawn_with_that_weight_come_nearest(a: float) -> None:
    """The real draws, on a linear model, with a prior of known cosine: no other weight does better."""
    n, q, rows = 60, 8, 600
    model, x = two_classes(n, seed=3, margin=5.0), grey(rows, n)
    g = torch.nn.functional.normalize(climb_of(model), dim=0)
    aside = torch.randn(n, generator=torch.Generator().manual_seed(0))
    aside = torch.nn.functional.normalize(aside - (aside @ g) * g, dim=0)
    guide = on_sphere((a**0.5 * g + (1 - a) ** 0.5 * aside).expand(rows, 1, n))
    attack = PRGF(samples=q)

    def attained(weight: float) -> float:
        box = open_score_box(model, x)
        made = attack._estimate(box, x, attack_loss(box, x), guide, torch.full((rows,), weight, dtype=torch.float64))
        return float(cosine(made, g).mean())

    best = float(mixing_weight(torch.tensor(a), n, q))
    here = attained(best)
    assert here == pytest.approx(math.sqrt(nearness(best, a, n, q)), abs=0.03)
    for other in (0.0, 0.02, 0.1, 0.3, 0.6, 1.0):
        assert here > attained(other) - 0.012


def test_a_perfect_surrogate_is_followed_and_costs_two_queries_a_step() -> None:
    model = two_classes(3 * 32 * 32, seed=3, margin=40.0)
    x = images(3, (3, 32, 32), low=0.4, high=0.6)
    labels = torch.zeros(3, dtype=torch.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "load", lambda name, device: model)
        patch.setattr(models, "card", lambda name: type("Card", (), {"classes": 2}))
        eps = LInf(1e-3)
        records, _ = run(model, attacks.create("prgf:steps=15"), eps, x, labels)
    assert records["queries"].tolist() == [15 * 2 + 2 * 10 + 1] * 3
    assert records["backwards"].tolist() == [0] * 3, "the surrogate's gradients are not the target's"
    lowest = records["clean_margin"] - 1e-3 * float(climb_of(model).abs().sum())
    np.testing.assert_allclose(records["margin"], lowest, rtol=1e-3)


def test_surrogates_that_do_not_fit_are_named() -> None:
    x = images(2, (3, 4, 4))
    model, labels = two_classes(48), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(UnknownName, match="did you mean resnet20-natural"):
        run(model, attacks.create("prgf:surrogate=resnet20-naturl"), LInf(0.1), x, labels)
    with pytest.raises(BadRequest, match="takes no images of shape"):
        run(two_classes(12), attacks.create("prgf"), LInf(0.1), images(2, (12,)), labels)
    many = Constant(classes=12)
    many.bias.data = many.bias.data.flip(0).clone()
    with pytest.raises(BadRequest, match="knows 10 classes"):
        run(many, attacks.create("prgf"), LInf(0.1), images(2, (3, 32, 32)), labels + 11)


# ---------------------------------------------------------------- queries: all counted, none too many

FULL_COST = {
    "nes": 3 * 11 + 1,
    "spsa": 3 * 11 + 1,
    "nattack": 3 * 11 + 1,
    "rgf": 3 * 11 + 1,
    "prgf": 3 * 12 + 10 + 1,
    "simba": 40,
    "bandits": 12 * 3 + 1,
    "zoo": 3 * 11 + 1,
}


@pytest.mark.parametrize("budget", [1, 2, 11, 12, 29, None])
@pytest.mark.parametrize(("name", "norm"), every_attack_and_norm())
def test_an_unbreakable_model_costs_the_budget_exactly(name: str, norm: type[Norm], budget: int | None) -> None:
    """Eight rows fill the lanes of a batch, so that no padding hides in what the model saw."""
    spy, x = Spy(Constant()), images(8, (2, 3, 3), low=0, high=1)
    x[0], x[1] = 0.0, 1.0
    labels = torch.zeros(8, dtype=torch.int64)
    records, _ = run(spy, attacks.create(QUICK[name]), norm(0.2), x, labels, query_budget=budget)
    spent = FULL_COST[name] if budget is None else budget
    assert records["queries"].tolist() == [spent] * 8
    seen = torch.cat(spy.seen[1:])  # first, one image to count the classes
    assert len(seen) == 8 + 8 * spent, "the clean look, and every query"
    assert seen.min() >= 0
    assert seen.max() <= 1


@every_attack
def test_answers_past_the_budget_change_nothing(name: str) -> None:
    """Points that were not paid for are answered with zeros; what was found before must be what is shown."""
    model, x = two_classes(18, seed=3, margin=0.5), images(6, (18,), low=0, high=1)
    labels = model(x).argmax(1)
    norm = L2(0.15)
    whole, _ = run(model, attacks.create(QUICK[name]), norm, x, labels)
    for budget in (3, 17):
        cut, _ = run(model, attacks.create(QUICK[name]), norm, x, labels, query_budget=budget)
        assert (cut["queries"] <= budget).all()
        early = (whole["claimed_at_query"] <= budget).fillna(False).astype(bool)
        if not attacks.create(name).seeks_minimum:
            assert cut["success"].tolist() == (whole["success"] & early).tolist()
            assert cut.loc[early, "claimed_at_query"].equals(whole.loc[early, "claimed_at_query"])


# ---------------------------------------------------------------- settings the conformance table has no row for


@pytest.mark.parametrize("in_box", [False, True], ids=["free", "in box"])
@pytest.mark.parametrize(
    "spec",
    [
        "simba:steps=250,basis=dct,rel_step=0.1",
        "zoo:solver=newton,rate=0.1,search_steps=3,steps=40,initial_c=0.01",
        "zoo:samples=4,rate=0.003,search_steps=3,steps=80,initial_c=0.001",
    ],
    ids=["simba-dct", "zoo-newton", "zoo-few"],
)
def test_other_settings_break_just_above_and_never_below(spec: str, in_box: bool) -> None:
    check_conforms(attacks.create(spec), L2, Case(reach=1.15), make_ground(L2, 12, in_box, in_box, rows=3))


# ---------------------------------------------------------------- each attack's own way


def test_nes_halves_its_step_where_it_no_longer_climbs() -> None:
    """In one dimension every step has full length, so looks are steps apart; round the best place they must shrink."""
    spy, x = Spy(Bowl(torch.tensor([0.513]))), torch.full((8, 1), 0.5)
    attack = attacks.create("nes:steps=40,samples=2,rel_step=0.1,plateau=4")
    attack(open_score_box(spy, x, LInf(0.4)), x)
    looks = torch.cat([batch for batch in spy.seen[1:] if len(batch) == 8])[:, 0].view(-1, 8).float()
    steps = looks.diff(dim=0).abs() / 0.04
    assert len(steps) == 39
    assert (steps.diff(dim=0) < 1e-3).all(), "steps only shrink"
    assert torch.allclose(steps[0], torch.ones(8), atol=1e-3)
    assert torch.allclose(steps[-1], torch.full((8,), 0.1), atol=1e-3), "but not below a tenth"
    for size in (1.0, 0.5, 0.25, 0.125):
        assert ((steps[:, 0] - size).abs() < 1e-3).sum() >= 3


def test_spsa_walks_as_adam_does(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(0)
    slopes = [torch.randn(2, 5, generator=draw) for _ in range(12)]
    given = iter(slopes)
    monkeypatch.setattr(spsa, "estimate_gradient", lambda *_: next(given))
    x = grey(2, 5)
    found = attacks.create("spsa:steps=12,rel_step=0.05")(open_score_box(Constant(), x, LInf(0.4)), x)
    walker = x.clone().requires_grad_()
    adam = torch.optim.Adam([walker], lr=0.05 * 0.4, eps=1e-9, maximize=True)
    for climb in slopes:
        walker.grad = climb.clone()
        adam.step()
    assert torch.allclose(found, walker.detach(), atol=1e-6)


def test_nattack_weighs_standardised_rewards() -> None:
    """Against the formula of the paper on all draws at once; several blocks, so that their joining is tested too."""
    model, x = two_classes(18, seed=1, margin=5.0), images(3, (2, 3, 3), low=0.1, high=0.9)
    box = open_score_box(model, x, L2(0.3))
    attack, span = NAttack(samples=40), PatternBasis.of(x, coarse(32, "linear"))
    mean = 0.1 * box.rng.normal(18)
    draws = Streams.of(0, names(3))
    draws.normal(18)
    noise = torch.cat([draws.normal(n, 18) for n in blocks(40)], 1).double()
    found = attack._update(box, span, mean, torch.zeros(3))

    start = np.arctanh(np.clip(2 * x.double().numpy() - 1, -0.9, 0.9))
    z = (mean[:, None].double() + 0.1 * noise).view(3, 40, 2, 3, 3).numpy()
    delta = (np.tanh(start[:, None] + z) - np.tanh(start[:, None])) / 2
    points = box.ball.project((x[:, None].double() + torch.from_numpy(delta)).float())
    logits = model(points.flatten(0, 1)).detach().double().view(3, 40, 2)
    reward = logits[..., 1] - logits[..., 0]
    weight = (reward - reward.mean(1, keepdim=True)) / (reward.std(1, correction=0, keepdim=True) + 1e-7)
    assert torch.allclose(found.double(), (weight[..., None] * noise).mean(1), atol=1e-4)


def test_nattack_asks_inside_the_ball_only() -> None:
    spy, x = Spy(Constant()), images(8, (12,), low=0, high=1)
    labels = torch.zeros(8, dtype=torch.int64)
    run(spy, attacks.create("nattack:steps=10,samples=16,sigma=0.5"), LInf(0.03), x, labels, batch_size=1000)
    draws = torch.cat([batch.view(8, 16, 12) for batch in spy.seen if len(batch) == 128], 1)
    assert draws.shape == (8, 160, 12)
    apart = (draws - x[:, None]).abs()
    assert apart.max() <= 0.03 + 1e-6
    assert apart.amax((0, 2)).min() > 0.029, "and wide draws fill it"


def test_exponentiated_steps_are_those_of_the_authors() -> None:
    draw = torch.Generator().manual_seed(0)
    prior, gain = torch.rand(4, 9, generator=draw).double() * 1.8 - 0.9, torch.randn(4, 9, generator=draw).double()
    odds = (prior + 1) / 2
    up, down = odds * gain.exp(), (1 - odds) * (-gain).exp()
    expected = 2 * up / (up + down) - 1
    assert torch.allclose(bandits._exponentiated(prior.float(), gain.float()).double(), expected, atol=1e-6)


@pytest.mark.parametrize("norm", [LInf(0.02), L2(0.1)], ids=["Linf", "L2"])
@pytest.mark.parametrize("name", ["nes", "nattack", "rgf", "bandits", "simba"])
def test_the_scale_of_scores_does_not_matter(name: str, norm: Norm) -> None:
    """Scores times a power of two: the same points, to the bit, but for NATTACK's guard against zero."""
    model, x = two_classes(18, seed=1, margin=5.0), images(4, (18,))
    loud = Linear(model.weight.detach() * 64, model.bias.detach() * 64)
    one, other = (attacks.create(QUICK[name])(open_score_box(module, x, norm, seed=5), x) for module in (model, loud))
    assert torch.allclose(one, other, atol=1e-5 if name == "nattack" else 0)
    assert (one != x).any(1).all()


def test_bandits_follow_tiles() -> None:
    x = images(2, (3, 8, 8), low=0.4, high=0.6)
    moved = attacks.create("bandits:steps=1,side=4")(open_score_box(two_classes(192), x, L2(0.1)), x) - x
    tiles = moved.view(2, 3, 4, 2, 4, 2)
    assert torch.allclose(tiles, tiles[:, :, :, :1, :, :1].expand_as(tiles), atol=1e-6)
    assert (moved != 0).any()


# ---------------------------------------------------------------- SimBA


def test_cosine_patterns_are_arts() -> None:
    x = torch.zeros(1, 3, 8, 8)
    span = PatternBasis.of(x, cosines)
    index = torch.tensor([[0, 1, 9, 63, 64, 130, 191]])
    ours = span.pattern(index)[0]
    peer = evasion.SimBA.__new__(evasion.SimBA)
    peer._estimator = type("Estimator", (), {"channels_first": True})()
    for image, at in zip(ours, index[0].tolist(), strict=True):
        one = np.zeros(192, dtype=np.float32)
        one[at] = 1
        np.testing.assert_allclose(image.numpy(), peer._block_idct(one.reshape(1, 3, 8, 8), block_size=8)[0], atol=1e-6)


@pytest.mark.parametrize("basis", ["px", "dct"])
def test_simba_takes_arts_path_on_a_linear_model(basis: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There only one side of each pattern helps, so asking up, then down, goes where asking both at once goes."""
    shape, trials = (1, 8, 8), 20
    model, x = two_classes(64, seed=6, margin=8.0), images(1, shape, low=0.45, high=0.55)
    ours_basis = {"px": "pixel", "dct": "dct"}[basis]
    spy = Spy(model)
    attack = attacks.create(f"simba:steps={2 * trials + 1},rel_step=0.01,basis={ours_basis}")
    box = open_score_box(spy, x, L2(10))
    spy.seen.clear()
    attack(box, x)
    points = torch.cat([batch[:1] for batch in spy.seen]).double()

    patterns = PatternBasis.of(x, {"px": pixels, "dct": cosines}[basis]).pattern(torch.arange(64)[None])[0].double()
    moves = (points[1:] - points[:-1]).flatten(1) @ patterns.flatten(1).T
    asked = [int(move.abs().argmax()) for move in moves]  # the newest pattern outweighs a step taken back
    order = list(dict.fromkeys(asked))
    order += [at for at in range(64) if at not in order]

    monkeypatch.setattr(np.random, "permutation", lambda n: np.array(order)[:n])
    monkeypatch.setattr(evasion.SimBA, "_block_order", lambda self, *_, **__: np.array(order))
    soft = nn.Sequential(model, nn.Softmax(1))
    classifier = PyTorchClassifier(
        soft, loss=nn.CrossEntropyLoss(), input_shape=shape, nb_classes=2, clip_values=(0, 1), device_type="cpu"
    )
    peer = evasion.SimBA(classifier, attack=basis, max_iter=20, epsilon=0.1, freq_dim=8, verbose=False)
    theirs = torch.from_numpy(peer.generate(x.numpy(), np.eye(2)[[0]])).double()
    assert (theirs - x).abs().max() > 0.005
    assert float((points - theirs).flatten(1).norm(dim=1).min()) < 1e-5, "our path passes through ART's twentieth point"


@pytest.mark.parametrize("basis", ["pixel", "dct"])
def test_simba_tries_every_pattern_once_a_pass_and_low_waves_first(basis: str) -> None:
    spy, x = Spy(Constant()), grey(8, 32).view(8, 2, 4, 4)
    attack = attacks.create(f"simba:steps={1 + 2 * 64},basis={basis}")
    attack(open_score_box(spy, x, L2(0.1)), x)
    tried = torch.stack([batch for batch in spy.seen[1:] if len(batch) == 8][1:]) - 0.5
    assert len(tried) == 2 * 64 - 1, "all but the first look, and the last which is left to the evaluation"
    assert torch.allclose(tried[0::2][:63], -tried[1::2][:63], atol=1e-6), "up, then down"
    span = PatternBasis.of(x, {"pixel": pixels, "dct": cosines}[basis])
    patterns = span.pattern(torch.arange(32)[None])[0].flatten(1)
    which = (tried[0::2].flatten(2) @ patterns.T).abs().argmax(-1)
    for start in (0, 32):
        assert torch.equal(which[start : start + 32].sort(0).values, torch.arange(32)[:, None].expand(32, 8))
    assert not torch.equal(which[:32, 0], which[:32, 1]), "each row has its own order"
    assert not torch.equal(which[:32, 0], which[32:, 0]), "and each pass"
    if basis == "dct":
        frequency = torch.maximum(which % 4, which // 4 % 4)[:32]
        assert (frequency.diff(dim=0) >= 0).all()


# ---------------------------------------------------------------- ZOO


def test_zoo_sees_slopes_and_curvatures() -> None:
    """Of |x - x0|^2 + c * margin on a bowl, where both are known."""
    place = torch.tensor([0.4, 0.55, 0.7, 0.5])
    x0 = images(2, (4,), low=0.4, high=0.6)
    box, x = open_score_box(Bowl(place), x0), (x0 + 0.05).clamp(0, 1)
    c = torch.tensor([0.5, 2.0], dtype=torch.float64)
    attack, span = zoo.ZOO(), PatternBasis.of(x0, pixels)
    loss, _ = zoo._loss(box, x, c)
    chosen = torch.tensor([[3, 0, 1], [1, 2, 0]])
    slopes, curvatures = attack._differences(box, span, x, c, loss, chosen)
    expected = 2 * (x - x0).double() + 80 * c[:, None] * (x.double() - place.double())
    assert torch.allclose(slopes.double(), expected.gather(1, chosen), rtol=1e-2)
    assert torch.allclose(curvatures.double(), (2 + 80 * c)[:, None].expand(2, 3), rtol=0.15)


def test_zoo_moves_each_value_as_its_own_adam() -> None:
    """A value that is asked about every second step walks as if the other steps had not been."""
    state = torch.zeros(1, 3, 2)
    draw = np.random.default_rng(0)
    walkers = [torch.zeros(1, requires_grad=True) for _ in range(2)]
    adams = [torch.optim.Adam([walker], lr=1.0) for walker in walkers]
    total = torch.zeros(2)
    for step in range(10):
        chosen = [0, 1] if step % 2 == 0 else [0]
        slopes = torch.tensor(draw.normal(size=len(chosen)), dtype=torch.float32)
        total[chosen] -= zoo._adam(state, torch.tensor([chosen]), slopes[None])[0]
        for at, value in zip(chosen, slopes, strict=True):
            walkers[at].grad = value[None].clone()
            adams[at].step()
    assert torch.allclose(total, torch.cat([walker.detach() for walker in walkers]), atol=1e-5)


def test_zoo_asks_most_where_most_has_changed() -> None:
    span = PatternBasis.of(torch.zeros(1, 1, 16, 16), pixels)
    delta = torch.zeros(4000, 256)
    assert (zoo._importance(delta, span) == 1).all()
    delta[:, 0], delta[:, 255] = 0.5, -1.0
    weights = zoo._importance(delta, span)
    assert weights[0].view(16, 16)[:2, :2].tolist() == [[0.5, 0.5]] * 2
    assert weights[0].view(16, 16)[14:, 14:].tolist() == [[1.0, 1.0]] * 2
    assert (weights[0] == 0.1).sum() == 248
    box = open_score_box(Constant(), torch.zeros(4000, 1, 2, 2))
    first = zoo._choose(box, weights, 1)[:, 0]
    share = float((weights[0][first] == 1).float().mean())
    assert share == pytest.approx(4 / float(weights[0].sum()), abs=4 * math.sqrt(0.13 * 0.87 / 4000))
    many = zoo._choose(box, weights, 40)
    assert all(len(set(row)) == 40 for row in many[:50].tolist()), "without replacement"


def test_coarse_grids_paint_what_torch_interpolates() -> None:
    x, draw = torch.zeros(2, 3, 20, 11), torch.Generator().manual_seed(0)
    for mode, torchs in (("linear", "bilinear"), ("nearest", "nearest")):
        span = PatternBasis.of(x, coarse(6, mode))
        assert span.grid == (3, 6, 6)
        weights = torch.randn(2, span.size, generator=draw)
        expected = torch.nn.functional.interpolate(weights.view(2, 3, 6, 6), size=(20, 11), mode=torchs)
        assert torch.allclose(span.paint(weights), expected, atol=1e-5)
        one = torch.zeros(2, span.size).scatter(1, torch.tensor([[7], [50]]), 1.0)
        assert torch.allclose(span.pattern(torch.tensor([[7], [50]]))[:, 0], span.paint(one), atol=1e-6)


@pytest.mark.parametrize("spec", ["zoo:side=6,samples=30,steps=12", "nattack:side=6,samples=30,steps=12"])
def test_large_images_are_changed_on_a_coarse_grid(spec: str) -> None:
    smooth = torch.linspace(-1, 1, 24)[:, None].expand(24, 24).flatten() / 20
    model = Linear(torch.stack((smooth, -smooth)), torch.tensor([1.0, 0.0]))
    x = images(2, (1, 24, 24), low=0.45, high=0.55)
    records, _ = run(model, attacks.create(spec), L2(0.9), x, torch.zeros(2, dtype=torch.int64))
    assert (records["margin"] < 0.5 * records["clean_margin"]).all()


@pytest.mark.parametrize(
    ("spec", "message"), [("zoo:solver=sgd", "solver must be"), ("simba:basis=wave", "basis must")]
)
def test_unknown_ways_are_refused(spec: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        attacks.create(spec)


# ---------------------------------------------------------------- on a real network

REAL = {
    "nes": "nes:steps=4,samples=30",
    "spsa": "spsa:steps=4,samples=30",
    "nattack": "nattack:steps=4,samples=30",
    "rgf": "rgf:steps=4,samples=30",
    "prgf": "prgf:steps=4,samples=30,surrogate=resnet56-natural",
    "simba": "simba:steps=60",
    "bandits": "bandits:steps=25",
    "zoo": "zoo:steps=4,samples=40,rate=0.05",
}


@pytest.fixture(scope="module")
def photos() -> tuple[Tensor, Tensor]:
    dataset = data.load("cifar10-1k")
    return dataset.images(slice(0, 3)), torch.as_tensor(dataset.labels[:3])


def set_on_network(
    attack: Attack[Any], norm: Norm, x: Tensor, y: Tensor, ids: list[str], batch_size: int, targeted: bool = False
) -> tuple[Any, Tensor]:
    network = LocalModel(models.load("resnet20-natural"), 10, CPU, batch_size)
    threat = ThreatModel(norm, RandomTarget() if targeted else None)
    records, x_adv = run_wave(network, attack, threat, Wave(ids, x, y), 0, None, ignore_step)
    return records.to_pandas(), x_adv


@every_attack
def test_every_attack_is_worth_its_queries_and_rows_stay_strangers(name: str, photos: tuple[Tensor, Tensor]) -> None:
    """Nearer the goal than the best of twenty random points; and a row alone, cut up otherwise, gets the same."""
    (x, y), norm, ids = photos, {"simba": L2(0.3), "zoo": L2(1.0)}.get(name, LInf(1 / 255)), names(3)
    records, x_adv = set_on_network(attacks.create(REAL[name]), norm, x, y, ids, 64)
    noise, _ = set_on_network(attacks.create("uniform-noise:steps=20"), norm, x, y, ids, 64)
    assert (records["queries"] <= 330).all()
    gained = (records["clean_margin"] - records["margin"]).sum()
    by_chance = (noise["clean_margin"] - noise["margin"]).sum()
    assert gained > 1.1 * max(by_chance, 0.1)

    alone, alone_adv = set_on_network(attacks.create(REAL[name]), norm, x[1:2], y[1:2], ids[1:2], 13)
    for column in ("success", "queries", "iterations", "claimed_at_query"):
        assert alone[column].tolist() == records[column].tolist()[1:2] or alone[column].isna().all()
    assert float(alone["margin"][0]) == pytest.approx(float(records["margin"][1]), abs=1e-4)
    assert (alone_adv - x_adv[1:2]).abs().max() < 1e-5


def test_a_good_surrogate_saves_queries(photos: tuple[Tensor, Tensor]) -> None:
    x, y = photos
    guided, blind = (
        set_on_network(attacks.create(spec), LInf(1 / 255), x, y, names(3), 64, targeted=True)[0]["margin"].mean()
        for spec in ("prgf:steps=10,samples=20,surrogate=resnet56-natural", "rgf:steps=10,samples=20")
    )
    assert guided < blind - 0.5


def test_a_row_that_falls_asks_no_more() -> None:
    """Rows fall in different steps; each pays for the block it was found in, and nothing after."""
    model, x = two_classes(12, seed=3, margin=0.3), images(12, (12,), low=0.3, high=0.7)
    labels = model(x).argmax(1)
    for name in QUICK.keys() - {"zoo"}:
        records, _ = run(model, attacks.create(QUICK[name]), LInf(0.2), x, labels)
        done = records[records["success"]]
        assert len(done) > 3, name
        assert (done["queries"] - done["claimed_at_query"] <= 11).all(), "the rest of the draw and a look"
        assert (done["queries"] < FULL_COST[name]).any()
