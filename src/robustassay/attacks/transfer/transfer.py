"""Transfer attacks: adversarial examples made on a substitute model, tried on the model under attack."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from robustassay import models
from robustassay.attacks.attack import Attack, AttackInfo
from robustassay.attacks.gradient.mim import MIM
from robustassay.attacks.transfer.crafted import CraftedImages
from robustassay.defenses import Ensemble
from robustassay.errors import BadRequest
from robustassay.models.sources.imagenet import entry_of
from robustassay.registry import name_of, register
from robustassay.rng import Streams
from robustassay.target import DecisionAccess, GradientAccess, Ledger, LocalModel, TargetModel
from robustassay.threat import L1, L2, Ball, Goal, LInf

DEFAULT_ATTACK: Final = MIM()
_CRAFTED: Final = CraftedImages()


@final
@register("attack", "transfer")
@dataclass(frozen=True)
class Transfer(Attack[DecisionAccess]):
    """Runs another attack on a substitute model and queries the model under attack once, at the last point.

    `source` names a model of the zoo, or one such as imagenet:resnet34, or several joined by +, whose logits are then
    averaged (Liu et al. 2017, arXiv:1611.02770). `attack` is the attack on it, as in `attack=mim(steps=5)`. It makes
    all its steps: success on the substitute does not stop it. Queries to the substitute are free.
    """

    info = AttackInfo(
        papers=("1611.02770",),
        formula="x = `attack` run to its end on the model `source`; shown to the model under attack once",
    )
    access = DecisionAccess
    norms = (LInf, L2, L1)

    source: str = "resnet20-pgd"
    """Substitute model, or several joined by +, whose logits are averaged."""
    attack: Attack[Any] = DEFAULT_ATTACK
    """The attack on the substitute."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not issubclass(self.attack.access, GradientAccess) or self.attack.seeks_minimum:
            name = name_of("attack", type(self.attack))
            raise BadRequest(f"{name} cannot be run on a substitute: use a gradient attack such as mim or pgd.")
        for name in self.source.split("+"):
            _classes(name)
        object.__setattr__(self, "norms", self.attack.norms)

    def __call__(self, view: DecisionAccess, x0: Tensor) -> Tensor:
        """Attack the substitute with all steps and return the last points."""
        return self.make(view.ball, view.goal, view.rng)

    def make(self, ball: Ball, goal: Goal, rng: Streams) -> Tensor:
        """Make adversarial images on the substitute, without a query to the target; known ones are not made again."""
        return _CRAFTED.get(f"{self.source} {self.attack}", ball, goal, rng, self._craft)

    def _craft(self, ball: Ball, goal: Goal, rng: Streams) -> Tensor:
        centre = ball.centre
        rows = torch.arange(len(centre), device=centre.device)
        ledger = Ledger.never_done(ball, goal)
        view = GradientAccess(load_substitute(self.source, centre.device), ledger, rng, rows, lambda _: None)
        last: Tensor = self.attack(view, centre)
        return last


@lru_cache(maxsize=2)
def load_substitute(source: str, device: torch.device) -> TargetModel:
    """Load a substitute, or a group of them that answers as one; the last ones are kept for the next wave."""
    members: list[nn.Module] = [models.load(name) for name in source.split("+")]
    module = members[0] if len(members) == 1 else Ensemble(members, average="logits").eval()
    classes = {_classes(name) for name in source.split("+")}
    if len(classes) > 1:
        raise BadRequest(f"The models of {source} know different numbers of classes: name models of one dataset.")
    return LocalModel(module, classes.pop(), device)


def _classes(name: str) -> int:
    """Return how many classes a substitute knows: one of the zoo, or a network for ImageNet, both by their weights."""
    kind, colon, network = name.partition(":")
    if colon and kind == "imagenet":
        return entry_of(network).classes
    return models.card(name).classes
