"""The twin that is searched: as good as the model, or none at all."""

import pytest
import torch
from torch import fx, nn

from assay import models
from assay.target.twin import find_twin

X = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def norms(module: nn.Module) -> int:
    return sum(isinstance(part, nn.BatchNorm2d) for part in module.modules())


@pytest.mark.parametrize("name", ["resnet20-pgd", "vgg11-natural", "mobilenet025-natural"])
def test_a_twin_has_fewer_layers_and_the_same_answers_and_gradients(name):
    model = models.load(name).eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    twin = find_twin(model, X)
    assert isinstance(twin, fx.GraphModule)
    called = {node.target for node in twin.graph.nodes if node.op == "call_module"}
    assert not any(isinstance(twin.get_submodule(target), nn.BatchNorm2d) for target in called)
    slopes = []
    for network in (model, twin):
        x = X.clone().requires_grad_()
        logits = network(x)
        slopes.append(torch.autograd.grad(logits.square().sum(), x)[0])
    assert torch.allclose(model(X), twin(X), atol=1e-4)
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
    """Looks at Python state that tracing freezes, so that the twin answers otherwise in other batches."""

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
    assert find_twin(model.eval(), X) is None


def test_a_model_in_training_has_none():
    assert find_twin(models.load("resnet20-pgd").train(), X) is None
