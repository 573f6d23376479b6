"""Gradients against central differences along random directions, and the flags that they raise."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import robustassay as ra
from robustassay import data
from robustassay.evaluation.finite_differences import directional_errors
from robustassay.evaluation.flags import MAX_DIRECTIONAL_ERROR, find_flags
from robustassay.target import LocalModel
from robustassay.threat import Untargeted
from tests.support import masked
from tests.support.toys import CPU, Linear

IMAGES = data.load("cifar10-1k").take(16)


@pytest.fixture(scope="module")
def natural() -> nn.Module:
    return ra.load_model("vgg11-natural")


def errors_of(model: nn.Module, **options: bool) -> Tensor:
    target = LocalModel.of(model, IMAGES.images(slice(0, 1)), CPU)
    target.random = options.get("random", False)
    goal = Untargeted(IMAGES.labels)
    return directional_errors(target, IMAGES.ids, IMAGES.images(slice(None)), goal).error


def flags_of(model: nn.Module) -> set[str]:
    return {flag.name for flag in find_flags(LocalModel(model, 10, CPU), IMAGES, probabilities=False)}


def test_the_gradient_of_a_linear_model_is_exact_and_a_halved_one_is_half_wrong():
    torch.manual_seed(0)
    model = Linear(torch.randn(10, 3072) / 50, torch.zeros(10))
    assert errors_of(model).max() < 1e-2
    halved = errors_of(masked.Lies(model, lambda slope: slope / 2))
    assert halved.min() == pytest.approx(0.5, abs=1e-2)
    assert halved.max() == pytest.approx(0.5, abs=1e-2)


def test_a_gradient_that_overflows_is_wrong():
    torch.manual_seed(0)
    model = Linear(torch.randn(10, 3072) / 50, torch.zeros(10))
    assert (errors_of(masked.Lies(model, lambda slope: slope / 0)) == 1).all()


WRONG: dict[str, Callable[[nn.Module], nn.Module]] = {
    "columns without a graph": masked.partly_detached,
    "losing logits without a graph": masked.detached_losers,
    "values re-scaled": masked.rescaled_gradients,
    "most signs at random": masked.mostly_random_signs,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_gradient_that_is_partly_wrong_is_noticed(name, natural):
    error = errors_of(WRONG[name](natural))
    assert error.median() > 0.5
    assert "misleading-gradients" in flags_of(WRONG[name](natural))


@pytest.mark.parametrize("name", ["vgg11-natural", "resnet20-natural", "resnet20-pgd", "convnet-ibp"])
def test_honest_gradients_are_right(name):
    error = errors_of(ra.load_model(name))
    assert error.isfinite().all()
    assert error.median() < 0.085
    assert error.max() < MAX_DIRECTIONAL_ERROR
    assert flags_of(ra.load_model(name)) == set()


def test_a_model_that_lies_on_some_images_only_is_flagged(natural):
    error = errors_of(masked.lies_on_some(natural))
    assert error.median() < 0.1 < MAX_DIRECTIONAL_ERROR < error.max()
    assert "misleading-gradients" in flags_of(masked.lies_on_some(natural))


def test_random_models_are_examined_with_the_same_draws(natural):
    assert errors_of(masked.noisy(natural), random=True).median() < 0.1
    assert errors_of(masked.noisy(masked.partly_detached(natural)), random=True).median() > 0.5


def test_reduced_precision_is_no_lie(natural, monkeypatch):
    """The type of the parameters says how coarse the model is; here float32 carries values of fewer bits."""
    rounded = masked.RoundsActivations(natural, bits=8)
    assert errors_of(rounded).nanmedian() > 0.2, "or there is nothing to tell apart"
    monkeypatch.setattr(LocalModel, "dtype", torch.bfloat16)
    assert not (errors_of(rounded) > MAX_DIRECTIONAL_ERROR).any()
    assert flags_of(rounded) == set()


def test_dead_regions_put_no_other_sample_in_doubt(natural):
    brightness = IMAGES.images(slice(None)).flatten(1).mean(1).sort().values
    assert flags_of(masked.DeadRegions(natural, float(brightness[2]) + 0.03)) == set()
    assert "zero-gradients" in flags_of(masked.DeadRegions(natural, float(brightness[8])))


def test_a_gradient_of_zero_where_the_model_changes_is_flagged_on_few_images(natural):
    def before(x: Tensor) -> Tensor:
        bright = (x.detach().flatten(1).mean(1) > float(limit)).view(-1, 1, 1, 1)
        return torch.where(bright, x.detach(), x)

    limit = IMAGES.images(slice(None)).flatten(1).mean(1).sort().values[-4]
    assert "zero-gradients" in flags_of(masked.Masked(natural, before=before))
