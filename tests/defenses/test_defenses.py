"""Defenses: each does what its paper says, draws for each image alone, and tells an attacker how to get through.

The tests of the first part iterate over the registry. A new defense needs one row in `SETTINGS`.
"""

import io
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from scipy import ndimage, stats
from scipy.optimize import minimize
from torch import Tensor, nn

import robustassay as ra
from robustassay import data, defenses, models
from robustassay.attacks import create as create_attack
from robustassay.certification.randomized_smoothing import ABSTAIN, certify, clopper_pearson, majority
from robustassay.defenses import (
    Defense,
    DenoisingBlock,
    Ensemble,
    OwnGradient,
    Smoothed,
    UndefendedGradient,
    create,
    defense_names,
    insert_after,
    jpeg_steps,
    spell,
)
from robustassay.defenses.defense import Transform
from robustassay.defenses.tv import TotalVariation, variation
from robustassay.errors import BadRequest, UnknownName
from robustassay.evaluation.model_ref import ModelRef
from robustassay.registry import lookup
from robustassay.target import LocalModel
from robustassay.threat import LInf, Untargeted
from tests.support.toys import CPU, Constant, Linear, images, run

# Settings with which each defense can be tried on a small network; an empty text are the defaults.
SETTINGS = {
    "bit-depth": "",
    "ensemble": "members=resnet20-pgd",
    "feature-denoising": "after=0",
    "gaussian": "",
    "jpeg": "",
    "median": "",
    "noise": "",
    "randmix": "copies=2",
    "resize-pad": "",
    "smoothing": "",
    "tv": "steps=5",
}
every_defense = pytest.mark.parametrize("name", sorted(defense_names()))


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    torch.manual_seed(0)


def try_out(name: str) -> Defense:
    return create(f"{name}:{SETTINGS[name]}")


@cache
def natural() -> nn.Module:
    return models.load("resnet20-natural")


@cache
def pictures(rows: int = 8) -> tuple[Tensor, Tensor]:
    sample = data.load("cifar10-1k")
    assert isinstance(sample, data.Dataset)
    return sample.images(slice(0, rows)), sample.labels[:rows]


def small_network(seed: int = 0, side: int = 32) -> nn.Module:
    """From 3 x side x side to ten logits, smooth and untrained."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(4 * side**2, 10)
    return nn.Sequential(*layers).eval().requires_grad_(False)


def gradient_of(forward: Any, x: Tensor) -> Tensor:
    """The gradient of the sum of squared logits; zero where none gets through."""
    x = x.clone().requires_grad_()
    height = forward(x).square().sum()
    found = torch.autograd.grad(height, x, allow_unused=True)[0] if height.requires_grad else None
    return torch.zeros_like(x) if found is None else found


# ---------------------------------------------------------------- what all defenses have in common


def test_every_defense_is_tried():
    assert set(SETTINGS) == set(defense_names())


@every_defense
def test_a_defended_model_is_ready_to_be_judged(name):
    x, _ = pictures()
    defended = try_out(name) | small_network().train()
    assert not any(part.training for part in defended.modules())
    assert defended(x).shape == (8, 10)
    assert defended(x).isfinite().all()
    assert not torch.allclose(defended(x), small_network()(x), atol=1e-4), "the defense does nothing"


@every_defense
def test_an_adaptive_attacker_gets_a_gradient(name):
    x, _ = pictures()
    defended = try_out(name) | small_network()
    assert gradient_of(defended.differentiable, x).flatten(1).abs().amax(1).min() > 0
    torch.manual_seed(0)
    true = defended(x)
    torch.manual_seed(0)
    torch.testing.assert_close(defended.differentiable(x), true)  # it takes another way back, never forth


@every_defense
def test_the_naive_pass_knows_no_defense(name):
    x, _ = pictures()
    network = small_network()
    inner = try_out(name) | network
    for defended in (inner, defenses.BitDepth() | inner):
        torch.testing.assert_close(defended.naive(x), network(x), rtol=0, atol=0)
        torch.testing.assert_close(UndefendedGradient(defended).differentiable(x), network(x), rtol=0, atol=0)
        assert not hasattr(OwnGradient(defended), "differentiable")
    torch.manual_seed(0)
    true = inner(x)
    for wrapped in (UndefendedGradient(inner), OwnGradient(inner)):
        torch.manual_seed(0)
        torch.testing.assert_close(wrapped(x), true, rtol=0, atol=0)


@every_defense
def test_random_defenses_draw_for_each_image_from_torchs_generator(name):
    picture = pictures()[0][:1]
    x = picture.expand(4, -1, -1, -1)
    defense = try_out(name)
    defended = defense | small_network()
    assert defended.random == defense.random
    torch.manual_seed(1)
    first = defended(x)
    second = defended(x)
    torch.manual_seed(1)
    torch.testing.assert_close(defended(x), first, rtol=0, atol=0)
    alike = torch.cdist(first, first) + torch.eye(4)
    if defense.random:
        assert alike.min() > 1e-4, "two images of a batch shared a draw"
        assert (first - second).abs().amax(1).min() > 1e-5, "two passes shared a draw"
    else:
        torch.testing.assert_close(second, first, rtol=0, atol=0)
        torch.testing.assert_close(first, first[:1].expand_as(first))


@every_defense
def test_settings_are_part_of_a_runs_identity(name):
    network = small_network()
    plain, defended = ModelRef.of(network), ModelRef.of(try_out(name) | network)
    assert plain.identity != defended.identity
    assert repr(try_out(name) | network) == repr(try_out(name) | network)
    assert create(spell(try_out(name))) == try_out(name)


def test_other_settings_are_another_run():
    def identity(spec: str) -> object:
        return ModelRef.of(create(spec) | natural()).identity

    assert identity("jpeg:quality=50") != identity("jpeg:quality=51")
    assert identity("smoothing:sigma=0.5") != identity("smoothing:sigma=0.25")
    assert identity("jpeg|bit-depth") != identity("bit-depth|jpeg")
    assert ModelRef.of(UndefendedGradient(create("jpeg") | natural())).identity != identity("jpeg")


@pytest.mark.parametrize("name", [name for name in sorted(SETTINGS) if issubclass(lookup("defense", name), Transform)])
def test_images_keep_shape_type_and_range(name):
    defense = try_out(name)
    assert isinstance(defense, Transform)
    for kind in (torch.float32, torch.float64):
        x = pictures()[0].to(kind)
        changed = defense(x)
        assert changed.dtype == kind
        assert changed.shape == x.shape
        assert (changed - x).abs().max() > 1e-3
        if name not in ("noise", "randmix"):  # noise leaves the box, as in its papers
            assert changed.min() >= 0
            assert changed.max() <= 1 + 1e-6


@pytest.mark.parametrize("name", ["jpeg", "bit-depth", "tv"])
def test_shattered_gradients_go_straight_through(name):
    """Zero by the true pass; by the declared one that of the model at the changed image."""
    x, _ = pictures()
    network, defense = small_network(), try_out(name)
    assert isinstance(defense, Transform)
    defended = defense | network
    assert not gradient_of(defended, x).any()
    torch.manual_seed(3)
    changed = defense(x)
    torch.manual_seed(3)
    torch.testing.assert_close(gradient_of(defended.differentiable, x), gradient_of(network, changed))


@pytest.mark.parametrize("name", ["gaussian", "median", "resize-pad", "randmix", "noise", "smoothing"])
def test_the_other_gradients_are_those_of_the_true_pass(name):
    """Against finite differences in float64, every pass under the same draw."""
    x = pictures()[0][:2].double()
    x += 1e-3 * torch.rand(x.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype)  # no ties for the median
    defended = try_out(name) | small_network().double()

    def height(x: Tensor) -> Tensor:
        torch.manual_seed(5)
        logits: Tensor = defended(x)
        return logits

    gradient = gradient_of(height, x)
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=x.dtype)
    rise = (height(x + 1e-9 * direction).square().sum() - height(x - 1e-9 * direction).square().sum()) / 2e-9
    assert float((gradient * direction).sum()) == pytest.approx(float(rise), rel=1e-4)


# ---------------------------------------------------------------- composing and naming


def test_the_leftmost_defense_sees_the_image_first():
    x, _ = pictures()
    network = small_network()
    jpeg, bits = defenses.JPEG(quality=20), defenses.BitDepth(bits=2)
    torch.testing.assert_close((jpeg | bits | network)(x), network(bits(jpeg(x))))
    torch.testing.assert_close((jpeg | (bits | network))(x), network(bits(jpeg(x))))
    assert (jpeg(bits(x)) - bits(jpeg(x))).abs().max() > 0.1
    chain = jpeg | bits | defenses.Noise()
    assert chain.random
    assert not (jpeg | bits).random
    assert create("jpeg:quality=20 | bit-depth:bits=2 | noise") == chain
    assert create(spell(chain)) == chain
    assert (chain | network).random


def test_a_model_may_be_named():
    x, _ = pictures()
    torch.testing.assert_close((defenses.JPEG() | "resnet20-natural")(x), (create("jpeg") | natural())(x))
    with pytest.raises(UnknownName, match="resnet20-natural"):
        defenses.JPEG() | "resnet20-naturel"
    with pytest.raises(BadRequest, match=r"torch\.nn\.Module"):
        defenses.JPEG() | 3


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("jpeg:quality=0", "from 1 to 95"),
        ("bit-depth:bits=9", "from 1 to 8"),
        ("noise:sigma=-1", "0 or more"),
        ("tv:drop=1", "from 0 to 0.95"),
        ("ensemble:average=votes,members=resnet20-pgd", "probabilities or logits"),
        ("median:radius=0", "from 1 to 7"),
        ("jpeg:speed=3", "setting of jpeg"),
        ("jpg", "did you mean jpeg"),
        ("ensemble", "name the other members"),
        ("feature-denoising:after=stage9", "did you mean stage"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(spec, says):
    with pytest.raises(BadRequest, match=says):
        (create(spec) | natural())(pictures()[0])
    with pytest.raises(AttributeError, match="the defenses are"):
        defenses.Nonsense  # noqa: B018


# ---------------------------------------------------------------- each defense by itself


@pytest.mark.parametrize("quality", [1, 20, 50, 75, 95])
def test_jpeg_in_tensor_operations_is_pillows_to_the_bit(quality):
    noise = torch.rand(40, 3, 64, 48, generator=torch.Generator().manual_seed(quality))
    for x in (data.load("cifar10-1k").images(slice(0, 100)), noise, noise.round()):
        assert jpeg_steps.is_covered(x)
        found = jpeg_steps.encode_and_decode((x * 255).round(), quality).float() / 255
        assert torch.equal(found, defenses.JPEG(quality=quality)(x))
    assert not jpeg_steps.is_covered(torch.rand(1, 3, 28, 32))
    assert not jpeg_steps.is_covered(torch.rand(1, 1, 32, 32))


@pytest.mark.parametrize("quality", [10, 75])
def test_jpeg_is_pillows(quality):
    x, _ = pictures()
    changed = defenses.JPEG(quality=quality)(x)
    for image, result in zip(x, changed, strict=True):
        file = io.BytesIO()
        picture = Image.fromarray(np.rint(image.permute(1, 2, 0).numpy() * 255).astype(np.uint8), "RGB")
        picture.save(file, format="JPEG", quality=quality)
        decoded = np.asarray(Image.open(io.BytesIO(file.getvalue())).convert("RGB"))
        np.testing.assert_array_equal(np.rint(result.permute(1, 2, 0).numpy() * 255), decoded)
    grey = x.mean(1, keepdim=True)
    assert defenses.JPEG(quality=quality)(grey).shape == grey.shape
    with pytest.raises(BadRequest, match="1 or 3 channels"):
        defenses.JPEG()(torch.cat((x, x), 1))


def test_bit_depth_rounds_to_the_nearest_level():
    x = torch.linspace(0, 1, 1001).view(1, 1, 7, 143)
    for bits in (1, 2, 8):
        levels = torch.linspace(0, 1, 2**bits)
        changed = defenses.BitDepth(bits=bits)(x).flatten()
        nearest = (x.flatten()[:, None] - levels).abs().amin(1)
        torch.testing.assert_close((changed - x.flatten()).abs(), nearest, rtol=0, atol=1e-6)
        assert len(changed.unique()) == 2**bits


def test_tv_reduces_variation_and_forgets_what_it_drops():
    x, _ = pictures()
    noisy = (x + 0.05 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    changed = TotalVariation()(noisy)
    assert (variation(changed) < 0.8 * variation(noisy)).all()
    assert ((changed - x).square().mean((1, 2, 3)) < (noisy.mean((2, 3), keepdim=True) - x).square().mean()).all()
    keep = (torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) > 0.5).float()
    torch.testing.assert_close(
        TotalVariation().restore(x, keep), TotalVariation().restore(x * keep + 0.9 * (1 - keep), keep), rtol=0, atol=0
    )
    flat = torch.full((1, 3, 8, 8), 0.3)
    torch.testing.assert_close(TotalVariation()(flat), flat)


def test_tv_nears_the_minimum_it_seeks():
    """Against L-BFGS on the same objective, in float64."""
    x = pictures()[0][:1, :1, :10, :10].double()
    keep = (torch.rand(x.shape, generator=torch.Generator().manual_seed(2), dtype=x.dtype) > 0.5).to(x)

    def objective(z: Tensor) -> Tensor:
        return 0.5 * (keep * (z - x)).square().sum() + 0.03 * variation(z).sum()

    def with_slope(flat: Any) -> tuple[float, Any]:
        z = torch.tensor(flat).view_as(x).requires_grad_()
        value = objective(z)
        return value.item(), torch.autograd.grad(value, z)[0].flatten().numpy()

    start = (x + 0.01 * torch.rand_like(x)).flatten().numpy()
    least = minimize(with_slope, start, jac=True, method="L-BFGS-B", options={"maxiter": 3000, "maxfun": 10000}).fun
    assert least < 0.9 * float(objective(x)), "nothing to be gained here: the test would show nothing"
    assert float(objective(TotalVariation(steps=2000).restore(x, keep))) <= least * 1.001
    assert float(objective(TotalVariation().restore(x, keep))) <= least * 1.05  # the default number of steps


def test_smoothing_filters_are_those_of_scipy():
    x = images(2, (3, 16, 12), low=0.0, high=1.0)
    for radius, size in ((1, 3), (2, 5)):
        expected = ndimage.median_filter(x.numpy(), size=(1, 1, size, size), mode="mirror")
        np.testing.assert_array_equal(defenses.Median(radius=radius)(x).numpy(), expected)
    for sigma in (0.5, 1.0):
        expected = ndimage.gaussian_filter(
            x.numpy(), (0, 0, sigma, sigma), mode="mirror", radius=int(np.ceil(3 * sigma))
        )
        np.testing.assert_allclose(defenses.Gaussian(sigma=sigma)(x).numpy(), expected, atol=1e-6)


def test_resize_pad_is_a_shrunk_image_on_black():
    x = images(64, (3, 32, 24), low=0.2, high=1.0)
    torch.manual_seed(0)
    changed = defenses.ResizePad(low=0.5)(x)
    seen = set()
    for image, result in zip(x, changed, strict=True):
        rows, columns = (result.sum(0) > 0).nonzero().T
        top, left = int(rows.min()), int(columns.min())
        height, width = int(rows.max()) - top + 1, int(columns.max()) - left + 1
        shrunk = F.interpolate(image[None], (height, width), mode="nearest")[0]
        expected = F.pad(shrunk, (left, 24 - left - width, top, 32 - top - height))
        torch.testing.assert_close(result, expected, rtol=0, atol=0)
        assert 16 <= height <= 32
        assert abs(height / 32 - width / 24) < 1 / 24
        seen |= {("height", height), ("top", top), ("left", left)}
    assert len(seen) > 20
    torch.testing.assert_close(defenses.ResizePad(low=1.0)(x), x, rtol=0, atol=0)


def test_randmix_paints_with_a_few_colours_of_the_image():
    x = images(8, (3, 16, 16), low=0.0, high=1.0)
    hard = defenses.RandMix(noise=0.0, sharpness=1e12)
    for image, painted in zip(x, hard(x), strict=True):
        pixels, colours = image.flatten(1).T, painted.flatten(1).T.unique(dim=0)
        assert len(colours) == 5
        assert all((pixels == colour).all(1).any() for colour in colours)
        apart = (painted - image).flatten(1).norm(dim=0)
        torch.testing.assert_close(apart, (pixels[:, None] - colours).norm(dim=2).amin(1))
    rare = torch.zeros(50, 3, 10, 10)
    rare[:, :, 0, :5] = 1.0  # five pixels in a hundred: of two uniform draws one in ten would find them
    found = defenses.RandMix(noise=0.0, sharpness=1e6, colours=2, candidates=200)(rare)
    torch.testing.assert_close(found, rare)
    soft = defenses.RandMix(noise=0.0, sharpness=0.0)(x)  # all parts alike
    torch.testing.assert_close(soft, soft[:, :, :1, :1].expand_as(soft))


def test_noise_averages_its_copies():
    x = torch.full((2000, 3, 2, 2), 0.5)
    linear = Linear(torch.ones(2, 12), torch.tensor([0.0, 1.0]))
    for copies in (1, 16):
        logits = (defenses.Noise(sigma=0.1, copies=copies) | linear)(x).detach()
        assert float(logits[:, 0].mean()) == pytest.approx(6.0, abs=0.05)
        assert float(logits[:, 0].std()) == pytest.approx(0.1 * (12 / copies) ** 0.5, rel=0.1)


@pytest.mark.parametrize("average", ["logits", "probabilities"])
def test_an_ensemble_averages(average):
    x, _ = pictures()
    member, other = small_network(0), small_network(1)
    alike = Ensemble([member, member, member], average)
    torch.testing.assert_close(alike(x).softmax(1), member(x).softmax(1))
    if average == "logits":
        torch.testing.assert_close(alike(x), member(x))
        expected = (member(x) + other(x)) / 2
    else:
        expected = ((member(x).softmax(1) + other(x).softmax(1)) / 2).log()
    torch.testing.assert_close(Ensemble([member, other], average)(x), expected)
    rounded = defenses.BitDepth() | member
    mixed = Ensemble([rounded, defenses.JPEG() | other], average)
    assert not gradient_of(mixed, x).any()
    assert gradient_of(mixed.differentiable, x).any()
    assert not mixed.random
    assert Ensemble([rounded, defenses.Noise() | other], average).random


def test_one_sure_member_sways_mean_logits_not_mean_probabilities():
    x = torch.zeros(1, 1)
    sure = Linear(torch.zeros(2, 1), torch.tensor([0.0, 20.0]))
    doubter = Linear(torch.zeros(2, 1), torch.tensor([2.0, 0.0]))
    assert Ensemble([sure, doubter, doubter], "logits")(x).argmax() == 1
    assert Ensemble([sure, doubter, doubter], "probabilities")(x).argmax() == 0


def test_named_members_join_an_ensemble():
    x, _ = pictures()
    joined = create("ensemble:members=resnet20-pgd,average=logits") | natural()
    torch.testing.assert_close(joined(x), (natural()(x) + models.load("resnet20-pgd")(x)) / 2)


@pytest.mark.parametrize("kind", ["nonlocal", "mean", "median"])
def test_features_are_denoised_where_asked(kind):
    h = images(2, (5, 6, 7), low=-1.0, high=1.0)
    network = nn.Sequential(nn.Identity(), nn.Flatten()).eval()

    def denoised(strength: float) -> Tensor:
        model = defenses.FeatureDenoising(after="0", kind=kind, strength=strength) | network
        out: Tensor = model(h).view_as(h)
        return out

    if kind == "mean":
        ones = F.conv2d(torch.ones(1, 1, 6, 7), torch.ones(1, 1, 3, 3), padding=1)
        expected = F.conv2d(h, torch.ones(5, 1, 3, 3), padding=1, groups=5) / ones
    elif kind == "median":
        expected = torch.from_numpy(ndimage.median_filter(h.numpy(), size=(1, 1, 3, 3), mode="mirror"))
    else:
        places = h.flatten(2).transpose(1, 2)
        expected = F.scaled_dot_product_attention(places, places, places).transpose(1, 2).reshape(h.shape)
    torch.testing.assert_close(denoised(1.0), expected)
    torch.testing.assert_close(denoised(0.25), 0.75 * h + 0.25 * expected)
    torch.testing.assert_close(denoised(0.0), h)


def test_a_denoising_block_starts_as_nothing_and_can_learn():
    x, _ = pictures()
    network = small_network()
    block = DenoisingBlock(4, "mean")
    inside = insert_after(network, "1", block)
    torch.testing.assert_close(inside(x), network(x))
    assert not any(isinstance(part, DenoisingBlock) for part in network.modules()), "the model given was changed"
    inside(x).square().sum().backward()
    assert block.mix.weight.grad is not None
    assert block.mix.weight.grad.abs().max() > 0
    with torch.no_grad():
        block.mix.weight.copy_(torch.eye(4).view(4, 4, 1, 1))
    assert (inside(x) - network(x)).abs().max() > 0.01
    deep = insert_after(natural(), "stage2.0.conv1", DenoisingBlock(32, "median"))
    torch.testing.assert_close(deep(x), natural()(x))
    with pytest.raises(UnknownName):
        DenoisingBlock(4, "magic")


# ---------------------------------------------------------------- randomised smoothing


def half_space(weight: list[float], bias: float) -> Linear:
    """Class 1 where weight @ x + bias > 0: under noise of any size the distance to that plane is the true radius."""
    direction = torch.tensor([weight])
    return Linear(torch.cat((torch.zeros_like(direction), direction)), torch.tensor([0.0, bias]))


def test_no_certificate_has_a_counterexample():
    """10,000 points before a half-space, at 99.9 % confidence that all certificates hold.

    At a point at distance d the noise leaves the label with probability Phi(d / sigma), and d is the true radius.
    """
    sigma, draws, trials = 0.5, 1000, 10_000
    distance = np.random.default_rng(0).uniform(-2 * sigma, 2 * sigma, trials)
    smoothed = Smoothed(half_space([2.0], 0.0), sigma)
    torch.manual_seed(0)
    x = torch.from_numpy(distance).float()[:, None]
    guess = smoothed.counts(x, 20, 1000).argmax(1)
    votes = smoothed.counts(x, draws, 1000)[np.arange(trials), guess]
    radius, label = np.abs(distance), (distance > 0).astype(np.int64)

    def wrong(proven: Any) -> int:
        return int(((proven.label != ABSTAIN) & ((proven.label != label) | (proven.radius > radius + 1e-6))).sum())

    together = certify(guess, votes, draws, sigma, alpha=0.001, simultaneous=trials)
    assert wrong(together) == 0
    assert (together.label != ABSTAIN).mean() > 0.8, "who certifies nothing is never wrong"
    assert np.median((together.radius / radius)[together.label != ABSTAIN]) > 0.7
    alone = certify(guess, votes, draws, sigma, alpha=0.001)
    assert wrong(alone) <= stats.binom.ppf(1 - 1e-5, trials, 0.001)  # each by itself may fail once in a thousand
    assert (alone.radius >= together.radius).all()
    hopeful = certify(guess, votes, draws, sigma, alpha=0.5)
    assert wrong(hopeful) > trials / 4, "the trials would not notice a bound without confidence"


def test_a_half_space_is_certified_to_nearly_its_distance():
    sigma = 0.3
    model = half_space([3.0, -4.0], 0.5)
    x = torch.tensor([[0.5, 0.1], [0.1, 0.4], [0.9, 0.2]])
    exact = (model(x)[:, 1].abs() / 5).detach().numpy()
    torch.manual_seed(0)
    proven = Smoothed(model, sigma).certify(x, draws=100_000, batch_size=20_000)
    np.testing.assert_array_equal(proven.label, model(x).argmax(1).numpy())
    assert (proven.radius < exact).all()
    assert (proven.radius > exact - 0.03 * sigma).all()
    assert proven.holds(proven.label, 0.01).all()
    assert not proven.holds(1 - proven.label, 0.01).any()
    assert not proven.holds(proven.label, 1.0).any()


def test_it_abstains_where_nothing_can_be_proven():
    model = half_space([1.0, 1.0], -1.0)
    torch.manual_seed(0)
    smoothed = Smoothed(model, 0.25)
    edge = torch.full((20, 2), 0.5)
    for proven in (smoothed.certify(edge, draws=2000), smoothed.certify(torch.full((3, 2), 0.9), draws=8)):
        assert (proven.label == ABSTAIN).all()  # at the edge; and with too few draws to be sure of anything
        assert (proven.radius == 0).all()
    assert (smoothed.predict(edge) == ABSTAIN).all()
    assert (smoothed.predict(torch.full((3, 2), 0.9)) == 1).all()
    certain = Smoothed(Constant(3), 0.25).certify(edge[:1], draws=1000)
    assert certain.radius[0] == pytest.approx(0.25 * stats.norm.ppf(0.001 ** (1 / 1000)))  # all votes: alpha^(1/n)
    with pytest.raises(BadRequest, match="alpha"):
        smoothed.certify(edge, draws=10, alpha=0.0)


def test_bounds_and_votes_are_those_of_scipys_exact_tests():
    for hits, draws in ((0, 10), (1, 10), (7, 10), (10, 10), (530, 1000), (999, 1000)):
        expected = stats.binomtest(hits, draws, alternative="greater").proportion_ci(0.999, "exact").low
        assert clopper_pearson(np.array([hits]), draws, 0.001)[0] == pytest.approx(expected, abs=1e-12)
    for first, second in ((10, 0), (60, 40), (51, 49), (700, 300)):
        chance = stats.binomtest(first, first + second, 0.5).pvalue
        for alpha in (chance * 1.01, chance * 0.99):
            expected = 2 if chance <= alpha else ABSTAIN
            assert majority(np.array([[0, second, first]]), alpha)[0] == expected


def test_a_smoothed_models_logits_are_mean_probabilities():
    model = half_space([4.0, 0.0], -1.0)
    x = torch.full((3, 2), 0.4)
    torch.manual_seed(0)
    found = Smoothed(model, sigma=0.5, draws=20_000)(x).exp()
    noise = np.random.default_rng(0).normal(size=200_000) * 0.5
    expected = (1 / (1 + np.exp(-(4 * (0.4 + noise) - 1)))).mean()
    torch.testing.assert_close(found[:, 1], torch.full((3,), float(expected)), rtol=0, atol=0.01)
    torch.testing.assert_close(found.sum(1), torch.ones(3))


# ---------------------------------------------------------------- what the attacker gets out of it


def robust_accuracy(model: nn.Module, eps: float) -> float:
    result = ra.evaluate(
        model,
        data="cifar10-1k",
        threat=ra.LInf(eps),
        attack="pgd:steps=20,rel_step=0.25",
        limit=30,
        device="cpu",
    )
    return float(result.robust_accuracy)


def accuracy_left_by_its_own_gradient(model: nn.Module, eps: float) -> float:
    """Past the checks that refuse to attack a model without a gradient."""
    records, _ = run(OwnGradient(model), create_attack("pgd:steps=20,rel_step=0.25"), LInf(eps), *pictures(30))
    return float((records.clean_ok & ~records.success).mean())


@pytest.mark.parametrize(
    ("spec", "eps_naive"),
    [pytest.param("jpeg:quality=50", 8 / 255, marks=pytest.mark.long), ("bit-depth:bits=3", 2 / 255)],
)
def test_rounding_is_no_defense_against_who_knows_it(spec, eps_naive):
    """Below 10 % for the adaptive attack, where the naive ones leave it far higher.

    Bit depth lets the gradients of the bare model through at 8/255, so there its naive attack shows at 2/255.
    """
    model = create(spec) | natural()
    adaptive = {eps: robust_accuracy(model, eps) for eps in {8 / 255, eps_naive}}
    assert max(adaptive.values()) < 0.1
    assert accuracy_left_by_its_own_gradient(model, 8 / 255) > 0.45
    assert robust_accuracy(UndefendedGradient(model), eps_naive) > adaptive[eps_naive] + 0.15


EOT = {
    "noise": "copies=1",
    "randmix": "copies=1",
    "resize-pad": "low=0.5",
    "smoothing": "draws=1",
    "tv": "steps=5",
}


@pytest.mark.parametrize("name", EOT)
def test_averaged_draws_steady_the_gradient(name):
    """EOT: over eight independent draws the gradient strays a third as far from its expectation as over one."""
    x, goal = images(8, (3, 8, 8), low=0.0, high=1.0), Untargeted(torch.zeros(8, dtype=torch.int64))
    model = create(f"{name}:{EOT[name]}") | small_network(side=8)

    def gradient(draws: int) -> Tensor:
        network = LocalModel(model, 10, CPU, batch_size=512, draws=draws)
        return network.gradient(x, lambda logits, goal: logits.square().sum(1), goal)[0].flatten(1)

    torch.manual_seed(0)
    expected = gradient(512)

    def strays(draws: int) -> Tensor:
        return torch.stack([(gradient(draws) - expected).norm(dim=1) for _ in range(8)]).mean(0)

    assert strays(1).min() > 0
    assert (strays(8) < 0.55 * strays(1)).all()
    assert (strays(8) > 0.25 * strays(1)).all(), "eight draws that agree so well were not independent"


def test_a_random_defense_goes_through_a_whole_evaluation():
    """EOT by `eot`; the verdict is what most fresh draws say."""
    model = defenses.ResizePad() | natural()
    result = ra.evaluate(
        model,
        data="cifar10-1k",
        threat=ra.LInf(8 / 255),
        attack="pgd:steps=8,rel_step=0.25",
        limit=4,
        search=ra.Search(eot=4),
        device="cpu",
    )
    assert result.clean_accuracy > 0.7
    assert result.robust_accuracy < 0.5
