"""DDN, C&W and DeepFool against exact distances, a general solver, and foolbox."""

import importlib

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

import robustassay as ra
from robustassay import attacks, data
from robustassay.errors import BadRequest
from robustassay.threat import L2, LabelList, LInf, Norm
from tests.support.toys import Linear, Spy, distances, images, names, run, targeted_distances, two_classes

FAR: dict[type[Norm], float] = {L2: 50.0, LInf: 1.0}
"""Radii that every distance is below; what an attack finds does not depend on it."""

CW = "cw:steps=200"
CW_FAST = "cw-fast:steps=200"
DEEPFOOL = "deepfool:overshoot=0.002"
EVERY = [("ddn", L2), (CW, L2), (CW_FAST, L2), (DEEPFOOL, L2), (DEEPFOOL, LInf)]
every_attack = pytest.mark.parametrize(("spec", "norm"), EVERY, ids=[f"{spec}-{norm.name}" for spec, norm in EVERY])
every_cw = pytest.mark.parametrize("spec", [CW, CW_FAST])
targetable = pytest.mark.parametrize("spec", ["ddn", CW, CW_FAST])


# ---------------------------------------------------------------- linear models


@pytest.mark.parametrize("spread", [0.1, 0.5], ids=["grey", "full range"])
@every_attack
def test_linear_models_are_broken_within_a_percent_of_the_exact_distance(spec: str, norm: type[Norm], spread: float):
    model = two_classes(30, seed=2, dead=1)
    x = images(8, (30,), low=0.5 - spread, high=0.5 + spread)
    x = x[distances(model, x, model(x).argmax(1), "L2") > 0.05]  # nearer by, C&W's first steps are longer than the way
    labels = model(x).argmax(1)
    exact = distances(model, x, labels, norm.name)
    assert len(x) > 4
    records, _ = run(model, attacks.create(spec), norm(FAR[norm]), x, labels)
    ratio = records["distance"].to_numpy() / exact
    assert (ratio >= 1 - 1e-5).all()
    assert (ratio <= 1.01).all()


@pytest.mark.parametrize(("spec", "norm"), EVERY[1:])
def test_of_many_classes_the_nearest_is_found(spec: str, norm: type[Norm]):
    """Not by DDN: it climbs the cross-entropy, which pulls towards all classes at once while the model is unsure."""
    draw = torch.Generator().manual_seed(0)
    model = Linear(torch.randn(5, 30, generator=draw), torch.zeros(5))
    x = images(8, (30,), low=0.4, high=0.6)
    labels = model(x).argmax(1)
    exact = distances(model, x, labels, norm.name)
    records, _ = run(model, attacks.create(spec), norm(FAR[norm]), x, labels)
    ratio = records["distance"].to_numpy() / exact
    assert (ratio >= 1 - 1e-5).all()
    assert (ratio <= 1.01).all()


@targetable
def test_targets_are_reached_within_a_percent_of_the_exact_distance(spec: str):
    model = two_classes(30, seed=2, dead=2)
    x = images(6, (30,))
    x = x[model(x).argmax(1) == 0]
    exact = targeted_distances(model, x, torch.ones(len(x), dtype=torch.int64), "L2")
    target = LabelList(dict.fromkeys(names(len(x)), 1))
    records, _ = run(model, attacks.create(spec), L2(FAR[L2]), x, torch.zeros(len(x), dtype=torch.int64), target=target)
    ratio = records["distance"].to_numpy() / exact
    assert (records["adv_label"] == 1).all()
    assert (ratio >= 1 - 1e-5).all()
    assert (ratio <= 1.01).all()


@pytest.mark.parametrize(
    ("spec", "norm"), [("ddn", L2), ("cw:steps=50", L2), ("cw-fast:steps=50", L2), ("deepfool", L2), ("deepfool", LInf)]
)
def test_success_is_judged_against_eps_afterwards(spec: str, norm: type[Norm]):
    model, x = two_classes(12, seed=3), images(6, (12,))
    labels = model(x).argmax(1)
    found = run(model, attacks.create(spec), norm(FAR[norm]), x, labels)[0]["distance"].to_numpy()
    eps = float(np.median(found))
    records, _ = run(model, attacks.create(spec), norm(eps), x, labels)
    np.testing.assert_array_equal(records["distance"], found)
    assert records["success"].tolist() == (found <= eps).tolist()
    assert len(set(records["success"])) == 2


# ---------------------------------------------------------------- a curved boundary


class Ellipsoid(nn.Module):
    """Class 0 inside an ellipsoid, class 1 outside."""

    def __init__(self, values: int) -> None:
        super().__init__()
        axes = np.linspace(0.8, 2.0, values)
        turn = np.linalg.qr(np.random.default_rng(0).normal(size=(values, values)))[0]
        self.shape = nn.Parameter(torch.tensor(np.diag(axes) @ turn, dtype=torch.float32))
        self.eval()

    def level(self, x: Tensor) -> Tensor:
        return ((x.flatten(1) - 0.5) @ self.shape.T).square().sum(1)

    def forward(self, x: Tensor) -> Tensor:
        level = self.level(x)
        return torch.stack((0.25 - level, torch.zeros_like(level)), 1)

    def distance(self, x: Tensor) -> float:
        """The nearest point outside by SLSQP, from many starts."""
        metric = self.shape.detach().double().numpy()
        metric, image = metric.T @ metric, x.double().flatten().numpy()
        draw = np.random.default_rng(1)
        found = [
            minimize(
                lambda p: ((p - image) ** 2).sum(),
                image + 0.3 * draw.normal(size=image.shape),
                bounds=[(0, 1)] * len(image),
                constraints={"type": "ineq", "fun": lambda p: (p - 0.5) @ metric @ (p - 0.5) - 0.25},
            )
            for _ in range(20)
        ]
        return float(np.sqrt(min(result.fun for result in found if result.success)))


@pytest.mark.parametrize(("spec", "part"), [("ddn", 0.85), (CW, 0.85), (CW_FAST, 0.85), (DEEPFOOL, 0.95)])
def test_a_curved_boundary_is_met_near_its_nearest_point(spec: str, part: float):
    """From part of the way out. DeepFool stops where it meets the boundary, so it is tried where that is near."""
    model, x = Ellipsoid(6), images(6, (6,), low=0, high=1)
    x = 0.5 + (x - 0.5) * (part * 0.5 / model.level(x).detach().sqrt())[:, None]
    labels = torch.zeros(6, dtype=torch.int64)
    assert (model(x).argmax(1) == 0).all()
    exact = np.array([model.distance(image) for image in x])
    records, _ = run(model, attacks.create(spec), L2(FAR[L2]), x, labels)
    ratio = records["distance"].to_numpy() / exact
    assert (ratio >= 1 - 1e-4).all()
    assert (ratio <= 1.05).all()


# ---------------------------------------------------------------- what peers get wrong


@every_cw
def test_cw_breaks_a_model_whose_logits_are_all_negative(spec: str):
    """A mask of zero in place of the label's logit would win against all others and leave no gradient."""
    model, x = two_classes(12, seed=3, dead=1), images(4, (12,))
    model.bias.data -= 50
    labels = model(x).argmax(1)
    assert (model(x) < 0).all()
    exact = distances(model, x, labels, "L2")
    records, _ = run(model, attacks.create(spec), L2(FAR[L2]), x, labels)
    np.testing.assert_allclose(records["distance"], exact, rtol=0.01)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param("cw:steps=1000,search_steps=4,initial_c=1.0,abort_early=false", marks=pytest.mark.long),
        "cw-fast:search_steps=6",
    ],
)
def test_cw_moves_the_pixels_of_binary_images(spec: str):
    """At 0 and 1 the tanh is flat; pixels that start there exactly would never move."""
    model = two_classes(12, seed=3, margin=0.2)
    x = (images(40, (12,), low=0, high=1) > 0.5).float()
    labels = torch.zeros(40, dtype=torch.int64)
    x = x[(model(x).argmax(1) == 0) & torch.from_numpy(np.isfinite(distances(model, x, labels, "L2")))][:4]
    exact = distances(model, x, labels[: len(x)], "L2")
    records, x_adv = run(model, attacks.create(spec), L2(FAR[L2]), x, labels[: len(x)])
    assert ((x_adv != x).sum(1) >= 3).all()
    assert (records["distance"] <= 1.05 * exact).all()
    assert (records["distance"] >= exact * (1 - 1e-5)).all()


@every_cw
@pytest.mark.parametrize("kappa", [0.5, 2.0])
def test_cw_with_kappa_keeps_the_nearest_point_of_that_margin(kappa: float, spec: str):
    """On a linear model that is the nearest point of one whose other classes are lower by as much."""
    model, x = two_classes(12, seed=3, dead=1), images(4, (12,))
    labels = model(x).argmax(1)
    behind = torch.full((4, 3), -kappa).scatter(1, labels[:, None], 0)
    exact = np.array(
        [
            distances(Linear(model.weight.detach(), model.bias.detach() + shift), image[None], label[None], "L2")[0]
            for image, label, shift in zip(x, labels, behind, strict=True)
        ]
    )
    nearest = distances(model, x, labels, "L2")
    assert (exact > 1.1 * nearest).all()
    records, x_adv = run(model, attacks.create(f"{spec},kappa={kappa}"), L2(FAR[L2]), x, labels)
    ratio = records["distance"].to_numpy() / exact
    assert (ratio >= 1 - 1e-5).all()
    assert (ratio <= 1.01).all()
    assert (records["margin"] <= -kappa + 1e-5).all()
    logits = model(x_adv).detach()
    own = logits.gather(1, labels[:, None])
    assert (logits.scatter(1, labels[:, None], -np.inf).amax(1, keepdim=True) - own >= kappa - 1e-5).all()


@pytest.mark.parametrize("name", ["cw", "cw-fast"])
def test_cw_with_a_kappa_out_of_reach_fails_and_says_so(name: str):
    """Points with a wrong label there are, but none that wins by so much: the clean image comes back, marked failed."""
    model, x = two_classes(12, seed=3, margin=0.2), images(4, (12,))
    labels = model(x).argmax(1)
    spy = Spy(model)
    records, x_adv = run(spy, attacks.create(f"{name}:steps=50,kappa=100"), L2(FAR[L2]), x, labels)
    seen = torch.cat([batch[:4] for batch in spy.seen if len(batch) == 8])
    assert (model(seen).argmax(1) != labels.repeat(len(seen) // 4)).any()
    assert not records["claimed"].any()
    assert not records["success"].any()
    assert records["distance"].isna().all()
    assert torch.equal(x_adv, x)


class Deaf(nn.Module):
    """Class 1 wins where the first value is small; unless all others are dark, there is no gradient that says so."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor([-2.0]))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        hears = (x[:, 1:] < 0.3).all(1).float()
        gain = hears * (self.slope * x[:, 0] + 0.5) - (1 - hears)
        return torch.stack((torch.zeros_like(gain), gain), 1)


@pytest.mark.parametrize(
    ("spec", "norm"), [("ddn:steps=100", L2), ("cw:steps=100", L2), ("cw-fast:steps=100", L2), ("deepfool", LInf)]
)
def test_a_row_that_stands_is_handed_back_clean_beside_one_that_falls(spec: str, norm: type[Norm]):
    x = torch.cat((torch.full((2, 1), 0.5), torch.tensor([[0.1], [0.5]]).expand(2, 40)), 1)
    model, attack = Deaf(), attacks.create(spec)
    records, x_adv = run(model, attack, norm(0.3), x, torch.zeros(2, dtype=torch.int64))
    assert records["success"].tolist() == [True, False]
    assert records["claimed"].tolist() == [True, False]
    assert torch.equal(x_adv[1], x[1])
    assert records["distance"][0] == pytest.approx(0.25, rel=0.03)


def test_deepfool_lets_a_row_go_when_its_label_changes():
    model, x = two_classes(12, seed=3), images(5, (12,))
    records, _ = run(model, attacks.create("deepfool"), L2(FAR[L2]), x, model(x).argmax(1))
    assert records["iterations"].tolist() == [1] * 5, "a linear model takes one step"
    assert records["backwards"].tolist() == [2] * 5


def test_deepfool_tries_no_class_beyond_its_candidates():
    weight = torch.zeros(4, 8)
    weight[1, 0], weight[2, 1], weight[3, 2] = 1.0, 2.0, 10.0  # the last is the nearest, and the least likely
    model, x = Linear(weight, torch.tensor([1.0, 0.4, -0.15, -4.5])), torch.full((1, 8), 0.5)
    for candidates, label in ((2, 1), (3, 2), (4, 3)):
        attack = attacks.create(f"deepfool:candidates={candidates}")
        records, _ = run(model, attack, L2(FAR[L2]), x, torch.zeros(1, dtype=torch.int64))
        assert records["adv_label"].tolist() == [label]
    with pytest.raises(BadRequest, match="at least 2"):
        run(model, attacks.create("deepfool:candidates=1"), L2(FAR[L2]), x, torch.zeros(1, dtype=torch.int64))


# ---------------------------------------------------------------- real images


class SmallNet(nn.Module):
    """A convolutional network with fixed random weights, large enough for boundaries that bend."""

    def __init__(self) -> None:
        super().__init__()
        head = nn.Linear(12 * 49, 10)
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 12, 3, 2), nn.ReLU(), nn.Flatten(), head
        )
        draw = np.random.default_rng(0)
        for parameter in self.parameters():
            fan_in = max(1, parameter[0].numel())
            parameter.data = torch.tensor(draw.normal(size=parameter.shape) * (2 / fan_in) ** 0.5).float()
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layers(x)
        return logits


def photos_for(model: nn.Module, rows: int) -> tuple[Tensor, Tensor]:
    """Real images that the model labels as it should: here, as it does."""
    x = data.load("cifar10-1k").images(list(range(rows)))
    with torch.no_grad():
        return x, model(x).argmax(1)


QUICK = [
    ("ddn:steps=20", L2),
    ("cw:steps=30,search_steps=4,initial_c=0.1", L2),
    ("cw-fast:steps=30,search_steps=4,initial_c=0.1", L2),
    ("deepfool:steps=5", L2),
    ("deepfool:steps=5", LInf),
]


@pytest.mark.parametrize(("spec", "norm"), QUICK)
def test_a_row_alone_gives_the_bits_it_gives_in_company(spec: str, norm: type[Norm]):
    model = SmallNet()
    x, labels = photos_for(model, 9)
    together, together_adv = run(model, attacks.create(spec), norm(FAR[norm]), x, labels, batch_size=4)
    assert together["claimed"].any()
    for row in (0, 4, 8):
        one = slice(row, row + 1)
        alone, x_adv = run(model, attacks.create(spec), norm(FAR[norm]), x[one], labels[one], ids=names(9)[one])
        assert torch.equal(x_adv, together_adv[one])
        for column in ("distance", "queries", "iterations", "claimed_at_query", "margin"):
            assert alone[column].tolist() == together[column][one].tolist()


def by_foolbox(model: nn.Module, x: Tensor, labels: Tensor, kind: str, **settings: object) -> np.ndarray:
    oracles = importlib.import_module("tests.attacks.test_oracles")  # it knows how to import the peers
    foolbox = oracles.foolbox
    attack = getattr(foolbox.attacks, kind)(**settings)
    peer = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
    found = attack.run(peer, x, foolbox.criteria.Misclassification(labels))
    with torch.no_grad():
        broken = (model(found).argmax(1) != labels).numpy()
    order = np.inf if kind.startswith("Linf") else 2
    sizes = np.linalg.norm((found - x).flatten(1).double().numpy(), order, 1)
    return np.where(broken, sizes, np.inf)


FOOLBOX_CW: dict[str, object] = {"steps": 25, "binary_search_steps": 3, "initial_const": 0.1, "abort_early": False}
PEERS: list[tuple[str, str, type[Norm], dict[str, object]]] = [
    ("ddn:steps=50", "DDNAttack", L2, {"steps": 50}),
    ("deepfool", "L2DeepFoolAttack", L2, {}),
    ("deepfool", "LinfDeepFoolAttack", LInf, {}),
    ("cw:steps=25,search_steps=3,initial_c=0.1,abort_early=false", "L2CarliniWagnerAttack", L2, FOOLBOX_CW),
    ("cw-fast:steps=25,search_steps=3,initial_c=0.1", "L2CarliniWagnerAttack", L2, FOOLBOX_CW),
]


@pytest.mark.parametrize("network", ["small", pytest.param("resnet20-pgd", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("spec", "peer", "norm", "settings"), PEERS, ids=[peer[0].partition(":")[0] + peer[2].name for peer in PEERS]
)
def test_at_equal_steps_we_come_as_near_as_foolbox(spec, peer, norm, settings, network):
    model = SmallNet() if network == "small" else ra.load_model(network)
    x, labels = photos_for(model, 16 if network == "small" else 8)
    theirs = by_foolbox(model, x, labels, peer, **settings)
    records, _ = run(model, attacks.create(spec), norm(FAR[norm]), x, labels)
    ours = records["distance"].to_numpy(float, na_value=np.inf)
    print(f"{peer} on {network}: ours {np.median(ours):.5f}, theirs {np.median(theirs):.5f}")
    assert np.isfinite(theirs).mean() > 0.5
    assert np.median(ours) <= 1.01 * np.median(theirs)
