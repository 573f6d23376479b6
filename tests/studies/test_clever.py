"""CLEVER against closed forms, its fit against scipy's, the whole against ART's."""

import numpy as np
import pytest
import torch
from scipy.optimize import fmin
from scipy.stats import mannwhitneyu, weibull_min
from torch import nn

from robustassay.analysis.weibull import fit_reverse_weibull
from robustassay.errors import BadRequest
from robustassay.studies.measures import clever
from robustassay.studies.measures.clever import Aim, Clever
from robustassay.target import LocalModel
from robustassay.threat import L0, L1, L2, LInf
from tests.support.toys import CPU, Linear, distances, images, names, targeted_distances, two_classes

SHAPE = (3, 6, 6)
N = 108


def network(module, classes):
    return LocalModel(module, classes, CPU, 64)


def curved(seed=0, classes=4):
    draw = np.random.default_rng(seed)
    net = nn.Sequential(nn.Flatten(), nn.Linear(N, 24), nn.Tanh(), nn.Linear(24, classes)).eval()
    for parameter in net.parameters():
        fan_in = parameter.shape[-1] if parameter.dim() > 1 else 100
        parameter.data = torch.tensor(3 * draw.normal(size=parameter.shape) / fan_in**0.5, dtype=torch.float32)
    return net


@pytest.mark.parametrize("norm", [LInf(0.3), L2(3.0), L1(30.0)], ids=lambda norm: norm.name)
def test_a_linear_model_gives_its_exact_distance(norm):
    draw = np.random.default_rng(1)
    model = Linear(torch.tensor(draw.normal(size=(5, N)), dtype=torch.float32), torch.zeros(5))
    x = images(6, SHAPE, low=0.45, high=0.55)
    labels = model(x).argmax(1)
    found = Clever(norm, batches=5, samples=4)(network(model, 5), x, names(6))
    exact = distances(model, x, labels, norm.name, box=False)
    assert (exact < norm.eps).all()
    untargeted = found[found["aim"] == "untargeted"]
    np.testing.assert_allclose(untargeted["estimate"], exact, rtol=0.01)
    assert not untargeted["capped"].any()
    assert (untargeted["target"].to_numpy() != labels.numpy()).all()
    # each aim has its own distance, none of which is smaller than the nearest
    by_aim = found.pivot(index="sample_id", columns="aim", values="estimate")
    assert (by_aim["untargeted"] <= by_aim.min(axis=1) * (1 + 1e-9)).all()
    assert by_aim["least-likely"].gt(by_aim["runner-up"]).any()
    logits = model(x).detach()
    least = found[found["aim"] == "least-likely"]["target"].to_numpy()
    assert (least == logits.argmin(1).numpy()).all()
    second = found[found["aim"] == "runner-up"]["target"].to_numpy()
    assert (second == logits.topk(2, 1).indices[:, 1].numpy()).all()


def test_a_targeted_estimate_of_two_classes_is_exact_and_capped_by_the_ball():
    model, x = two_classes(N, margin=2.0, dead=1), images(4, SHAPE, low=0.49, high=0.51)
    labels = model(x).argmax(1)
    exact = targeted_distances(model, x, 1 - labels, "L2", box=False)
    aims: tuple[Aim, ...] = ("runner-up",)
    wide = Clever(L2(2 * exact.max()), 4, 2, aims)(network(model, 3), x, names(4))
    np.testing.assert_allclose(wide["estimate"], exact, rtol=0.01)
    narrow = Clever(L2(exact.min() / 2), 4, 2, aims)(network(model, 3), x, names(4))
    assert narrow["capped"].all()
    np.testing.assert_allclose(narrow["estimate"], exact.min() / 2)


def penalised(function, start, args=(), **_):
    """Minimise as the program of CLEVER's authors does: with a penalty on the scale."""
    return fmin(
        lambda at, values: function(at, values) + 0.01 * at[2] ** 2, start, args, 1e-9, 1e-9, 9000, 9000, disp=0
    )


@pytest.mark.parametrize("shape", [1.5, 3.0, 6.0])
@pytest.mark.parametrize("size", [50, 400])
def test_the_fit_is_that_of_the_authors(shape, size):
    maxima = 7 - weibull_min.rvs(shape, 0, 0.5, size=size, random_state=np.random.default_rng(size))
    ours = fit_reverse_weibull(maxima)
    span = np.ptp(maxima)
    theirs = weibull_min.fit((maxima.max() - maxima) / span, shape, optimizer=penalised)  # from the truth
    assert not ours.fell_back
    assert ours.end == pytest.approx(maxima.max() - span * theirs[1], rel=1e-4)
    assert ours.shape == pytest.approx(theirs[0], rel=1e-2)
    assert ours.scale == pytest.approx(span * theirs[2], rel=1e-2)
    assert ours.end > maxima.max()
    assert ours.p_value > 0.05


def test_maxima_that_look_endless_have_a_fit():
    draw = np.random.default_rng(0)
    fits = [fit_reverse_weibull(10 + draw.gumbel(size=50)) for _ in range(40)]
    assert not any(fit.fell_back for fit in fits)
    assert max(fit.shape for fit in fits) > 20  # the penalty sets the end, and tables say so


def test_the_fit_finds_the_end_and_scales_with_its_values():
    maxima = 7 - weibull_min.rvs(3, 0, 0.5, size=4000, random_state=np.random.default_rng(0))
    fit = fit_reverse_weibull(maxima)
    assert fit.end == pytest.approx(7, rel=0.01)
    assert fit.shape == pytest.approx(3, rel=0.1)
    assert fit_reverse_weibull(1e-6 * maxima).end == pytest.approx(1e-6 * fit.end, rel=1e-6)


@pytest.mark.parametrize(
    ("maxima", "why"),
    [
        (np.full(20, 3.0), "equal"),
        (np.r_[np.full(50, 1.0), np.linspace(5, 9, 50)], "no peak|poor"),  # two heaps
        (np.random.default_rng(5).pareto(1, size=400), "poor"),  # the tail has no end
    ],
)
def test_the_largest_value_stands_in_where_nothing_fits(maxima, why):
    import re

    fit = fit_reverse_weibull(maxima)
    assert fit.fell_back
    assert re.search(why, fit.fallback)
    assert fit.end == maxima.max()
    with pytest.raises(BadRequest):
        fit_reverse_weibull([1.0, np.nan])


def test_maxima_do_not_depend_on_how_points_are_packed_and_ids_name_the_streams(monkeypatch):
    net, x = network(curved(), 4), images(3, SHAPE)
    asked = Clever(L2(1.0), 6, 7)
    whole = asked(net, x, names(3))
    monkeypatch.setattr(clever, "POINTS_PER_QUERY", {"cpu": 10})
    assert np.allclose(asked(net, x, names(3))["estimate"], whole["estimate"], rtol=1e-5)
    alone = asked(net, x[2:], names(3)[2:]).reset_index(drop=True)
    np.testing.assert_allclose(alone["estimate"], whole["estimate"][8:], rtol=1e-5)
    one_aim = Clever(L2(1.0), 6, 7, aims=("random",))(net, x, names(3))  # one gradient instead of a Jacobian
    np.testing.assert_allclose(one_aim["estimate"], whole[whole["aim"] == "random"]["estimate"], rtol=1e-5)
    other = Clever(L2(1.0), 6, 7, seed=1)(net, x, names(3))
    assert not np.allclose(other["steepest"], whole["steepest"], rtol=1e-5)


def test_slopes_of_a_curved_model_are_maxima_over_the_ball():
    net, x = curved(), images(2, SHAPE)
    found = Clever(L2(0.5), 8, 16, aims=("untargeted",))(network(net, 4), x, names(2))
    assert (found["slope"] >= found["steepest"]).all()
    assert (found["steepest"] > 0).all()
    row = found.iloc[0]
    point = x[:1].clone().requires_grad_()
    logits = net(point)
    lead = logits[0, int(row["label"])] - logits[0, int(row["target"])]
    at_centre = torch.autograd.grad(lead, point)[0].norm()
    assert row["steepest"] > 0.9 * float(at_centre)
    assert row["margin"] == pytest.approx(float(lead.detach()), rel=1e-5)


class Peer:
    """What ART asks of a classifier, with gradients by the batch: its own takes them one by one."""

    clip_values = (0.0, 1.0)

    def __init__(self, module):
        self.module = module

    def predict(self, x):
        with torch.no_grad():
            return self.module(torch.tensor(x)).numpy()

    def class_gradient(self, x, label):
        points = torch.tensor(x, requires_grad=True)
        (slopes,) = torch.autograd.grad(self.module(points)[:, label].sum(), points)
        return slopes.numpy()[:, None]


@pytest.mark.oracle
@pytest.mark.parametrize(("norm", "order"), [(L2(2.0), 2), (LInf(0.3), np.inf), (L1(20.0), 1)])
def test_agrees_with_art_within_sampling_error(norm, order):
    from tests.attacks.test_oracles import _absent_packages_stubbed

    with _absent_packages_stubbed():
        from art.metrics import clever_t

    net, x, runs = curved(3), images(1, SHAPE, seed=2, low=0.4, high=0.6), 12
    asked = Clever(norm, 60, 20, ("least-likely",))
    ours = asked(network(net, 4), x.expand(runs, *SHAPE), names(runs))  # one image under many names: as many draws
    np.random.seed(0)
    # started at its default shape of 1, ART's search ends at once, at a shape below 1 and the largest value seen
    start = {"c_init": 5.0, "pool_factor": 60}
    target = int(ours["target"][0])
    theirs = [clever_t(Peer(net), x[0].numpy(), target, 60, 20, norm.eps, order, **start) for _ in range(runs)]
    assert not ours["capped"].any()
    assert mannwhitneyu(ours["estimate"], theirs).pvalue > 0.01
    assert ours["estimate"].median() == pytest.approx(np.median(theirs), rel=0.1)


def test_what_cannot_be_meant_is_refused():
    with pytest.raises(BadRequest, match="L0"):
        Clever(L0(3))
    with pytest.raises(BadRequest, match="batches"):
        Clever(L2(1.0), batches=1)
