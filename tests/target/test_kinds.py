"""The kinds of targets: what each gives, and that no copy of one becomes another kind."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from robustassay.errors import BadRequest
from robustassay.target import EnsembleModel, LocalModel, SurrogateModel, TargetModel
from robustassay.target.surrogate import Surrogate
from robustassay.threat import Untargeted
from robustassay.threat.losses import logit_margin
from tests.support.toys import CPU, images

CLASSES = 3


class Plain(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        weight = torch.randn(CLASSES, 6, generator=torch.Generator().manual_seed(seed))
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.weight.T


class Stepped(Plain):
    """Rounds its input, and declares the identity for its gradient (BPDA)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward((x * 4).round() / 4)

    def differentiable(self, x: Tensor) -> Tensor:
        return super().forward(x + ((x * 4).round() / 4 - x).detach())


def local(seed: int = 0, draws: int = 1) -> LocalModel:
    return LocalModel(Plain(seed).eval(), CLASSES, CPU, 8, draws)


def surrogate(margin_error: float) -> SurrogateModel:
    return SurrogateModel(local(), Surrogate(Plain(0).eval(), "float16", torch.float32, margin_error))


def ensemble(join: str = "probabilities") -> EnsembleModel:
    return EnsembleModel([local(1), local(2), local(3)], join, [0.1, 0.2, 0.4])  # type: ignore[arg-type]


TARGETS: dict[str, Callable[[], TargetModel]] = {
    "local": local,
    "folded surrogate": lambda: surrogate(0.0),
    "surrogate in half precision": lambda: surrogate(0.1),
    "ensemble": ensemble,
    "ensemble by losses": lambda: ensemble("losses"),
    "ensemble by logits": lambda: ensemble("logits"),
}
every_target = pytest.mark.parametrize("name", TARGETS)


def answers(target: TargetModel) -> list[Tensor]:
    x, goal = images(5, (2, 3)), Untargeted(torch.tensor([0, 1, 2, 0, 1]))
    return [target.logits(x), *target.gradient(x, logit_margin, goal), *target.jacobian(x, goal.labels[:, None])]


@every_target
def test_a_copy_is_of_the_same_kind_and_gives_the_same_bits(name: str) -> None:
    target = TARGETS[name]()
    for copy in (target.on(CPU), target.with_draws(1), target.on(CPU).on(CPU)):
        assert type(copy) is type(target)
        assert copy is not target
        assert copy.margin_error == target.margin_error
        assert copy.surrogate_name == target.surrogate_name
        for one, other in zip(answers(target), answers(copy), strict=True):
            assert torch.equal(one, other)


@every_target
def test_a_copy_has_seen_no_nan(name: str) -> None:
    target = TARGETS[name]()
    target._watch._late = True
    target._watch.see_logits(torch.tensor([torch.nan]))
    target.on(CPU).check()
    target.discard_unchecked_outputs()
    target.check()


@every_target
def test_facts_of_targets_in_this_process(name: str) -> None:
    target = TARGETS[name]()
    assert not target.is_remote
    assert target.gives_scores
    assert target.gives_gradients
    assert target.passes == (1, 1)
    x = images(2, (2, 3))
    assert target.quantise(x) is x
    torch.testing.assert_close(target.call(x), target.logits(x))


def test_the_exact_model_of_a_surrogate_is_local_and_has_its_batch_size() -> None:
    target = surrogate(0.1)
    assert type(target.exact) is LocalModel
    assert target.exact.module is target.module
    target._calls.batching.batch_size = 4
    assert target.exact.batch_size == 4
    assert local().exact.margin_error == 0
    whole = ensemble()
    assert whole.exact is whole


def test_a_minimum_is_searched_on_the_exact_model_where_margins_are_uncertain() -> None:
    half, folded = surrogate(0.1), surrogate(0.0)
    assert half.for_search(exactly=False) is half
    assert type(half.for_search(exactly=True)) is LocalModel
    assert folded.for_search(exactly=True) is folded


def test_another_module_around_a_surrogate_is_a_local_model_and_around_an_ensemble_an_error() -> None:
    other = Plain(7).eval()
    assert type(surrogate(0.1).with_module(other)) is LocalModel
    assert local(draws=4).with_module(other).draws == 4
    with pytest.raises(BadRequest, match="no single module"):
        ensemble().with_module(other)


def test_a_declared_gradient_costs_one_more_forward_pass_and_changes_no_logits() -> None:
    target = LocalModel(Stepped(0).eval(), CLASSES, CPU, 8, draws=1)
    x, goal = images(5, (2, 3)), Untargeted(torch.tensor([0, 1, 2, 0, 1]))
    assert target.is_adaptive
    assert target.passes == (2, 1)
    gradient, logits = target.gradient(x, logit_margin, goal)
    assert torch.equal(logits, target.logits(x))
    plain, _ = local().gradient((x * 4).round() / 4, logit_margin, goal)
    torch.testing.assert_close(gradient, plain)


def test_draws_of_a_random_model_are_averaged() -> None:
    class Random(Plain):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + torch.randn(len(x), 1)

    target = LocalModel(Random(0).eval(), CLASSES, CPU, 64, draws=16)
    x = images(3, (2, 3))
    assert target.random
    assert target.passes == (16, 16)
    assert target.drawn_logits(x).shape == (3, 16, CLASSES)
    one, mean = (torch.stack([ask(x)[:, 0] for _ in range(50)]).std(0) for ask in (target.logits, target.mean_logits))
    assert (mean < one / 2).all()
    assert target.with_draws(1).passes == (1, 1)
    assert target.with_draws(1).random, "it still draws random numbers"


def test_classes_are_counted_by_one_call() -> None:
    target = LocalModel.of(Plain(0).eval(), images(4, (2, 3)), CPU)
    assert target.classes == CLASSES
