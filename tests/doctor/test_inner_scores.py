"""Scores inside a model: found wherever they are, and attacked in place of the logits."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay import data
from robustassay.doctor import Diagnosis
from robustassay.doctor.candidates import build_candidates
from robustassay.doctor.cross_checks import WhiteBox, inner_layers
from robustassay.doctor.function_trace import FunctionCall
from robustassay.doctor.gradient_fixes import FixedGradients, FunctionOutput, StraightThrough
from robustassay.doctor.probe_set import ProbeSet
from robustassay.doctor.score_view import ScoreView, score_views
from robustassay.doctor.taps import taps_to_attack
from robustassay.errors import ModelFailed
from robustassay.target import LocalModel
from robustassay.threat import LInf
from tests.support.toys import CPU, two_classes

EPS = 8 / 255
FINE = Diagnosis("m", "t", 6, (), {}, 0.0)


def _slope(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The gradient of the first logit."""
    image = x.clone().requires_grad_()
    return torch.autograd.grad(function(image)[:, 0].sum(), image)[0]


class Hidden(nn.Module):
    """Clamped scores times a smooth function of the image; the network is no registered layer."""

    def __init__(self, net: nn.Module, functional: bool) -> None:
        super().__init__()
        self.net, self.weights = (net,), dict(net.state_dict()) if functional else {}
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        scores = torch.func.functional_call(self.net[0], self.weights, (x,)) if self.weights else self.net[0](x)
        logits: Tensor = scores.clamp(-1, 1) * (2 + torch.sin(50 * x.mean((1, 2, 3))))[:, None]
        return logits


@pytest.mark.parametrize("functional", [False, True])
def test_the_scores_of_a_hidden_network_are_found_and_attacked(functional):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)).eval()
    model = Hidden(net, functional)
    x = data.load("cifar10-1k").images(slice(0, 4))
    probes = ProbeSet.of(LocalModel(model, 10, CPU), list("abcd"), x, model(x).argmax(1), LInf(EPS))
    others = {str(tap.name): tap.output for tap in taps_to_attack(probes.target, probes.x0)}
    truth = _slope(net, x)
    for fixes in ([others["linear 1"]], [others["linear 1"], StraightThrough(soft=True)]):
        found = _slope(FixedGradients(model, fixes).differentiable, x)
        assert torch.allclose(found, truth, rtol=1e-4, atol=1e-7)
    assert "logits-tap-linear-1" in {one.name for one in build_candidates(probes, FINE)}


@pytest.mark.parametrize(
    ("shape", "places"),
    [
        ((8, 3), 1),
        ((3, 8), 1),
        ((8, 3, 2), 2),
        ((2, 8, 3), 2),
        ((1, 3, 8), 1),
        ((8, 3, 4, 4), 0),
        ((8, 5), 0),
        ((3,), 0),
    ],
)
def test_scores_are_read_in_any_order_of_axes(shape, places):
    views = [view for view in score_views(shape, 8, 3) if view.place is not None]
    assert len(views) == places
    tensor = torch.arange(float(torch.Size(shape).numel())).view(shape)
    read = [view.of(tensor) for view in views]
    assert all(scores.shape == (8, 3) for scores in read)
    found = sorted(value for scores in read for value in scores.flatten().tolist())
    assert found == tensor.flatten()[: 24 * places].tolist()
    sums = [view.of(tensor) for view in score_views(shape, 8, 3) if view.place is None]
    assert len(sums) == (places > 1)
    assert all(torch.equal(total, torch.stack(read).sum(0)) for total in sums)


def test_scores_are_read_of_few_images_as_of_many():
    (view,) = score_views((4, 8, 1), 8, 4)
    assert torch.equal(view.of(torch.eye(4)[:, :, None]), torch.eye(4))
    assert torch.equal(
        view.of(torch.tensor([[[1.0]], [[2.0]], [[3.0]], [[4.0]]])), torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    )


class SecondPath(nn.Module):
    """The scores of two networks in one table, of which the larger counts; the second is far below the first."""

    def __init__(self, seen: nn.Module, hidden: nn.Module) -> None:
        super().__init__()
        self.seen, self.hidden = seen, hidden
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.hidden(x).view(-1, 10, 2).sum(-1, keepdim=True)
        table = torch.cat((self.seen(x)[..., None], 9 * hidden - 20), -1)
        logits: Tensor = table.logsumexp(-1)
        return logits


def test_scores_in_a_table_are_found():
    torch.manual_seed(0)
    seen, hidden = (nn.Sequential(nn.Flatten(), nn.Linear(3072, count)).eval() for count in (10, 20))
    x = data.load("cifar10-1k").images(slice(0, 4))
    model = SecondPath(seen, hidden)
    others = [tap.output for tap in taps_to_attack(LocalModel(model, 10, CPU), x)]
    truth = _slope(lambda image: hidden(image).view(-1, 10, 2).sum(-1), x)
    slopes = [_slope(FixedGradients(model, [other]).differentiable, x) for other in others]
    assert any(torch.allclose(slope, factor * truth, atol=1e-6) for slope in slopes for factor in (1, 9))


class CosineHead(nn.Module):
    """Compares features with weights that have as many columns as four times four images."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.features, self.weight = nn.Sequential(nn.Flatten(), nn.Linear(12, 16)), nn.Parameter(torch.randn(5, 16))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(self.features(x)) @ F.normalize(self.weight).T


def test_weights_are_not_taken_for_scores():
    x = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    assert taps_to_attack(LocalModel(CosineHead(), 5, CPU), x) == []


class Scaled(nn.Module):
    """Two logits, each image's at a scale of its own or all at one, and shifted."""

    def __init__(self, own_scale: bool) -> None:
        super().__init__()
        self.net, self.own_scale = nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), own_scale
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.net(x)
        return z / (z.diff(dim=1).abs() if self.own_scale else 7) + 3


@pytest.mark.parametrize("own_scale", [True, False])
def test_a_scale_of_each_image_makes_another_objective_and_one_scale_does_not(own_scale):
    x = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    others = taps_to_attack(LocalModel(Scaled(own_scale), 2, CPU), x)
    assert bool(others) is own_scale


class Stacked(nn.Module):
    """Three members in one call of vmap; inside of it, tensors seem to have the shape of the logits."""

    def __init__(self, traceable: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weights, self.traceable = nn.Parameter(torch.randn(3, 2, 12)), traceable
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        if not self.traceable and torch._C._is_torch_function_mode_enabled():
            raise ValueError("no tracing")
        members: Tensor = torch.vmap(lambda weight: F.linear(x.flatten(1), weight))(self.weights)
        return members.mean(0)


@pytest.mark.parametrize("traceable", [True, False])
def test_a_model_that_cannot_be_traced_is_not_examined_and_ends_no_diagnosis(traceable):
    x = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    model = Stacked(traceable)
    probes = ProbeSet.of(LocalModel(model, 2, CPU), list("abcd"), x, model(x).argmax(1), LInf(EPS))
    assert [one.name for one in build_candidates(probes, FINE) if one.name.startswith("logits")] == []
    found = inner_layers(WhiteBox(probes, probes.clean.double()))
    assert bool(found.unexamined) is not traceable


def test_a_call_that_other_images_do_not_reach_is_a_failure_of_the_model():
    model = two_classes(4)
    fixed = FixedGradients(model, [FunctionOutput(FunctionCall("linear", 2), ScoreView())])
    with pytest.raises(ModelFailed, match="another way"):
        fixed.differentiable(torch.full((1, 1, 2, 2), 0.5))
