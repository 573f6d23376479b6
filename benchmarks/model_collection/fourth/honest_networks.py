"""Honest models: unusual designs, trainings and wrappers, with nothing hidden."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from benchmarks.model_collection.bases import ALEXNET, BASES, CERTIFIED, MOBILENET, RESNET, ROBUST, SPOTS, VGG
from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.fourth import unusual_networks as unusual
from benchmarks.model_collection.honest import Around, honest
from benchmarks.model_collection.networks import Objective, convolutions, perceptron, plain, trained
from benchmarks.model_collection.second.masks_trained import SOURCES

Make = Callable[[], nn.Module]
STEPS: Final = 150
FACTS: Final[dict[str, tuple[int, tuple[int, int, int], float]]] = {
    **SOURCES,
    "waves": (2, (1, 12, 48), 12 / 255),
    "cifar10 24x24": (10, (3, 24, 24), 6 / 255),
    "cifar10 40x40": (10, (3, 40, 40), 8 / 255),
    "cifar10 animals": (2, (3, 32, 32), 8 / 255),
    "cifar10 five groups": (5, (3, 32, 32), 4 / 255),
    "cifar10 six classes": (6, (3, 32, 32), 2 / 255),
}


def squared_errors(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the squared distance to labels of 0 and 1."""
    z: Tensor = net(x)
    return (z - F.one_hot(y, z.shape[1])).square().sum(1).mean()


def against_the_rest(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the sum of one binary loss per class."""
    z = net(x)
    return F.binary_cross_entropy_with_logits(z, F.one_hot(y, z.shape[1]).to(z), reduction="sum") / len(x)


def normalised_logits(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the loss of logits of length 25 (Wei et al. 2022)."""
    return F.cross_entropy(25 * F.normalize(net(x), dim=1), y)


def trades(net: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
    """Return the loss plus the change of the probabilities under an attack of two steps (Zhang et al. 2019)."""
    known = net(x).log_softmax(1)
    delta = eps * (2 * torch.rand_like(x) - 1)
    for _ in range(2):
        delta.requires_grad_(True)
        change = F.kl_div(net(x + delta).log_softmax(1), known.detach(), log_target=True, reduction="sum")
        (slope,) = torch.autograd.grad(change, delta)
        delta = (delta + 0.75 * eps * slope.sign()).clamp(-eps, eps).detach()
    change = F.kl_div(net((x + delta).clamp(0, 1)).log_softmax(1), known, log_target=True, reduction="batchmean")
    return F.nll_loss(known, y) + 4 * change


def with_dead_units(net: nn.Module) -> nn.Module:
    """Return a copy of which every second unit of the second layer never fires."""
    net = copy.deepcopy(net)
    norm = next(part for part in list(net.modules())[::-1] if isinstance(part, nn.BatchNorm2d))
    with torch.no_grad():
        norm.bias[::2] = -20
    return net


class WeightsInDictionary(nn.Module):
    """Calls a network with weights that are kept in a dictionary."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = (copy.deepcopy(net).to("meta"),)
        self.weights = {name: values.detach().clone() for name, values in net.state_dict().items()}

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = functional_call(self.net[0], self.weights, (x,))
        return logits


class Stacked(nn.Module):
    """The mean of members of one design, called at once with stacked weights in float64."""

    def __init__(self, members: list[nn.Module]) -> None:
        super().__init__()
        weights, _ = stack_module_state([member.double() for member in members])
        self.weights = nn.ParameterDict({name.replace(".", "/"): values for name, values in weights.items()})
        self.design = (copy.deepcopy(members[0]).to("meta"),)

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean of the log-probabilities."""
        weights = {name.replace("/", "."): values for name, values in self.weights.items()}
        answers = vmap(lambda one: functional_call(self.design[0], one, (x.double(),)))(weights)
        mean: Tensor = answers.log_softmax(2).mean(0)
        return mean


def stacked() -> nn.Module:
    """Return three stacked dense networks."""
    dense = partial(perceptron, 784, 11, nn.GELU, 64)
    return Stacked([trained(f"latest member {steps}", dense, "symbols 11", steps) for steps in (120, 140, 160)])


def log_odds(z: Tensor) -> Tensor:
    """Return the log-odds of each class against all others."""
    p = z.log_softmax(1)
    return p - torch.log(-torch.expm1(p.clamp(max=-1e-6)))


def facts_of(images: str) -> dict[str, Any]:
    """Return what an entry says of its images."""
    classes, shape, eps = FACTS[images]
    return {"images": images, "classes": classes, "shape": shape, "eps": eps}


def one(family: str, images: str, make: Make, objective: Objective = plain) -> Entry:
    """Return one small trained network."""
    name = f"{family}, {images}"
    made = f"trained for {STEPS} steps on {images}"
    build = partial(trained, f"latest {name}", make, images, STEPS, objective=objective)
    return honest(family, name, made, build, **facts_of(images))


def wrapped(family: str, name: str, base: str, make: Callable[[nn.Module], nn.Module]) -> Entry:
    """Return a base with a wrapper."""
    found = BASES[base]
    facts = {"images": found.images, "classes": found.classes, "shape": found.shape, "eps": found.eps}
    return honest(family, f"{name}, {base}", f"{base} with a harmless wrapper", lambda: make(found.load()), **facts)


def after(change: Callable[[Tensor], Tensor]) -> Callable[[nn.Module], nn.Module]:
    """Return a wrapper that changes the logits."""
    return lambda net: Around(net, after=change)


def entries() -> list[Entry]:
    """Return the honest models of this file."""
    return [
        *(one(*row) for row in DESIGNS),
        *(one(*row) for row in TRAININGS),
        wrapped("extreme temperatures", "times 0.01", RESNET, after(lambda z: 0.01 * z)),
        wrapped("extreme temperatures", "times 100", ROBUST, after(lambda z: 100 * z)),
        wrapped("soft caps", "tanh at 30", VGG, after(lambda z: 30 * torch.tanh(z / 30))),
        wrapped("soft caps", "arctangent at 5", CERTIFIED, after(lambda z: 5 * torch.atan(z / 5))),
        wrapped("log-odds", "against all others", MOBILENET, after(log_odds)),
        wrapped("dead units", "half of a layer", SPOTS, with_dead_units),
        wrapped("weights in a dictionary", "functional call", ALEXNET, WeightsInDictionary),
        honest("stacked members", "three dense members", "three members in one call", stacked,
               **facts_of("symbols 11")),
    ]  # fmt: skip


DESIGNS: Final[list[tuple[str, str, Make]]] = [
    ("bags of patches", "textures", lambda: unusual.BagOfPatches(3, 4, 5, 1)),
    ("bags of patches", "cifar10 six classes", lambda: unusual.BagOfPatches(3, 6, 8, 3)),
    ("capsules", "symbols 10", lambda: unusual.Capsules(1, 10)),
    ("differential equations", "spots", lambda: unusual.Flow(5, 20)),
    ("coordinates of pixels", "pairs", lambda: unusual.Coordinates(convolutions(3, 100))),
    ("queries of classes", "symbols 16", lambda: unusual.Queries(1, 16, 4)),
    ("sums of bumps", "textures", lambda: unusual.two_sums(768, 4)),
    ("sums of bumps", "waves", lambda: unusual.two_sums(576, 2)),
    ("highway layers", "symbols 11", lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 64), *(unusual.Highway(64) for _
        in range(6)), nn.Linear(64, 11))),
    ("several heads", "cifar10 five groups", lambda: unusual.Exits(3, 5)),
    ("temperature of the image", "spots", lambda: unusual.OwnTemperature(5, 20)),
    ("temperature of the image", "cifar10 animals", lambda: unusual.OwnTemperature(3, 2)),
    ("trained autoencoders", "symbols 10", lambda: unusual.Cleaned(1, convolutions(1, 10))),
    ("fixed filters", "cifar10 24x24", lambda: unusual.FixedFilters(3, 10)),
    ("shared halves", "pairs", lambda: unusual.Halves(1, 100)),
    ("pyramids", "cifar10 grey 28x28", lambda: unusual.Pyramid(1, 10)),
    ("pixels as channels", "cifar10 40x40", lambda: unusual.pixels_as_channels(3, 10, 4)),
    ("filters along rows", "waves", lambda: unusual.as_sequence(12, 48, 2)),
    ("bounded activations", "textures", lambda: convolutions(3, 4, nn.Hardtanh)),
]  # fmt: skip
TRAININGS: Final[list[tuple[str, str, Make, Objective]]] = [
    ("squared errors", "symbols 10", lambda: convolutions(1, 10), squared_errors),
    ("each class against the rest", "spots", lambda: convolutions(5, 20), against_the_rest),
    ("normalised logits", "pairs", lambda: convolutions(1, 100), normalised_logits),
    ("small networks by TRADES", "symbols 16", lambda: convolutions(1, 16, nn.SiLU), partial(trades, eps=10 / 255)),
    ("small networks by TRADES", "textures", lambda: unusual.BagOfPatches(3, 4, 5, 2), partial(trades, eps=12 / 255)),
]  # fmt: skip
