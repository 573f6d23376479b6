"""Angles, planes and rays, held to models whose geometry is known."""

import numpy as np
import pytest
import torch
from torch import nn

from robustassay import data, models
from robustassay.analysis.geometry import intervals
from robustassay.errors import BadRequest
from robustassay.studies.measures import geometry
from robustassay.target import LocalModel
from robustassay.threat import Targeted, Untargeted
from tests.support.toys import CPU, Linear, images

SHAPE = (3, 4, 4)
N = 48


class Negated(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.eval()

    def forward(self, x):
        return -self.module(x)


def network(module, classes=10):
    return LocalModel(module, classes, CPU, 32)


def linear(classes=10, seed=0):
    draw = np.random.default_rng(seed)
    weight, bias = draw.normal(size=(classes, N)), draw.normal(size=classes)
    return Linear(torch.tensor(weight, dtype=torch.float32), torch.tensor(bias, dtype=torch.float32))


def curved(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(N, 30), nn.Tanh(), nn.Linear(30, 10)).eval()


def test_a_model_and_its_negation_point_opposite_ways():
    x, goal = images(6, SHAPE), Untargeted(torch.arange(6))
    both = {"model": network(curved()), "negation": network(Negated(curved()))}
    found = geometry.gradient_cosines(both, x, goal, geometry.label_logit)
    np.testing.assert_allclose(found.to_numpy(), [[1, -1], [-1, 1]], atol=1e-6)
    # of two classes, cross-entropy has no other way to go
    two = {name: network(module, 2) for name, module in (("a", linear(2)), ("b", Negated(linear(2))))}
    assert geometry.gradient_cosines(two, x, Untargeted(torch.zeros(6, dtype=torch.int64))).loc["a", "b"] == (
        pytest.approx(-1, abs=1e-6)
    )


def test_cosines_are_means_of_cosines():
    x, labels = images(5, SHAPE), torch.tensor([0, 1, 2, 3, 4])
    one, two = linear(seed=1), linear(seed=2)
    found = geometry.gradient_cosines(
        {"a": network(one), "b": network(two)}, x, Untargeted(labels), geometry.label_logit
    )
    first, second = (model.weight.detach().numpy()[labels] for model in (one, two))
    expected = ((first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)).mean()
    np.testing.assert_allclose(found.to_numpy(), [[1, expected], [expected, 1]], atol=1e-6)
    assert abs(expected) > 1e-3


def test_random_models_are_nearly_orthogonal_and_dead_gradients_have_no_angle():
    x, goal = images(40, SHAPE), Untargeted(torch.zeros(40, dtype=torch.int64))
    flat = Linear(torch.zeros(10, N), torch.arange(10.0))
    found = geometry.gradient_cosines({"a": network(curved(1)), "b": network(curved(2)), "c": network(flat)}, x, goal)
    assert abs(found.to_numpy()[0, 1]) < 0.4
    assert found["c"].isna().all()


def test_planes_have_orthogonal_directions_of_unit_rms():
    x, along = images(1, SHAPE)[0], torch.randn(SHAPE, generator=torch.Generator().manual_seed(0)) * 1e-25
    plane = geometry.Plane.through(x, along)
    for direction in (plane.along, plane.across):
        assert direction.square().mean().sqrt().item() == pytest.approx(1, abs=1e-5)
    assert (plane.along * plane.across).mean().item() == pytest.approx(0, abs=1e-6)
    moved = plane.points(torch.tensor([3.0]), torch.tensor([4.0]))[0] - x
    assert (moved * 255).square().mean().sqrt().item() == pytest.approx(5, rel=1e-4)
    other = geometry.Plane.through(x, along, seed=1)
    assert not torch.allclose(other.across, plane.across)
    with pytest.raises(BadRequest, match="not zero"):
        geometry.Plane.through(x, torch.zeros(SHAPE))


def test_decision_regions_of_a_linear_model_are_half_planes():
    model, x = linear(2, seed=3), images(1, SHAPE, seed=1)[0]
    plane = geometry.Plane.through(x, torch.randn(SHAPE, generator=torch.Generator().manual_seed(1)))
    weight, bias = model.weight.detach().double(), model.bias.detach().double()
    lead, offset = weight[0] - weight[1], bias[0] - bias[1]
    at_centre = float(lead @ x.double().flatten() + offset)
    slope_u, slope_v = (float(lead @ d.double().flatten()) / 255 for d in (plane.along, plane.across))
    reach = 3 * abs(at_centre) / np.hypot(slope_u, slope_v)
    found = geometry.regions({"m": network(model, 2)}, plane, 0, reach, 41)
    u, v = np.meshgrid(found.ticks, found.ticks)
    expected = at_centre + slope_u * u + slope_v * v
    clear = np.abs(expected) > 1e-4
    assert clear.mean() > 0.98
    assert ((found.labels["m"] == 0) == (expected > 0))[clear].all()
    np.testing.assert_allclose(found.margins["m"], expected, atol=1e-3)
    assert found.distinct() == {"m": 2}  # the line does cross the square
    assert found.share()["m"] == pytest.approx((expected > 0).mean(), abs=0.02)


def test_regions_count_labels_and_measure_reach():
    weight = torch.zeros(3, N)
    weight[1], weight[2] = 1.0, -1.0  # class 0 around the middle, 1 to the right, 2 to the left
    model = Linear(weight, torch.tensor([0.0, -N * (0.5 + 5 / 255), N * (0.5 - 10 / 255)]))
    plane = geometry.Plane.through(torch.full(SHAPE, 0.5), torch.ones(SHAPE))
    near = geometry.regions({"m": network(model, 3)}, plane, 0, 4.0, 41)
    far = geometry.regions({"m": network(model, 3)}, plane, 0, 20.0, 41)
    assert (near.distinct()["m"], far.distinct()["m"]) == (1, 3)
    left, right = far.reach_along("m")
    assert left == pytest.approx(10, abs=1)
    assert right == pytest.approx(5, abs=1)
    with pytest.raises(BadRequest):
        geometry.regions({"m": network(model, 3)}, plane, 0, -1.0)


def test_a_plane_can_be_held_inside_the_box():
    x = torch.full(SHAPE, 0.9)
    free, held = (geometry.Plane.through(x, torch.ones(SHAPE), in_box=inside) for inside in (False, True))
    far = torch.tensor([100.0])
    assert free.points(far, 0 * far).max() > 1
    assert held.points(far, 0 * far).max() == 1


def test_logits_of_a_linear_model_are_straight_along_a_ray():
    model, x = linear(), images(1, SHAPE)[0]
    bent = curved()
    direction = geometry.directions(network(model), x[None], Untargeted(torch.tensor([3])))[0]
    places = np.linspace(0, 40, 21).tolist()
    found = geometry.linearity(network(model), x, direction, 3, places)
    slope = model.weight.detach() @ direction.flatten() / 255
    expected = model(x[None])[0].detach().numpy() + np.outer(places, slope.numpy())
    np.testing.assert_allclose(found.logits, expected, atol=1e-3)
    assert found.straightness(40) == pytest.approx(1, abs=1e-6)
    assert geometry.linearity(network(bent), x, direction, 3, [p * 20 for p in places]).straightness(1e9) < 0.99
    assert found.top(4)[0] == 3
    assert len(set(found.top(4))) == 5


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([0, 0, 0, 0], []),
        ([1, 1, 1, 1], [(0, 3)]),
        ([0, 1, 0, 1], [(1, 1), (3, 3)]),
        ([1, 0, 1, 1], [(0, 0), (2, 3)]),
    ],
)
def test_intervals_are_runs(seen, expected):
    assert intervals([bool(s) for s in seen], range(4)) == expected
    with pytest.raises(BadRequest):
        intervals([True, False], [1.0, 0.5])


def test_adversarial_intervals_along_a_ray():
    class Stripes(nn.Module):
        """Says class 1 between 4 and 8 and from 12 on, in steps of 1/255 above grey."""

        def __init__(self):
            super().__init__()
            self.unused = nn.Parameter(torch.zeros(1))
            self.eval()

        def forward(self, x):
            far = (x.flatten(1).mean(1) - 0.5) * 255
            wrong = ((far > 4) & (far < 8)) | (far > 12)
            return torch.stack((~wrong, wrong), 1).float()

    x, ones = torch.full(SHAPE, 0.5), torch.ones(SHAPE)
    places = np.arange(0.5, 20, 1.0).tolist()
    found = geometry.adversarial_intervals(network(Stripes(), 2), x, ones, Untargeted(torch.tensor([0])), places)
    assert found == [(4.5, 7.5), (12.5, 19.5)]
    reverse = geometry.adversarial_intervals(network(Stripes(), 2), x, ones, Targeted(torch.tensor([0])), places)
    assert reverse == [(0.5, 3.5), (8.5, 11.5)]


def test_pictures_are_drawn(tmp_path):
    from robustassay.report.charts import planes

    dataset = data.load("cifar10-1k").take(1)
    nets = {name: network(models.load(name)) for name in ("vgg11-natural", "resnet20-natural")}
    x, label = dataset.images(slice(0, 1)), int(dataset.labels[0])
    goal = Untargeted(dataset.labels)
    direction = geometry.directions(nets["vgg11-natural"], x, goal)[0]
    plane = geometry.Plane.through(x[0], direction)
    zooms = {zoom: geometry.regions(nets, plane, label, reach, 9) for zoom, reach in (("in", 8.0), ("out", 80.0))}
    planes.draw_regions(zooms, tmp_path / "regions.png", dataset.classes)
    planes.draw_boundaries(zooms["out"], tmp_path / "boundaries.png")
    rays = {
        name: geometry.linearity(net, x[0], direction, label, np.linspace(0, 30, 7).tolist())
        for name, net in nets.items()
    }
    planes.draw_linearity(rays, tmp_path / "linearity.png", dataset.classes)
    for name in ("regions", "boundaries", "linearity"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    assert max(zooms["out"].distinct().values()) > 1
