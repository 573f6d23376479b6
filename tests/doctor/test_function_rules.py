"""Rules for functions without a useful gradient: values stay, gradients become those of the function itself."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import robustassay as ra
from robustassay.doctor.checkpoints import repeated_layers
from robustassay.doctor.function_rules import FunctionRules
from robustassay.doctor.gradient_fixes import FixedGradients, StraightThrough
from robustassay.doctor.layer_errors import find_wrong_layers
from robustassay.target import LocalModel
from tests.support.masked_layers import LAYERS, GradientPurifier, behind_every_norm, rounded, with_gradient_of
from tests.support.toys import CPU

Function = Callable[[Tensor], Tensor]


class Pretends(torch.autograd.Function):
    """Squares; its backward pass returns minus the gradient."""

    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        ctx.save_for_backward(h)
        return h * h

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        (h,) = ctx.saved_tensors
        return -2 * h * slopes[0]


class PretendsToo(torch.autograd.Function):
    """The same in the newer way of writing it."""

    @staticmethod
    def forward(h: Tensor) -> Tensor:
        return h * h

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        return torch.zeros_like(slopes[0])


@torch.no_grad()
def without_graph(h: Tensor) -> Tensor:
    return 3 * h


@torch.inference_mode()
def in_inference_mode(h: Tensor) -> Tensor:
    return 3 * h


def with_hook(h: Tensor) -> Tensor:
    out = 3 * h
    if out.requires_grad:
        out.register_hook(torch.neg)
    return out


def in_place(h: Tensor) -> Tensor:
    return h.clone().mul_(4).round_().div_(4)


TABLE = torch.linspace(0, 1, 17)[:, None] * torch.tensor([2.0, -1.0])

SLOPES: dict[str, tuple[Function, float]] = {
    "round": (lambda h: (8 * h).round() / 8, 1.0),
    "floor": (lambda h: torch.floor(8 * h) / 8, 1.0),
    "rounding in place": (in_place, 1.0),
    "sign": (lambda h: (h - 0.5).sign(), 1.0),
    "remainder": (lambda h: h - h % 0.1, 1.0),
    "floor division": (lambda h: (h // 0.125) * 0.125, 1.0),
    "cast": (lambda h: (16 * h).to(torch.uint8).float() / 16, 1.0),
    "cast by name": (lambda h: (16 * h).long().to(h) / 16, 1.0),
    "detach": (lambda h: 3 * h.detach(), 3.0),
    "data": (lambda h: 3 * h.data, 3.0),
    "no_grad": (without_graph, 3.0),
    "inference_mode": (in_inference_mode, 3.0),
    "gradient hook": (with_hook, 3.0),
    "lookup in an embedding": (lambda h: F.embedding((16 * h).round().long(), TABLE).sum(-1), 1.0),
    "lookup by index": (lambda h: TABLE[(16 * h).long()].sum(-1), 1.0),
}


def slope(function: Function, h: Tensor, **options: bool) -> tuple[Tensor, Tensor]:
    given = h.clone().requires_grad_()
    with FunctionRules(len(h), **options):
        out = function(given)
    (found,) = torch.autograd.grad(out.sum(), given)
    return out.detach(), found


@pytest.fixture
def h() -> Tensor:
    return 0.1 + 0.8 * torch.rand(4, 5, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", SLOPES)
def test_values_stay_and_gradients_are_those_of_the_function(name, h):
    function, expected = SLOPES[name]
    out, found = slope(function, h)
    assert torch.equal(out, function(h))
    assert torch.allclose(found, torch.full_like(h, expected), atol=1e-4)


@pytest.mark.parametrize("function", [Pretends.apply, PretendsToo.apply])  # kept under another name, as models do
def test_custom_functions_are_differentiated_in_their_forward_pass(function, h):
    out, found = slope(function, h)
    assert torch.equal(out, h * h)
    assert torch.allclose(found, 2 * h)
    given = h.clone().requires_grad_()
    (afterwards,) = torch.autograd.grad(function(given).sum(), given)
    assert not torch.allclose(afterwards, 2 * h), "outside the rules they are as they were"


def test_backward_hooks_of_layers_are_left_out(h):
    def negate(layer: nn.Module, given: Any, slopes: Any) -> Any:
        return (-given[0],)

    layer = nn.Linear(5, 5)
    with layer.register_full_backward_hook(negate):
        _, found = slope(layer, h)
        given = h.clone().requires_grad_()
        (hooked,) = torch.autograd.grad(layer(given).sum(), given)
    expected = layer.weight.detach().sum(0).expand_as(h)
    assert torch.allclose(found, expected, atol=1e-6)
    assert torch.allclose(hooked, -expected, atol=1e-6), "outside the rules they act"


def test_a_code_of_comparisons_rises_with_its_values(h):
    edges = torch.linspace(0, 1, 9)
    code = lambda v: (v[..., None] > edges).to(v).mean(-1)  # noqa: E731
    out, found = slope(code, h)
    assert torch.equal(out, code(h))
    assert (found > 0.3).all()
    flipped = lambda v: (~(v[..., None] > edges)).float().mean(-1)  # noqa: E731
    assert (slope(flipped, h)[1] < -0.3).all()


MASKS: dict[str, Function] = {
    "where": lambda v: torch.where((v - 0.5).abs() < 0.2, torch.full_like(v, 0.5), v),
    "masked_fill": lambda v: v.masked_fill((v - 0.5).abs() < 0.2, 0.5),
    "times a mask": lambda v: v * (v > v.topk(2, 1).values[:, -1:]),
    "times a mask of numbers": lambda v: (v > v.topk(2, 1).values[:, -1:]).float() * v,
    "times a mask by index": lambda v: v * torch.zeros_like(v).scatter(1, v.topk(2, 1).indices, 1.0),
    "clamp": lambda v: v.clamp(0.45, 0.55),
    "tanh": lambda v: torch.tanh(99 * v),
    "sigmoid": lambda v: torch.sigmoid(99 * (v - 0.5)),
    "clamp in place": lambda v: v.clone().clamp_(0.45, 0.55),
    "erf": lambda v: torch.erf(999 * (v - 0.5)),
    "softmax": lambda v: torch.softmax(9999 * v, 1).cumsum(1),
    "clamp in place by a function": lambda v: F.hardtanh(v.clone(), 0.45, 0.55, inplace=True),
    "clamp by a function with an underscore": lambda v: F.hardtanh_(v.clone(), 0.45, 0.55),
    "logsumexp": lambda v: torch.logsumexp(9999 * v, 1, keepdim=True).expand_as(v),
}

SATURATED: dict[str, Function] = {
    "softsign": lambda v: F.softsign(99 * (v - 0.5)),
    "atan": lambda v: torch.atan(99 * (v - 0.5)),
}


@pytest.mark.parametrize("name", MASKS)
def test_soft_rules_let_gradients_pass_masks_and_saturation(name, h):
    function = MASKS[name]
    assert (slope(function, h)[1] == 0).any(), "or there is nothing to soften"
    out, found = slope(function, h, soft=True)
    assert torch.equal(out, function(h))
    assert (found != 0).all()


@pytest.mark.parametrize("clamp", [F.hardtanh, F.hardtanh_, F.relu6], ids=lambda one: one.__name__)
def test_a_soft_clamp_in_place_changes_what_it_is_given(clamp, h):
    options = {} if clamp.__name__.endswith("_") else {"inplace": True}

    def function(v: Tensor) -> Tensor:
        given = 20 * (v - 0.5)
        clamp(given, **options)
        return 2 * given

    out, found = slope(function, h, soft=True)
    assert torch.equal(out, function(h))
    assert (function(h) != 40 * (h - 0.5)).any(), "or nothing was clamped"
    assert (found != 0).all()


@pytest.mark.parametrize("function", [torch.softmax, torch.logsumexp])
def test_values_that_are_left_out_do_not_spoil_a_soft_softmax(function, h):
    left_out = torch.arange(h.shape[1]) == 0
    some = lambda v: function((9999 * v).masked_fill(left_out, -torch.inf), 1)  # noqa: E731
    out, found = slope(lambda v: some(v).view(len(v), -1).cumsum(1), h, soft=True)
    assert out.isfinite().all()
    assert found.isfinite().all()
    assert (found[:, 1:] != 0).all()


@pytest.mark.parametrize("wave", [torch.sin, torch.cos])
def test_soft_rules_give_fast_waves_no_slope(wave, h):
    out, found = slope(lambda v: v + wave(3000 * v), h, soft=True)
    assert torch.equal(out, h + wave(3000 * h))
    assert (found == 1).all()
    slow = lambda v: v + wave(3 * v)  # noqa: E731
    assert torch.equal(slope(slow, h, soft=True)[1], slope(slow, h)[1])


@pytest.mark.parametrize("name", SATURATED)
def test_soft_rules_raise_slopes_that_fall_slowly(name, h):
    function = SATURATED[name]
    out, found = slope(function, h, soft=True)
    assert torch.equal(out, function(h))
    assert (found >= 99 * 0.1 - 1e-4).all()
    assert (slope(function, h)[1] < 99 * 0.1).any(), "or there is nothing to soften"


def test_an_image_has_the_same_gradient_in_any_batch(h):
    function = MASKS["where"]
    alone = torch.cat([slope(function, row[None], soft=True)[1] for row in h])
    assert torch.allclose(alone, slope(function, h, soft=True)[1])


# ---------------------------------------------------------------- models with masks in every layer


def block(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width, momentum=1.0), nn.ReLU())


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    stem = (nn.Conv2d(3, 12, 3, stride=2), nn.BatchNorm2d(12, momentum=1.0), nn.ReLU())
    built = nn.Sequential(*stem, block(12), block(12), nn.AvgPool2d(3), nn.Flatten(), nn.Linear(12 * 4, 5))
    built(torch.rand(64, 3, 16, 16))  # for the statistics of the normalisations
    return built.eval()


def gradient(function: Function, x: Tensor) -> Tensor:
    images = x.clone().requires_grad_()
    torch.manual_seed(1)
    logits = function(images)
    top = logits.topk(2, 1).values
    (found,) = torch.autograd.grad((top[:, 0] - top[:, 1]).sum(), images)
    return found.flatten(1)


@pytest.mark.parametrize("name", [name for name in LAYERS if name not in ("saturated branch", "k winners by index")])
def test_masked_layers_get_the_gradient_of_a_hand_written_attack(name, network):
    masked = LAYERS[name](network, network)
    x = torch.rand(6, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    candidates = [StraightThrough(), StraightThrough(soft=True), StraightThrough(unroll=True)]
    truth = gradient(masked.smooth, x)
    found = [gradient(FixedGradients(masked.model, [fix]).differentiable, x) for fix in candidates]
    alike = max(float(F.cosine_similarity(one, truth).mean()) for one in found)
    assert alike > 0.8


def test_steps_that_a_model_takes_itself_are_unrolled_exactly(network):
    x = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(3))
    detached, attached = (GradientPurifier(network, detached=way) for way in (True, False))
    unrolled = FixedGradients(detached, [StraightThrough(unroll=True)])
    assert torch.allclose(gradient(unrolled.differentiable, x), gradient(attached, x), rtol=1e-3, atol=1e-6)
    constant = FixedGradients(detached, [StraightThrough()])
    assert not torch.allclose(gradient(constant.differentiable, x), gradient(attached, x), rtol=1e-3, atol=1e-6)


class Opaque(nn.Module):
    """Rounds in NumPy, where no rule reaches."""

    def forward(self, h: Tensor) -> Tensor:
        return torch.from_numpy((4 * h.detach().numpy()).round() / 4).clone()


def test_layers_that_no_rule_reaches_are_found_and_get_a_linear_map(network):
    opaque = behind_every_norm(network, lambda norm: Opaque())
    smooth = behind_every_norm(network, lambda norm: with_gradient_of(rounded(4)))
    x = torch.rand(6, 3, 16, 16, generator=torch.Generator().manual_seed(2))
    maps = find_wrong_layers(LocalModel.of(opaque, x, CPU), x, x + 0.03 * torch.randn(x.shape).sign())
    assert maps is not None
    assert [type(layer) for layer in maps.layers] == [Opaque] * 3
    fixed = FixedGradients(opaque, [StraightThrough(), maps])
    assert torch.allclose(fixed.differentiable(x), opaque(x), atol=1e-6)
    found, truth = gradient(fixed.differentiable, x), gradient(smooth, x)
    assert F.cosine_similarity(found, truth).mean() > 0.8
    assert find_wrong_layers(LocalModel.of(network, x, CPU), x, x + 0.03) is None, "honest layers are no error"


class Denoises(nn.Module):
    """Calls a denoiser many times, and detaches what it gives."""

    def __init__(self, module: nn.Module, calls: int) -> None:
        super().__init__()
        self.module, self.calls = module, calls
        self.denoiser = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.Tanh(), nn.Conv2d(16, 3, 3, padding=1))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.calls):
            x = (x + 0.1 * self.denoiser(x)).detach()
        logits: Tensor = self.module(x)
        return logits


def kept_bytes(function: Function, x: Tensor) -> int:
    """Count what a graph keeps."""
    kept = []

    def count(values: Tensor) -> Tensor:
        kept.append(values.numel() * values.element_size())
        return values

    with torch.autograd.graph.saved_tensors_hooks(count, lambda values: values):
        function(x.clone().requires_grad_())
    return sum(kept)


def test_a_denoiser_is_differentiated_exactly_and_not_kept_for_each_call(network):
    torch.manual_seed(5)
    x, model = torch.rand(4, 3, 16, 16), Denoises(network, 12)
    repeated = repeated_layers(LocalModel.of(model, x, CPU), x)
    assert repeated == [model.denoiser]
    whole, again = (FixedGradients(model, [fix]) for fix in (StraightThrough(), StraightThrough(repeated=repeated)))
    assert torch.allclose(gradient(again.differentiable, x), gradient(whole.differentiable, x), atol=1e-7)
    assert kept_bytes(again.differentiable, x) < kept_bytes(whole.differentiable, x) / 3
    assert gradient(whole.differentiable, x).abs().sum() > 0


@pytest.mark.parametrize("name", ["resnet20-natural", "vgg11-natural"])
def test_honest_models_use_no_rule(name):
    assert not StraightThrough().rules_used(ra.load_model(name), torch.rand(2, 3, 32, 32))
