"""The surrogate that is searched: as good as the model, or none at all."""

import threading
from functools import partial

import pytest
import torch
from torch import Tensor, fx, nn

import robustassay as ra
from robustassay import data, errors, models
from robustassay.evaluation import inspection
from robustassay.evaluation.wave import FULL_PRECISION
from robustassay.target import LocalModel, SurrogateModel
from robustassay.target.cuda_graphs import ReplayedModule
from robustassay.target.fused import fuse
from robustassay.target.surrogate import (
    Surrogate,
    _full,
    _half,
    _traced,
    find_surrogate,
    is_replayable,
    logits_and_gradients,
)
from robustassay.threat import Untargeted
from robustassay.threat.losses import logit_margin

X = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def norms(module: nn.Module) -> int:
    return sum(isinstance(part, nn.BatchNorm2d) for part in module.modules())


@pytest.mark.parametrize("name", ["resnet20-pgd", "vgg11-natural", "mobilenet025-natural"])
def test_a_surrogate_has_fewer_layers_and_the_same_answers_and_gradients(name):
    model = models.load(name).eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    found = find_surrogate(model, X)
    assert found is not None
    surrogate = found.module
    assert isinstance(surrogate, fx.GraphModule)
    called = {node.target for node in surrogate.graph.nodes if node.op == "call_module"}
    assert not any(isinstance(surrogate.get_submodule(target), nn.BatchNorm2d) for target in called)
    slopes = []
    for network in (model, surrogate):
        x = X.clone().requires_grad_()
        logits = network(x)
        slopes.append(torch.autograd.grad(logits.square().sum(), x)[0])
    assert torch.allclose(model(X), surrogate(X), atol=1e-4)
    ours, its = slopes
    assert torch.allclose(ours, its, atol=1e-4 * float(ours.abs().max()))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items()), "the model is untouched"


class Branches(nn.Module):
    """What it computes depends on the image: a traced copy would always go one way."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x):
        h = self.norm(self.conv(x)).mean((2, 3))
        return h if x.mean() > 0.5 else -h


class Twice(nn.Module):
    """One convolution with two norms: folding either would change the other's answer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.other = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        nn.init.constant_(self.other.weight, 3.0)

    def forward(self, x):
        return (self.norm(self.conv(x)) + self.other(self.conv(x))).mean((2, 3))


class Counts(nn.Module):
    """Looks at Python state that tracing freezes, so that the surrogate answers otherwise in other batches."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.norm(self.conv(x)).mean((2, 3)) * self.calls


def watched() -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model[1].register_forward_hook(lambda module, inputs, output: 2 * output)
    return model


@pytest.mark.parametrize(
    "model",
    [Branches(), Twice(), Counts(), watched(), nn.Sequential(nn.Flatten(), nn.Linear(3072, 4))],
    ids=["branches", "shared", "state", "hook", "nothing to fold"],
)
def test_a_model_that_cannot_be_taken_apart_has_none(model):
    assert find_surrogate(model.eval(), X) is None


class Volume(nn.Module):
    """A model with a value of rank 5, which no memory format of images fits."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 30 * 30, 10))
        self.register_buffer("shades", torch.rand(1, 2, 3, 1, 1))

    def forward(self, x):
        return self.net((x[:, None] * self.shades).sum(1))


def test_a_model_with_values_of_rank_5_has_one():
    assert find_surrogate(Volume().eval(), X) is not None


def test_a_model_in_training_has_none():
    assert find_surrogate(models.load("resnet20-pgd").train(), X) is None


class Halved(nn.Module):
    """A surrogate as the evaluation sees it, whose logits are off by so much."""

    def __init__(self, model: nn.Module, off: float) -> None:
        super().__init__()
        self.model, self.off = model, off

    def forward(self, x):
        return self.model(x.to(torch.float32)) + self.off


def search_with_margin_error(monkeypatch, surrogate_of) -> None:
    monkeypatch.setattr(inspection, "find_surrogate", lambda module, x: surrogate_of(module))


def test_half_precision_answers_like_the_model_and_fuses_what_can_be_fused():
    model = models.load("resnet20-pgd").eval()
    surrogate = _half(model, _full(model, X), X, logits_and_gradients(model, X))
    assert surrogate is not None
    assert surrogate.dtype == torch.float16
    assert 0 < surrogate.margin_error < 0.2
    assert isinstance(surrogate.module, fx.GraphModule)
    called = [str(node.target) for node in surrogate.module.graph.nodes if node.op == "call_module"]
    kinds = [type(surrogate.module.get_submodule(target)).__name__ for target in called]
    assert kinds.count("_ConvReLU") == 19, "the stem, and two in each of nine blocks"
    assert "ReLU" not in kinds
    assert (surrogate.module(X.half()).float() - model(X)).abs().max() < surrogate.margin_error


class PreActivation(nn.Module):
    """Batch norms in front of convolutions, one of them behind a sum that is used again."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)
        self.norms = nn.ModuleList(nn.BatchNorm2d(4, affine=affine) for affine in (True, True, False))
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))

    def forward(self, x):
        before = self.stem(x)
        total = before + self.convs[0](torch.relu(self.norms[0](before)))
        total = total + self.convs[1](torch.relu(self.norms[1](total)))
        return self.head(torch.relu(self.norms[2](total)).mean((2, 3)))


def test_batch_norms_that_cannot_be_folded_are_fused_with_their_relus():
    torch.manual_seed(0)
    model = PreActivation().eval()
    for name, values in model.state_dict().items():
        if name.startswith("norms") and values.is_floating_point():
            values.uniform_(-1, 1) if "var" not in name else values.uniform_(0.5, 2)
    traced = fx.symbolic_trace(model)
    fuse(traced)
    kinds = [type(traced.get_submodule(str(node.target))) for node in traced.graph.nodes if node.op == "call_module"]
    assert nn.BatchNorm2d not in kinds
    assert len([kind for kind in kinds if kind.__name__ == "_ScaledReLU"]) == 3
    expected, found = (logits_and_gradients(module, X) for module in (model, traced))
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)
    scales = [part.scale for part in traced.half().modules() if type(part).__name__ == "_ScaledReLU"]
    assert all(scale.dtype == torch.float32 for scale in scales), "variances can be beyond the range of half precision"


class GoodOnBright(nn.Module):
    """A surrogate whose gradient points the wrong way on dark images."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x):
        logits = self.model(x.float())
        bright = (x.float().mean((1, 2, 3)) > 0.4)[:, None]
        return torch.where(bright, logits, 2 * logits.detach() - logits)


def test_samples_on_which_the_surrogate_is_not_good_are_searched_on_the_model(monkeypatch):
    exact = evaluate("pgd:steps=3", precision="exact")
    bright = data.load("cifar10-1k").images(slice(0, len(exact.records))).mean((1, 2, 3)) > 0.4
    assert bright.any()
    assert not bright.all()
    for checks in (True, False):
        search_with_margin_error(
            monkeypatch,
            lambda module, checks=checks: Surrogate(GoodOnBright(module), "float16", torch.float16, 1e-4, checks),
        )
        found = evaluate("pgd:steps=3")
        assert found.records["sample_id"].equals(exact.records["sample_id"]), "the order stays"
        on_dark = [result.records["margin"][~bright.numpy()] for result in (found, exact)]
        assert on_dark[0].equals(on_dark[1]) == checks, "dark images are searched on the model if they are checked"


def test_a_model_beyond_the_range_of_half_precision_has_no_such_surrogate():
    model = models.load("resnet20-pgd").eval()

    class Loud(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x):
            return self.model(x) * 1e6

    loud = Loud().eval()
    assert _half(loud, None, X, logits_and_gradients(loud, X)) is None


@pytest.mark.parametrize("attack", ["pgd:steps=3", pytest.param("square:steps=100", marks=pytest.mark.long)])
def test_what_a_search_leaves_in_doubt_is_settled_in_full_precision(monkeypatch, attack):
    exact = evaluate(attack, precision="exact")
    margin_error = 1.5  # larger than many a success
    search_with_margin_error(
        monkeypatch, lambda module: Surrogate(Halved(module, 0.0), "float16", torch.float16, margin_error)
    )
    found = evaluate(attack)
    late = found.records["claimed_by"] == FULL_PRECISION
    assert found.manifest["spec"]["model"]["search"] == "float16"
    assert late.any(), "the search was sure of all it found"
    assert found.records["success"].sum() >= exact.records["success"].sum()
    assert (found.records["valid"] | ~found.records["claimed"]).all()
    assert (found.records["claimed_at_query"].fillna(0) <= found.records["queries"]).all()


def test_an_attack_of_one_step_is_searched_on_the_model(monkeypatch):
    """The last steps in full precision would make a stronger attack of it."""
    exact = evaluate("fgsm", precision="exact")
    search_with_margin_error(monkeypatch, lambda module: Surrogate(Halved(module, 0.0), "float16", torch.float16, 1.5))
    found = evaluate("fgsm")
    assert "search" not in found.manifest["spec"]["model"]
    assert not (found.records["claimed_by"] == FULL_PRECISION).any()
    assert found.records["success"].equals(exact.records["success"])
    assert found.records["margin"].equals(exact.records["margin"])


@pytest.mark.parametrize(("attack", "exactly"), [("nes:steps=2,samples=4", True), ("nattack:steps=2,samples=4", False)])
def test_differences_between_close_points_are_searched_on_the_model(monkeypatch, attack, exactly):
    """float16 rounds most of a difference of 0.001 away."""
    search_with_margin_error(monkeypatch, lambda module: Surrogate(Halved(module, 0.0), "float16", torch.float16, 1e-4))
    assert ("search" not in evaluate(attack).manifest["spec"]["model"]) == exactly


@pytest.mark.parametrize("attack", ["pgd:steps=3", "square:steps=40"])
def test_a_surrogate_without_error_makes_no_other_attack_of_it(monkeypatch, attack):
    exact = evaluate(attack, precision="exact")
    search_with_margin_error(monkeypatch, lambda module: Surrogate(Halved(module, 0.0), "float16", torch.float16, 1e-4))
    found = evaluate(attack)
    assert found.records["success"].equals(exact.records["success"])


def flattened(scale, logits, goal):
    return scale * logit_margin(logits, goal)


def test_a_gradient_in_half_keeps_its_size_however_flat_the_loss_is():
    model = models.load("resnet20-pgd").eval()
    goal = Untargeted(model(X).argmax(1))
    plain = LocalModel(model, 10, torch.device("cpu"), 8)
    half = SurrogateModel(plain, Surrogate(model, "float16", torch.float32, 0.1))
    for scale in (1.0, 1e-12):
        flat = partial(flattened, scale)
        (slope, _), (other, _) = plain.gradient(X, flat, goal), half.gradient(X, flat, goal)
        torch.testing.assert_close(other, slope, rtol=1e-3, atol=1e-5 * float(slope.abs().max()))


def test_a_surrogate_that_fails_is_left_for_the_model_itself(monkeypatch):
    class Broken(nn.Module):
        def forward(self, x):
            raise RuntimeError("no kernel for this many images")

    exact = evaluate("pgd:steps=5", precision="exact")
    search_with_margin_error(monkeypatch, lambda module: Surrogate(Broken(), "float16", torch.float16, 0.1))
    found = evaluate("pgd:steps=5")
    assert found.records["success"].equals(exact.records["success"])


def test_another_head_is_put_on_model_and_surrogate_and_its_error_is_measured_again():
    model = models.load("resnet20-pgd").eval()
    plain = LocalModel(model, 10, torch.device("cpu"), 8)
    surrogate = _half(model, _full(model, X), X, logits_and_gradients(model, X))
    assert surrogate is not None
    half = SurrogateModel(plain, surrogate)
    binary = half.with_head(lambda module: nn.Sequential(module, Halves()), 2, X)
    assert binary.classes == 2
    assert binary.surrogate_name == half.surrogate_name
    assert 0 < binary.margin_error < half.margin_error
    assert 0 < (binary.logits(X) - binary.exact.logits(X)).abs().max() <= binary.margin_error / 4
    torch.testing.assert_close(binary.exact.logits(X), plain.logits(X)[:, :2] / 100)

    def of_the_model_only(module):
        return nn.Sequential(module, Halves()) if not isinstance(module, fx.GraphModule) else module.missing

    assert half.with_head(of_the_model_only, 2, X).surrogate_name is None, "the head does not fit the surrogate"


class Halves(nn.Module):
    """A head that reads two logits, a hundred times smaller."""

    def forward(self, logits):
        return logits[:, :2] / 100


def test_a_minimum_is_never_sought_in_doubt(monkeypatch):
    exact = evaluate("ddn:steps=20", threat=ra.L2(0.5), precision="exact")
    search_with_margin_error(monkeypatch, lambda module: Surrogate(Halved(module, 0.0), "float16", torch.float16, 1.0))
    found = evaluate("ddn:steps=20", threat=ra.L2(0.5))
    assert "search" not in found.manifest["spec"]["model"]
    assert found.records["distance"].equals(exact.records["distance"])


def test_a_surrogate_that_overflows_is_left_for_the_model_itself(monkeypatch):
    exact = evaluate("pgd:steps=10", precision="exact")
    search_with_margin_error(
        monkeypatch, lambda module: Surrogate(Halved(module, float("nan")), "float16", torch.float16, 0.1)
    )
    found = evaluate("pgd:steps=10")
    assert found.records["success"].equals(exact.records["success"])


def evaluate(attack, threat=None, precision="fast"):
    return ra.evaluate(
        "resnet20-pgd",
        "cifar10-1k",
        threat or ra.LInf(8 / 255),
        attack,
        limit=16,
        search=ra.Search(precision=precision),
    )


class Greedy(nn.Module):
    """Runs out of memory on more than 16 images at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.model = models.load("resnet20-pgd").eval()

    def forward(self, x):
        if len(x) > 16:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.model(x)


def test_where_memory_runs_out_batches_are_halved_and_nothing_is_lost():
    x, y = data.load("cifar10-1k").images(slice(0, 40)), data.load("cifar10-1k").labels[:40]
    goal = Untargeted(y)
    greedy = LocalModel(Greedy().eval(), 10, torch.device("cpu"), 64)
    plain = LocalModel(models.load("resnet20-pgd").eval(), 10, torch.device("cpu"), 16)
    for ours, its in zip(greedy.gradient(x, logit_margin, goal), plain.gradient(x, logit_margin, goal), strict=True):
        assert torch.equal(ours, its)
    assert greedy.batch_size == 16


def test_a_model_with_no_memory_for_the_smallest_batch_raises_an_error():
    class Never(Greedy):
        def forward(self, x):
            raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(errors.ModelFailed, match="no memory left"):
        LocalModel(Never().eval(), 10, torch.device("cpu"), 64).logits(X)


@pytest.mark.parametrize("late", [False, True])
def test_nan_is_noticed_at_once_or_when_asked_for(late):
    class Broken(nn.Module):
        def forward(self, x):
            return x.flatten(1)[:, :10] * torch.nan

    network = LocalModel(Broken().eval(), 10, torch.device("cpu"), 8, checks_late=late)
    if late:
        network.logits(X)
    with pytest.raises(errors.ModelFailed, match="returned NaN"):
        network.check() if late else network.logits(X)


def test_another_thread_may_call_its_model_while_one_is_traced():
    other, answers = nn.Sequential(nn.Linear(3, 2)), []

    class Interrupted(nn.Module):
        """In whose forward pass another thread calls another model."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x):
            thread = threading.Thread(target=lambda: answers.append(other(torch.ones(1, 3))))
            thread.start()
            thread.join()
            return self.layer(x)

    assert _traced(Interrupted().eval()) is not None
    assert len(answers) == 1
    assert torch.equal(answers[0], other(torch.ones(1, 3)))


class Declared(nn.Module):
    """A module that says that its calls may be replayed, around another one."""

    replays = True

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """Pass the images on."""
        out: Tensor = self.model(x)
        return out


def test_only_a_module_that_does_the_same_in_every_call_is_replayed():
    plain = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).eval()
    assert is_replayable(plain, random=False)
    assert not is_replayable(plain, random=True), "a random model may draw outside the device"
    assert is_replayable(Declared(plain).eval(), random=True)
    assert not is_replayable(Declared(Branching()).eval(), random=False)
    assert not is_replayable(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), random=False), "training"
    plain.register_forward_hook(lambda *_: None)
    assert not is_replayable(plain, random=False)


def test_a_target_that_replays_gives_the_same_logits():
    x, module = torch.rand(5, 3, 2, 2), nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).eval()
    local = LocalModel(module, 3, torch.device("cpu"))
    assert torch.equal(local.replayed().logits(x), local.logits(x))


@pytest.mark.parametrize("kind", ["plain", "random", "adaptive"])
def test_gradients_are_replayed_of_a_model_that_is_neither_random_nor_adaptive(kind, monkeypatch):
    """Draws of a random model share one backward pass, which a recording could not give."""
    replayed: list[bool] = []
    call = ReplayedModule.__call__

    def counted(self: ReplayedModule, x: Tensor) -> Tensor:
        replayed.append(torch.is_grad_enabled())
        return call(self, x)

    monkeypatch.setattr(ReplayedModule, "__call__", counted)
    module: nn.Module = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).eval()
    if kind == "adaptive":
        module.differentiable = lambda x: module(2 * x)  # type: ignore[assignment]
    if kind == "random":
        module = Declared(module).eval()
    local = LocalModel(module, 3, torch.device("cpu"), draws=2 if kind == "random" else 1, random=kind == "random")
    x, goal, classes = torch.rand(5, 3, 2, 2), Untargeted(torch.zeros(5, dtype=torch.long)), torch.tensor([[0, 2]] * 5)
    found, direct = local.replayed(), LocalModel(module, 3, torch.device("cpu"), draws=local.draws)
    for one, two in zip(found.gradient(x, logit_margin, goal), direct.gradient(x, logit_margin, goal), strict=True):
        assert torch.equal(one, two)
    for one, two in zip(found.jacobian(x, classes), direct.jacobian(x, classes), strict=True):
        assert torch.equal(one, two)
    assert replayed.count(True) == (2 if kind == "plain" else 0)
    assert torch.equal(found.call_differentiable(x), direct.call_differentiable(x))
    assert replayed.count(True) == (2 if kind == "plain" else 0), "hooks see a call that is no replay"


class Branching(nn.Module):
    """A module whose operations depend on the values."""

    def forward(self, x: Tensor) -> Tensor:
        """Double bright images."""
        return x.flatten(1)[:, :3] * (2 if x.sum() > 1 else 1)
