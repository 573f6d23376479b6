"""The attacks of Su et al., and how much of the study is run in each scope."""

from dataclasses import dataclass, replace
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
PAPER_EPS: Final = 76.5
"""The paper's eps of 0.3, in 1/255: the largest of FGSM (Figure 3), and that of I-FGSM where it is transferred
(Figure 4)."""


@final
@dataclass(frozen=True)
class SuAttack:
    """One attack with its settings."""

    name: str
    attack: str
    norm: Norm
    gradients: int
    smallest_eps: bool = False
    kappa: int | None = None  # of C&W and EAD, whose images are kept for other models

    @property
    def seeks_minimum(self) -> bool:
        """Whether success counts at any distance."""
        return not isinstance(self.norm, LInf) or self.smallest_eps

    @property
    def keeps_images(self) -> bool:
        """Whether its own run keeps the images to transfer; others are crafted to the last step."""
        return self.kappa is not None


@final
@dataclass(frozen=True)
class SuSettings:
    """How much of the study is run."""

    eps: tuple[float, ...] = (2, 4, 8, 16, 32, PAPER_EPS)  # of FGSM, in 1/255
    fixed: float = 8  # of I-FGSM
    start: float = 2  # first radius of the search of the smallest one
    iterations: tuple[int, ...] = (10, 30, 50)
    smallest_iterations: int = 50  # of I-FGSM where its smallest radius is searched
    transfer_eps: tuple[float, ...] = (8, 16, PAPER_EPS)  # of FGSM; I-FGSM is transferred at the last
    kappas: tuple[int, ...] = (0, 10, 20, 30, 40)
    searches: int = 5  # of `cw-fast` and `ead-fast`, which come as close as C&W and EAD with fewer gradients
    steps: int = 100
    goals: tuple[GoalName, ...] = ("untargeted", "random", "least-likely")
    transfer_goals: tuple[GoalName, ...] = ("untargeted", "random")
    models: tuple[str, ...] | None = None
    images: int | None = 200
    minimum_images: int | None = 96  # of C&W and EAD; whole calls of 32 images, as a GPU takes them
    minimum_models: tuple[str, ...] | None = None  # that C&W and EAD attack; all by default
    shown_images: int | None = None  # of C&W and EAD crafted for other models; by default those of their runs
    smallest_images: int | None = None  # of the search of I-FGSM's smallest radius
    smallest_goals: tuple[GoalName, ...] | None = None  # of the same; all by default
    transfer_images: int | None = None  # of FGSM and I-FGSM
    targeted_images: int | None = None  # of the same with a target, where fewer
    clever_images: int = 64
    clever_chunk: int = 32  # images that are estimated, and kept, together: on a GPU as fast as few
    clever_batches: int = 25
    clever_samples: int = 128  # fewer leave more fits without an end of their own
    clever_goals: tuple[Literal["random", "least-likely"], ...] = ("random", "least-likely")
    clever_radius: float = 2.0  # well beyond the distances of models trained on clean images
    photographs: bool = False
    description: str = "fewer images and steps than the paper's"

    def attacks(self, goal: GoalName = "untargeted") -> tuple[SuAttack, ...]:
        """List the attacks with a goal; the least likely target is met without the sweeps over kappa."""
        found = [SuAttack(fgsm_name(n), "fgsm", LInf(n / 255), 1) for n in self.eps]
        found += [self.iterated(steps, self.fixed) for steps in self.iterations]
        steps, start = self.smallest_iterations, LInf(self.start / 255)
        found.append(SuAttack(SMALLEST, _bim(steps), start, ATTEMPTS * steps, smallest_eps=True))
        return (*found, *self.minimum_attacks(self.kappas[:1] if goal == "least-likely" else self.kappas))

    def iterated(self, steps: int, n: float) -> SuAttack:
        """Return I-FGSM with steps of eps / T at a radius in 1/255."""
        at = "" if n == self.fixed else f", {format_eps(n / 255)}"
        return SuAttack(f"I-FGSM {steps}{at}", _bim(steps), LInf(n / 255), steps)

    def minimum_attacks(self, kappas: tuple[int, ...]) -> tuple[SuAttack, ...]:
        """Return C&W and EAD-L1 with each kappa."""
        effort, passes = f"search_steps={self.searches},steps={self.steps}", self.searches * self.steps
        ways = ("C&W", f"cw-fast:{effort}", L2(1.0)), ("EAD-L1", f"ead-fast:{effort}", L1(10.0))
        return tuple(
            SuAttack(f"{name} κ={kappa}", f"{text},kappa={kappa:.1f}", norm, passes, kappa=kappa)
            for name, text, norm in ways
            for kappa in kappas
        )

    def limit(self, attack: SuAttack) -> int | None:
        """Return how many images an attack meets at most."""
        return self.minimum_images if attack.keeps_images else self.smallest_images if attack.smallest_eps else None

    def transfer_limit(self, goal: GoalName, attack: SuAttack) -> int | None:
        """Return how many examples of each source are shown to other models at most."""
        if attack.keeps_images:
            return self.shown_images or self.minimum_images
        return self.transfer_images if goal == "untargeted" else self.targeted_images or self.transfer_images

    def meets(self, model: str, goal: GoalName, attack: SuAttack) -> bool:
        """Say whether an attack is run on a model; costly ones may meet some models, or have some goals, alone."""
        if attack.smallest_eps:
            return self.smallest_goals is None or goal in self.smallest_goals
        return not attack.keeps_images or self.minimum_models is None or model in self.minimum_models

    def transferred(self) -> tuple[SuAttack, ...]:
        """List the attacks whose examples are tested on other models: those of Figures 3 to 5, and C&W."""
        largest = self.transfer_eps[-1]
        found = [SuAttack(fgsm_name(n), "fgsm", LInf(n / 255), 1) for n in self.transfer_eps]
        found += [self.iterated(self.iterations[0], self.fixed)]
        found += [self.iterated(steps, largest) for steps in self.iterations]
        return tuple(dict.fromkeys((*found, *self.minimum_attacks(self.kappas))))


SMALLEST: Final = "I-FGSM, smallest eps"
"""The search of the smallest radius for I-FGSM."""


def fgsm_name(n: float) -> str:
    """Name FGSM at a radius in 1/255."""
    return f"FGSM {format_eps(n / 255)}"


def _bim(steps: int) -> str:
    return f"bim:steps={steps},rel_step={1 / steps}"


FULL: Final = SuSettings(shown_images=16)  # those of the published page were crafted on a CPU: a GPU can take more
QUICK: Final = SuSettings(
    eps=(4, 8, 16, PAPER_EPS),
    iterations=(10, 30),
    smallest_iterations=10,
    kappas=(0, 20),
    searches=3,
    steps=15,
    goals=("untargeted", "random"),
    models=tuple(
        f"{name}-natural"
        for name in (
            *("alexnet", "vgg11", "vgg16", "mobilenet025", "mobilenet"),
            *("resnet20", "resnet32", "resnet56", "inception"),
        )
    ),
    images=24,
    minimum_images=12,
    transfer_images=12,
    clever_images=8,
    clever_chunk=8,
    clever_batches=25,
    clever_samples=2,
    clever_goals=("random",),
    description="no least-likely target, I-FGSM with 10 and 30 iterations, kappa 0 and 20, few images and steps",
)
FULL_ON_CPU: Final = replace(
    QUICK,
    images=104,
    minimum_images=32,
    description="no least-likely target, I-FGSM with 10 and 30 iterations, kappa 0 and 20, fewer images and steps",
)
IMAGENET: Final = SuSettings(
    eps=(4, 8, 16, 32, PAPER_EPS),
    fixed=16,
    start=1,
    smallest_iterations=10,
    transfer_eps=(16, 32, PAPER_EPS),
    kappas=(0, 20, 40),
    searches=4,
    steps=50,
    images=104,
    minimum_images=104,
    clever_images=64,
    clever_batches=25,
    clever_samples=32,
    clever_goals=("random",),
    clever_radius=5.0,
    photographs=True,
    description="kappa 0, 20 and 40",
)
IMAGENET_QUICK: Final = SuSettings(
    eps=(16, PAPER_EPS),
    fixed=16,
    start=1,
    iterations=(10,),
    smallest_iterations=10,
    transfer_eps=(16, PAPER_EPS),
    kappas=(0,),
    searches=2,
    steps=20,
    goals=("untargeted", "random"),
    models=(
        *("mobilenet-v1-0.25-128", "mobilenet-v1-0.5-160", "mobilenet-v1-1.0-224", "mobilenet-v2-1.0-224"),
        *("squeezenet-1.1", "efficientnet-lite0", "efficientnet-lite1", "efficientnet-b0"),
    ),
    images=16,
    minimum_images=8,
    clever_images=4,
    clever_batches=25,
    clever_samples=2,
    clever_goals=("random",),
    clever_radius=5.0,
    photographs=True,
    description="no least-likely target, I-FGSM with 10 iterations, kappa 0, few photographs and steps",
)
IMAGENET_ON_CPU: Final = replace(
    IMAGENET,
    eps=(4, 16, PAPER_EPS),
    iterations=(10, 30),
    transfer_eps=(16, PAPER_EPS),
    kappas=(0, 20),
    searches=3,
    steps=25,
    goals=("untargeted", "random"),
    models=("mobilenet-v1-0.25-128", "mobilenet-v1-0.5-160", "mobilenet-v2-1.0-224", "squeezenet-1.1"),
    minimum_images=16,
    minimum_models=("mobilenet-v1-0.25-128", "mobilenet-v1-0.5-160"),
    smallest_images=24,
    smallest_goals=("random",),
    transfer_images=24,
    targeted_images=12,
    clever_images=0,
    description="small networks, C&W and EAD-L1 on two of them, no least-likely target, no CLEVER",
)
SETTINGS: Final[dict[ScopeName, SuSettings]] = {
    "full": FULL,
    "quick": QUICK,
    "imagenet": IMAGENET,
    "imagenet-quick": IMAGENET_QUICK,
}
ON_CPU: Final[dict[ScopeName, SuSettings]] = {"full": FULL_ON_CPU, "imagenet": IMAGENET_ON_CPU}
"""What a CPU measures instead, in about an hour."""
