"""The attacks of Su et al., and how much of the study is run in each scope."""

from dataclasses import dataclass
from typing import Final, Literal, final

from robustassay.eps import format_eps
from robustassay.studies.scope import ScopeName
from robustassay.threat import L1, L2, LeastLikely, LInf, Norm, RandomTarget, TargetRule

GoalName = Literal["untargeted", "random", "least-likely"]
TARGET_RULES: Final[dict[GoalName, TargetRule | None]] = {
    "untargeted": None,
    "random": RandomTarget(),
    "least-likely": LeastLikely(),
}
GOAL_TEXTS: Final = {"untargeted": "untargeted", "random": "random target", "least-likely": "least-likely target"}
ATTEMPTS: Final = 3
"""Attacks' worth of gradients that the search of a sample's smallest eps takes, about."""


@final
@dataclass(frozen=True)
class SuAttack:
    """One attack with its settings."""

    name: str
    attack: str
    norm: Norm
    gradients: int
    forwards: int = 0
    smallest_eps: bool = False
    transfers: bool = False  # its images are kept for other models

    @property
    def seeks_minimum(self) -> bool:
        """Whether success counts at any distance."""
        return not isinstance(self.norm, LInf) or self.smallest_eps


@final
@dataclass(frozen=True)
class SuSettings:
    """How much of the study is run."""

    eps: tuple[float, ...] = (2, 4, 8, 16, 32)  # of FGSM, in 1/255
    fixed: float = 8  # of I-FGSM; transfer of FGSM is measured at this and at twice this
    start: float = 8  # first radius of the search of the smallest one
    iterations: tuple[int, ...] = (10, 30, 50)
    kappas: tuple[int, ...] = (0, 10, 20, 30, 40)
    searches: int = 9
    steps: int = 1000
    initial_c: float = 0.01
    elastic: bool = True  # whether EAD-L1 is among the attacks
    goals: tuple[GoalName, ...] = ("untargeted", "random", "least-likely")
    transfer_goals: tuple[GoalName, ...] = ("untargeted", "random")
    models: tuple[str, ...] | None = None
    images: int | None = None
    minimum_images: int | None = None  # of C&W and EAD
    clever_images: int = 100
    clever_batches: int = 100
    clever_samples: int = 512
    clever_radius: float = 2.0  # well beyond the distances of models trained on clean images
    photographs: bool = False
    description: str = "the settings of the paper, with radii for small images"

    def attacks(self) -> tuple[SuAttack, ...]:
        """List the attacks."""
        found = [SuAttack(_fgsm(n), "fgsm", LInf(n / 255), 1) for n in self.eps]
        for steps in self.iterations:
            text = f"bim:steps={steps},rel_step={1 / steps}"
            found.append(SuAttack(f"I-FGSM {steps}", text, LInf(self.fixed / 255), steps))
            start = LInf(self.start / 255)
            found.append(SuAttack(smallest_eps_name(steps), text, start, ATTEMPTS * steps, smallest_eps=True))
        effort = f"search_steps={self.searches},steps={self.steps},initial_c={self.initial_c:g}"
        passes = self.searches * self.steps
        found += [
            SuAttack(f"C&W κ={kappa}", f"cw:{effort},kappa={kappa:.1f}", L2(1.0), passes, transfers=True)
            for kappa in self.kappas
        ]
        elastic = SuAttack("EAD-L1", f"ead:{effort}", L1(10.0), passes, passes, transfers=True)
        return (*found, elastic) if self.elastic else tuple(found)

    def transferred(self) -> tuple[SuAttack, ...]:
        """List the attacks whose examples are tested on other models."""
        chosen = {_fgsm(self.fixed), _fgsm(2 * self.fixed), *(f"I-FGSM {steps}" for steps in self.iterations)}
        ends = {f"C&W κ={kappa}" for kappa in (self.kappas[0], self.kappas[-1])}
        return tuple(attack for attack in self.attacks() if attack.name in chosen | ends or attack.name == "EAD-L1")


FULL: Final = SuSettings()
QUICK: Final = SuSettings(
    eps=(4, 8, 16),
    iterations=(10,),
    kappas=(0, 20),
    searches=4,
    steps=30,
    initial_c=1.0,
    goals=("untargeted", "random"),
    models=tuple(
        f"{name}-natural"
        for name in (
            *("alexnet", "vgg11", "vgg16", "inception", "mobilenet025", "mobilenet"),
            *("resnet20", "resnet32", "resnet56"),
        )
    ),
    images=40,
    minimum_images=24,
    clever_images=12,
    clever_batches=20,
    clever_samples=8,
    description="without the least-likely target and the slow models (DenseNets, NASNet); I-FGSM with 10 iterations; "
    "C&W and EAD-L1 with 4 x 30 steps instead of 9 x 1,000, kappa 0 and 20; CLEVER from 20 x 8 points instead of "
    "100 x 512",
)


IMAGENET: Final = SuSettings(
    eps=(4, 8, 16, 32, 76.5),
    fixed=16,
    start=4,
    iterations=(10, 30),
    kappas=(0, 40),
    searches=5,
    steps=100,
    initial_c=1.0,
    goals=("untargeted", "random"),
    images=100,
    minimum_images=24,
    clever_images=16,
    clever_batches=40,
    clever_samples=32,
    clever_radius=5.0,
    photographs=True,
    description="100 photographs, 24 for C&W and EAD-L1, 16 for CLEVER; no least-likely target; I-FGSM with 10 and 30 "
    "iterations; C&W and EAD-L1 with 5 x 100 steps instead of 9 x 1,000, kappa 0 and 40; CLEVER from 40 x 32 points "
    "instead of 100 x 512",
)
IMAGENET_QUICK: Final = SuSettings(
    eps=(16, 76.5),
    fixed=16,
    start=4,
    iterations=(10,),
    kappas=(0,),
    searches=3,
    steps=20,
    initial_c=10.0,
    elastic=False,
    goals=("untargeted", "random"),
    models=(
        *("mobilenet-v1-0.25-128", "mobilenet-v1-0.5-160", "mobilenet-v1-1.0-224", "mobilenet-v2-1.0-224"),
        *("squeezenet-1.1", "efficientnet-lite0", "efficientnet-lite1", "efficientnet-b0"),
    ),
    images=16,
    minimum_images=8,
    clever_images=4,
    clever_batches=8,
    clever_samples=4,
    clever_radius=5.0,
    photographs=True,
    description="16 photographs, 8 for C&W, 4 for CLEVER, and the eight fastest networks; no EAD-L1, no least-likely "
    "target; I-FGSM with 10 iterations; C&W with 3 x 20 steps instead of 9 x 1,000 and kappa 0; CLEVER from 8 x 4 "
    "points instead of 100 x 512",
)
"""For ImageNet; 76.5/255 is the 0.3 of the paper's figures."""


def _fgsm(n: float) -> str:
    return f"FGSM {format_eps(n / 255)}"


def smallest_eps_name(steps: int) -> str:
    """Name the search of the smallest radius for I-FGSM."""
    return f"I-FGSM {steps}, smallest eps"


SETTINGS: Final[dict[ScopeName, SuSettings]] = {
    "full": FULL,
    "quick": QUICK,
    "imagenet": IMAGENET,
    "imagenet-quick": IMAGENET_QUICK,
}
