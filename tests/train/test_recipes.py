"""The robust recipes: each formula against a second computation, and each recipe on real images."""

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from robustassay.certification.interval_bounds import Interval, ReluBounds, is_certified, margin_bounds
from robustassay.data import load
from robustassay.errors import BadModel, BadRequest, ModelFailed
from robustassay.models import zoo
from robustassay.models.architectures import architecture
from robustassay.models.architectures.convnet import ConvNet
from robustassay.models.architectures.layers import Normalise
from robustassay.models.architectures.resnet import ResNet
from robustassay.models.architectures.resnet_ensemble import MeanOfProbabilities, ResNetEnsemble
from robustassay.models.architectures.rse import Noise, RandomSelfEnsemble
from robustassay.models.architectures.vgg import VGG
from robustassay.registry import create, registered
from robustassay.train import TrainingData, train
from robustassay.train.adp import ADP, entropy, log_determinant, log_diversity
from robustassay.train.alp import LogitPairing
from robustassay.train.deepdefense import DeepDefense, linearised_distance
from robustassay.train.ensemble_adversarial import EnsembleAdversarial, fgsm
from robustassay.train.gaussian import GaussianNoiseTraining
from robustassay.train.ibp import BoundTraining
from robustassay.train.measure import clean_accuracy
from robustassay.train.pgd_l2 import PGDL2Training
from robustassay.train.recipe import Recipe
from robustassay.train.rse import SelfEnsembleTraining
from robustassay.train.trades import TRADES, divergence
from robustassay.train.trainer import Trainer

HALFWAY = torch.tensor(0.5)
TINY = ResNet(depth=8)


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(autouse=True)
def same_weights() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.fixture(scope="module")
def two_classes() -> TrainingData:
    """Real images of aeroplanes and frogs, which even a tiny network tells apart within an epoch."""
    sample = load("cifar10-1k")
    chosen = [row for row, label in enumerate(sample.labels.tolist()) if label in (0, 6)][:190]
    x = (sample.images(chosen) * 255).round().byte()
    y = (sample.labels[torch.tensor(chosen)] == 6).long()
    return TrainingData(x[:150], y[:150], x[150:], y[150:], "cifar10-pair", "part of the embedded sample")


@pytest.fixture(scope="module")
def smaller(two_classes: TrainingData) -> TrainingData:
    """The same images at half their size, for the recipes that take many steps."""
    return replace(two_classes, x_train=two_classes.x_train[..., ::2, ::2], x_test=two_classes.x_test[..., ::2, ::2])


class Linear(nn.Sequential):
    """Logits that are linear in the pixels, so that every distance has a formula."""

    def __init__(self, pixels: int = 12, classes: int = 4) -> None:
        super().__init__(nn.Flatten(), nn.Linear(pixels, classes))
        self.double()


# Recipe, architecture and epochs that take a second or two.
LEARNING: list[tuple[Recipe, Any, int]] = [
    (PGDL2Training(batch=25, steps=2, eps=0.1, step=0.05), TINY, 3),
    (TRADES(batch=25, steps=2, eps=2 / 255, beta=1), TINY, 3),
    (LogitPairing(batch=25, steps=2, eps=2 / 255), TINY, 3),
    (EnsembleAdversarial(batch=25, eps=2 / 255, sources="resnet20-natural"), TINY, 3),
    (ADP(batch=25), ResNetEnsemble(members=2, depth=8), 3),
    (SelfEnsembleTraining(batch=25), RandomSelfEnsemble(depth=11, width=4, passes=2), 6),
    (DeepDefense(batch=25, weight=1, rate=0.05, rivals=1), TINY, 3),
    (BoundTraining(batch=25, eps=0.5 / 255, rate=0.1), ConvNet(width=2, hidden=8), 5),
    (GaussianNoiseTraining(batch=25, sigma=0.1), TINY, 3),
]


@pytest.mark.parametrize(("recipe", "shape", "epochs"), LEARNING, ids=lambda value: type(value).__name__)
def test_every_recipe_learns_from_real_images(tmp_path, two_classes, smaller, recipe, shape, epochs):
    data = two_classes if isinstance(shape, ConvNet) else smaller
    seen: list[float] = []
    card = train(
        recipe,
        shape,
        data,
        tmp_path,
        "tiny",
        epochs=epochs,
        on_epoch=lambda done: seen.append(done.loss),
    )
    assert card.clean_accuracy >= 0.7  # chance is about 0.5
    assert zoo.card("tiny", folder=tmp_path) == card
    shipped = zoo.load("tiny", folder=tmp_path)
    assert clean_accuracy(shipped, data.x_test, data.y_test) == card.clean_accuracy
    assert create("recipe", card.command.split()[2]) == recipe
    if not isinstance(recipe, BoundTraining):  # whose task grows harder
        assert seen[-1] < seen[0]


def test_every_recipe_is_held_to_learn():
    tried = {type(recipe) for recipe, _, _ in LEARNING}
    assert tried == {*registered("recipe").values()} - {registered("recipe")[name] for name in ("natural", "pgd")}


class TestTRADES:
    def test_divergence_is_the_sum_over_classes(self):
        p, q = torch.randn(5, 3).double(), torch.randn(5, 3).double()
        ps, qs = (np.exp(logits.numpy()) for logits in (p, q))
        ps, qs = ps / ps.sum(1, keepdims=True), qs / qs.sum(1, keepdims=True)
        assert float(divergence(p, q, "batchmean")) == pytest.approx((ps * np.log(ps / qs)).sum() / 5)

    def test_loss_is_cross_entropy_and_beta_times_divergence(self):
        network, x, y = TINY.build(3), torch.rand(6, 3, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2])
        recipe = TRADES(beta=6, steps=2)
        network.eval()  # so that the passes below do not move its statistics
        x_adv = recipe.attack(network, x, stream())
        p, q = network(x).softmax(1), network(x_adv).softmax(1)
        expected = -p[range(6), y].log().mean() + 6 * (p * (p / q).log()).sum(1).mean()
        torch.testing.assert_close(recipe.loss(network, x, y, stream(), HALFWAY), expected)

    def test_attack_stays_in_the_ball_and_raises_the_divergence(self):
        network, x0 = TINY.build(3).eval(), torch.rand(4, 3, 8, 8)
        x = TRADES(eps=0.1, step=0.03, steps=8).attack(network, x0, stream())
        assert (x - x0).abs().max() <= 0.1 + 1e-6
        assert 0 <= x.min() <= x.max() <= 1
        noise = (x0 + 0.1 * torch.randn(x0.shape, generator=stream(1)).sign()).clamp(0, 1)
        assert divergence(network(x0), network(x), "sum") > 2 * divergence(network(x0), network(noise), "sum")


class TestLogitPairing:
    def test_pairing_adds_the_mean_squared_difference(self):
        network, x, y = TINY.build(3).eval(), torch.rand(6, 3, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2])
        with_none, with_some = (
            LogitPairing(pairing=pairing, steps=1).loss(network, x, y, stream(), HALFWAY) for pairing in (0, 2)
        )
        eps, step = LogitPairing().eps, LogitPairing().step
        start = (x + torch.empty_like(x).uniform_(-eps, eps, generator=stream())).clamp(0, 1).requires_grad_()
        (uphill,) = torch.autograd.grad(F.cross_entropy(network(start), y), start)
        x_adv = (start + step * uphill.sign()).clamp(x - eps, x + eps).clamp(0, 1).detach()
        clean, attacked = network(x), network(x_adv)
        torch.testing.assert_close(with_some - with_none, 2 * (clean - attacked).square().mean())
        torch.testing.assert_close(with_none, F.cross_entropy(torch.cat([clean, attacked]), y.repeat(2)))


class TestADP:
    def test_log_determinant_is_numpys(self):
        sides = torch.randn(7, 4, 6).double()
        gram = sides @ sides.mT
        expected = np.linalg.slogdet(gram.numpy())[1]
        np.testing.assert_allclose(log_determinant(gram).numpy(), expected, rtol=1e-9)

    def test_diversity_is_the_volume_of_the_wrong_probabilities(self):
        votes, y = torch.randn(3, 5, 6).double(), torch.tensor([0, 5, 2, 2, 4])
        for image in range(5):
            probabilities = votes[:, image].softmax(1).numpy()
            sides = np.delete(probabilities, y[image], axis=1)
            sides /= np.linalg.norm(sides, axis=1, keepdims=True)
            expected = np.log(np.linalg.det(sides @ sides.T + 1e-6 * np.eye(3)))
            assert float(log_diversity(votes, y)[image]) == pytest.approx(expected)

    def test_members_that_agree_have_the_least_diversity(self):
        same = torch.randn(1, 5, 6).expand(3, 5, 6)
        assert (log_diversity(same, torch.zeros(5, dtype=torch.int64)) < -20).all()

    def test_loss_is_that_of_the_paper(self):
        network, x, y = ResNetEnsemble(depth=8).build(4).eval(), torch.rand(6, 3, 8, 8), torch.arange(6) % 4
        assert isinstance(network, MeanOfProbabilities)
        votes = network.votes(x)
        mean = votes.softmax(-1).mean(0)
        expected = sum(F.cross_entropy(logits, y) for logits in votes)
        expected = expected + 2 * (mean * mean.log()).sum(1).mean() - 0.5 * log_diversity(votes, y).mean()
        torch.testing.assert_close(ADP().loss(network, x, y, stream(), HALFWAY), expected)
        torch.testing.assert_close(network(x), mean.log())
        assert entropy(torch.full((1, 4), 0.25).log()).item() == pytest.approx(np.log(4))

    def test_a_single_network_is_refused(self):
        with pytest.raises(BadRequest, match="resnet-ensemble"):
            ADP().loss(TINY.build(2), torch.rand(2, 3, 8, 8), torch.tensor([0, 1]), stream(), HALFWAY)


class TestEnsembleAdversarial:
    def test_step_goes_away_from_what_a_linear_network_says(self):
        network, x0 = Linear(classes=2), torch.full((3, 3, 2, 2), 0.5).double()
        said = network(x0).argmax(1)
        weight = network.get_parameter("1.weight")
        away = (weight[1 - said] - weight[said]).sign().view(3, 3, 2, 2)
        torch.testing.assert_close(fgsm(network, x0, 0.1), x0 + 0.1 * away)

    def test_each_source_attacks_its_part_of_the_batch(self):
        network, x = TINY.build(10).train(), torch.rand(6, 3, 8, 8)
        seen: list[torch.Tensor] = []
        network.register_forward_hook(lambda module, args, out: seen.append(args[0].detach()))
        recipe = EnsembleAdversarial()
        recipe.loss(network, x, torch.arange(6), stream(), HALFWAY)
        attacked = seen[-1]
        assert len(seen[0]) == 2  # its own third
        for part, name in ((slice(2, 4), "resnet20-natural"), (slice(4, 6), "resnet56-natural")):
            torch.testing.assert_close(attacked[part], fgsm(zoo.load(name), x[part], recipe.eps))
        assert network.training


class TestDeepDefense:
    def test_distance_of_a_linear_network_is_exact(self):
        network, x, y = Linear(), torch.rand(9, 3, 2, 2).double().requires_grad_(), torch.arange(9) % 4
        logits, weight = network(x), network.get_parameter("1.weight")
        for image in range(9):
            own, others = int(y[image]), [k for k in range(4) if k != y[image]]
            margins = torch.stack([logits[image, own] - logits[image, k] for k in others])
            widths = torch.stack([(weight[own] - weight[k]).norm() for k in others])
            expected = (margins / widths).min()
            found = linearised_distance(logits, x, y, rivals=3)[image]
            torch.testing.assert_close(found, expected)

    def test_a_step_of_that_length_reaches_the_boundary(self):
        network, x, y = Linear(classes=2), torch.rand(5, 3, 2, 2).double().requires_grad_(), torch.arange(5) % 2
        weight = network.get_parameter("1.weight")
        distance = linearised_distance(network(x), x, y, rivals=1)
        towards = F.normalize(weight[1 - y] - weight[y]).view_as(x)
        logits = network(x + distance.view(-1, 1, 1, 1) * towards)
        torch.testing.assert_close(logits[:, 0], logits[:, 1])

    def test_loss_adds_the_penalty_of_the_ratio(self):
        network, x, y = Linear(), torch.rand(8, 3, 2, 2).double(), torch.arange(8) % 4
        recipe = DeepDefense(weight=2, reward=3, blame=7, rivals=3)
        ratio = linearised_distance(network(z := x.clone().requires_grad_()), z, y, 3) / x.flatten(1).norm(dim=1)
        penalty = sum(float(np.exp(-(3 if t >= 0 else 7) * t)) for t in ratio.tolist()) / 8
        expected = F.cross_entropy(network(x), y).item() + 2 * penalty
        assert recipe.loss(network, x, y, stream(), HALFWAY).item() == pytest.approx(expected)
        assert {bool(t > 0) for t in ratio} == {True, False}


class TestNoise:
    def test_gaussian_noise_has_its_deviation(self):
        seen: list[torch.Tensor] = []
        network = Linear().float()
        network.register_forward_hook(lambda module, args, out: seen.append(args[0]))
        x = torch.full((500, 3, 2, 2), 0.5)
        GaussianNoiseTraining(sigma=0.25).loss(network, x, torch.zeros(500, dtype=torch.int64), stream(), HALFWAY)
        assert float((seen[0] - x).std()) == pytest.approx(0.25, rel=0.05)
        assert abs(float((seen[0] - x).mean())) < 0.02

    def test_noise_stands_before_every_convolution_and_is_larger_at_the_input(self):
        noisy = RandomSelfEnsemble(depth=11, width=2)
        layers = [*noisy.build(4).get_submodule("body").children()]
        before = [layers[i - 1] for i, layer in enumerate(layers) if isinstance(layer, nn.Conv2d)]
        assert [layer.deviation for layer in before if isinstance(layer, Noise)] == [0.2] + [0.1] * 7
        quiet = [p.shape for p in VGG(11, 2).build(4).parameters()]
        assert [p.shape for p in noisy.build(4).parameters()] == quiet

    def test_test_time_answers_are_means_over_fresh_draws(self):
        x = torch.rand(4, 3, 32, 32)
        network = RandomSelfEnsemble(depth=11, width=4, passes=3).build(4).eval()
        answers = network(x)
        torch.testing.assert_close(answers.exp().sum(1), torch.ones(4))
        assert not torch.equal(network(x), answers)
        torch.manual_seed(7)
        answers = network(x)
        torch.manual_seed(7)
        body = network.get_submodule("body")
        passes = torch.stack([body(x).softmax(1) for _ in range(3)])
        torch.testing.assert_close(answers, passes.mean(0).log())
        silent = RandomSelfEnsemble(depth=11, width=4, noise=0, noise_in=0).build(4).eval()
        assert torch.equal(silent(x), silent(x))

    def test_training_draws_from_the_recipes_stream_alone(self):
        network = RandomSelfEnsemble(depth=11, width=4).build(4)
        x, y = torch.rand(4, 3, 32, 32), torch.arange(4)
        before = torch.random.get_rng_state()
        losses = [SelfEnsembleTraining().loss(network, x, y, stream(seed), HALFWAY).item() for seed in (0, 0, 1)]
        assert losses[0] == losses[1] != losses[2]
        assert torch.equal(torch.random.get_rng_state(), before)

    def test_a_network_without_noise_is_refused(self):
        with pytest.raises(BadRequest, match="rse"):
            SelfEnsembleTraining().loss(TINY.build(2), torch.rand(2, 3, 8, 8), torch.tensor([0, 1]), stream(), HALFWAY)


def chain(training: bool = False) -> nn.Sequential:
    """Every kind of layer that bounds know, in float64, with statistics that are not the initial ones."""
    network = nn.Sequential(
        Normalise(),
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 3, 3, stride=2, padding=1),
        nn.Flatten(),
        nn.Linear(12, 8),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Linear(8, 4),
    ).double()
    for _ in range(3):
        network(torch.rand(20, 3, 8, 8).double())
    for layer in network:
        if isinstance(layer, nn.BatchNorm2d | nn.BatchNorm1d):
            nn.init.normal_(layer.weight)
            nn.init.normal_(layer.bias)
    return network.train(training)


class TestBounds:
    def test_no_point_of_the_box_beats_them(self):
        network, x, y = chain(), torch.rand(6, 3, 8, 8).double(), torch.arange(6) % 4
        eps = 0.03
        _, margins = margin_bounds(network, x, y, eps)
        worst = torch.full_like(margins, torch.inf)
        for rival in range(4):
            point = (x + eps * (2 * torch.rand_like(x) - 1)).clamp(0, 1)
            for _ in range(25):  # corners found by gradients come far closer to the bounds than chance does
                point.requires_grad_()
                logits = network(point)
                lead = logits.gather(1, y[:, None])[:, 0] - logits[:, rival]
                worst[:, rival] = torch.minimum(worst[:, rival], lead.detach())
                (slope,) = torch.autograd.grad(lead.sum(), point)
                point = (point.detach() - 0.01 * slope.sign()).clamp(x - eps, x + eps).clamp(0, 1)
        assert (worst >= margins - 1e-9).all()
        clean = network(x)
        clean_leads = clean.gather(1, y[:, None]) - clean
        gap, attacked = (clean_leads - margins).max(), (clean_leads - worst).max()
        assert attacked < gap < 20 * attacked  # sound but not empty

    def test_are_exact_on_a_linear_network(self):
        network = nn.Sequential(nn.Flatten(), nn.Linear(12, 4)).double()
        x, y = torch.rand(5, 3, 2, 2).double(), torch.arange(5) % 4
        logits, margins = margin_bounds(network, x, y, 0.1)
        weight = network.get_parameter("1.weight")
        lowest, highest = (x - 0.1).clamp(min=0).flatten(1), (x + 0.1).clamp(max=1).flatten(1)
        for image in range(5):
            for rival in range(4):
                slope = weight[y[image]] - weight[rival]
                corner = torch.where(slope > 0, lowest[image], highest[image]).view(1, 3, 2, 2)
                exact = network(corner)[0, y[image]] - network(corner)[0, rival]
                torch.testing.assert_close(margins[image, rival], exact)
        torch.testing.assert_close(logits, network(x))

    def test_at_radius_zero_are_the_network_itself(self):
        network, x, y = chain(), torch.rand(6, 3, 8, 8).double(), torch.arange(6) % 4
        logits, margins = margin_bounds(network, x, y, 0.0)
        torch.testing.assert_close(logits, network(x))
        torch.testing.assert_close(margins, logits.gather(1, y[:, None]) - logits)

    def test_in_training_batch_norms_look_at_the_images(self):
        network, x, y = chain(training=True), torch.rand(6, 3, 8, 8).double(), torch.arange(6) % 4
        counted = int(network.get_buffer("2.num_batches_tracked"))
        logits, margins = margin_bounds(network, x, y, 0.0)
        torch.testing.assert_close(margins, logits.gather(1, y[:, None]) - logits)
        assert int(network.get_buffer("2.num_batches_tracked")) == counted + 1
        torch.testing.assert_close(logits, network(x))
        assert not torch.allclose(logits, network.eval()(x))

    @pytest.mark.parametrize("sign", [1.0, -1.0])
    def test_lines_around_a_relu_hold_on_all_of_it(self, sign):
        lower, upper = torch.tensor([[-2.0, -1, -3, 1, -1e-3]]).double(), torch.tensor([[1.0, 2, -1, 2, 0]]).double()
        step = ReluBounds(Interval((lower + upper) / 2, (upper - lower) / 2))
        slopes, _ = step.backward(torch.full((1, 1, 5), sign).double())
        for share in np.linspace(0, 1, 21):
            z = lower + share * (upper - lower)
            for unit in range(5):
                one = torch.zeros(1, 1, 5).double()
                one[..., unit] = sign
                line, shift = step.backward(one)
                assert float((line[0, 0] * z).sum() + shift) <= sign * float(z[0, unit].clamp(min=0)) + 1e-12
        assert slopes[0, 0, 3] == sign  # a unit that is always on
        assert slopes[0, 0, 2] == 0  # and one that never is

    def test_certificates_need_float64_and_a_right_answer(self):
        network, x = chain(), torch.rand(6, 3, 8, 8).double()
        right = network(x).argmax(1)
        assert is_certified(network, x, right, 0.0).all()
        assert not is_certified(network, x, (right + 1) % 4, 0.0).any()
        assert not is_certified(network, x, right, 1.0).any()
        with pytest.raises(BadModel, match="float64"):
            is_certified(network.float(), x.float(), right, 0.0)

    def test_other_networks_are_refused(self):
        x, y = torch.rand(2, 3, 8, 8), torch.tensor([0, 1])
        with pytest.raises(BadModel, match="MaxPool2d"):
            margin_bounds(nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(48, 2)), x, y, 0.1)
        with pytest.raises(BadModel, match="convnet"):
            margin_bounds(nn.Sequential(nn.Flatten()), x, y, 0.1)


class TestBoundTraining:
    def test_radius_and_weight_grow_with_progress(self):
        network, x, y = chain().float(), torch.rand(6, 3, 8, 8), torch.arange(6) % 4
        recipe = BoundTraining(eps=0.02, ramp_from=0.2, ramp_to=0.6, bend=2, natural=0.25)
        clean = F.cross_entropy(network(x), y)
        torch.testing.assert_close(recipe.loss(network, x, y, stream(), torch.tensor(0.1)), clean)
        for progress, eps, share in ((0.4, 0.005, 0.375), (0.9, 0.02, 0.75)):
            _, margins = margin_bounds(network, x, y, eps)
            expected = (1 - share) * clean + share * torch.logsumexp(-margins, 1).mean()
            torch.testing.assert_close(recipe.loss(network, x, y, stream(), torch.tensor(progress)), expected)

    def test_card_has_a_certified_accuracy_below_the_attacked_one(self, two_classes):
        recipe = BoundTraining(batch=25, eps=0.5 / 255, rate=0.1)
        trainer = Trainer(recipe, ConvNet(width=2, hidden=8), two_classes, 0, 2, torch.device("cpu"), False)
        for epoch in range(2):
            trainer.run_epoch(epoch)
        found = recipe.measurements(trainer.network.eval(), two_classes.x_test, two_classes.y_test)
        assert 0 < found["certified_accuracy"] <= found["attacked_accuracy_at_certified_eps"]
        assert (found["certified_eps"], found["certified_images"]) == (0.5 / 255, 40)

    def test_a_broken_certificate_is_an_alarm(self, two_classes, monkeypatch):
        monkeypatch.setattr("robustassay.train.ibp.is_certified", lambda network, x, y, eps: torch.ones(len(x)).bool())
        network = ConvNet(width=2, hidden=8).build(2).eval()
        with pytest.raises(ModelFailed, match="broke"):
            BoundTraining().measurements(network, two_classes.x_test, two_classes.y_test)


class TestStart:
    def test_training_goes_on_from_a_model_of_the_zoo_and_moves_its_boundary_away(self, tmp_path):
        sample = load("cifar10-1k")
        x = (sample.images(slice(0, 80)) * 255).round().byte()
        data = TrainingData(x[:60], sample.labels[:60].clone(), x[60:], sample.labels[60:80].clone())
        recipe = DeepDefense(start="resnet20-natural", batch=12, rate=0.03, rivals=1, average=0.1)
        card = train(recipe, ResNet(20), data, tmp_path, "tiny", epochs=2)
        assert card.clean_accuracy >= 0.7  # ten steps from random weights would leave it at chance
        assert "start=resnet20-natural" in card.command
        assert "linearised" in card.notes
        before, after = (
            linearised_distance(network(leaf := x.div(255).requires_grad_()), leaf, sample.labels[:80], 1)
            .median()
            .item()
            for network in (zoo.load("resnet20-natural"), zoo.load("tiny", folder=tmp_path))
        )
        assert after > 1.15 * before

    def test_another_architecture_is_refused(self, tmp_path, two_classes):
        with pytest.raises(BadRequest, match="another architecture"):
            train(DeepDefense(start="resnet20-natural"), TINY, two_classes, tmp_path, "tiny", epochs=1)

    def test_recipes_that_cannot_be_compiled_say_so(self, tmp_path, two_classes):
        with pytest.raises(BadRequest, match="--compiled"):
            train(DeepDefense(), TINY, two_classes, tmp_path, "tiny", epochs=1, compiled=True)


@pytest.fixture(scope="module")
def jobs() -> Any:
    path = Path(__file__).parents[2] / "tools" / "train_zoo.py"
    spec = importlib.util.spec_from_file_location("train_zoo", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["train_zoo"] = module  # where its dataclass looks itself up
    spec.loader.exec_module(module)
    return module.JOBS


class TestJobs:
    """The table that made the zoo."""

    def test_every_job_can_be_made(self, jobs):
        assert len({job.name for job in jobs}) == len(jobs)
        for job in jobs:
            recipe = create("recipe", job.recipe)
            assert job.epochs > 0
            assert recipe.compiles or not job.compiled
            if recipe.start:
                assert zoo.card(recipe.start).architecture == architecture.describe(
                    architecture.create(job.architecture)
                )

    def test_all_recipes_and_enough_natural_families_are_in_it(self, jobs):
        made = {job.recipe.partition(":")[0] for job in jobs} | {zoo.card(name).recipe for name in zoo.names()}
        assert made == {*registered("recipe")}
        natural = {job.name: job.architecture.partition(":")[0] for job in jobs if job.group == "natural"}
        assert len({*natural, "resnet20-natural", "resnet56-natural"}) >= 12
        assert len({*natural.values(), "resnet"}) == 7

    def test_the_zoo_stays_light(self, jobs):
        with torch.device("meta"):
            networks = {job.name: architecture.create(job.architecture).build(10) for job in jobs}
        new = sum(2 * sum(t.numel() for t in network.state_dict().values()) for network in networks.values())
        old = sum((zoo.EMBEDDED / f"{name}.safetensors").stat().st_size for name in {*zoo.names()} - {*networks})
        assert new + old < 43e6
