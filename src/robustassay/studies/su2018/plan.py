"""The models and attacks of Su et al., as this zoo has them, and the runs they make."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, final

from robustassay import models as zoo
from robustassay.eps import format_eps
from robustassay.errors import BadRequest
from robustassay.studies.photographs import entry_of
from robustassay.studies.study import Cell, Passes, in_zoo
from robustassay.threat import L1, L2, LeastLikely, LInf, Norm, RandomTarget, TargetRule, ThreatModel

GoalName = Literal["untargeted", "random", "least-likely"]
RULES: Final[dict[GoalName, TargetRule | None]] = {
    "untargeted": None,
    "random": RandomTarget(),
    "least-likely": LeastLikely(),
}
ATTEMPTS: Final = 3
"""Whole attacks' worth of gradients that the search of a sample's smallest eps takes, about."""


@final
@dataclass(frozen=True)
class Model:
    """One model of the study; what is not known of it stays out of the comparisons that need it."""

    name: str
    family: str
    parameters: int | None = None
    depth: int | None = None
    accuracy: float | None = None  # on the whole test set, by its card; else measured on the images at hand
    said_by: str = "its card"

    @property
    def label(self) -> str:
        """A short name, for tables and pictures."""
        return self.name.removesuffix("-natural").rpartition(":")[2]


@final
@dataclass(frozen=True)
class Column:
    """One attack with its settings."""

    name: str
    attack: str
    norm: Norm
    gradients: int
    looks: int = 0
    smallest_eps: bool = False
    transfers: bool = False  # its images are kept, to be shown to other models

    @property
    def seeks_minimum(self) -> bool:
        """Whether a success counts at any distance."""
        return not isinstance(self.norm, LInf) or self.smallest_eps


@final
@dataclass(frozen=True)
class Scale:
    """How much of the study is done."""

    eps: tuple[float, ...] = (2, 4, 8, 16, 32)  # of FGSM, in 1/255
    fixed: float = 8  # of I-FGSM at a fixed budget, and of FGSM, at this and twice as much, where it is to transfer
    start: float = 8  # where the search of the smallest radius begins
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
    says: str = "the settings of the paper, with radii for small images"

    def columns(self) -> tuple[Column, ...]:
        """List the attacks."""
        found = [Column(_fgsm(n), "fgsm", LInf(n / 255), 1) for n in self.eps]
        for steps in self.iterations:
            text = f"bim:steps={steps},rel_step={1 / steps}"
            found.append(Column(f"I-FGSM {steps}", text, LInf(self.fixed / 255), steps))
            found.append(Column(smallest_of(steps), text, LInf(self.start / 255), ATTEMPTS * steps, smallest_eps=True))
        effort = f"search_steps={self.searches},steps={self.steps},initial_c={self.initial_c:g}"
        passes = self.searches * self.steps
        found += [
            Column(f"C&W κ={kappa}", f"cw:{effort},kappa={kappa:.1f}", L2(1.0), passes, transfers=True)
            for kappa in self.kappas
        ]
        elastic = Column("EAD-L1", f"ead:{effort}", L1(10.0), passes, passes, transfers=True)
        return (*found, elastic) if self.elastic else tuple(found)

    def ways(self) -> tuple[Column, ...]:
        """List the attacks whose examples are shown to other models."""
        chosen = {_fgsm(self.fixed), _fgsm(2 * self.fixed), *(f"I-FGSM {steps}" for steps in self.iterations)}
        ends = {f"C&W κ={kappa}" for kappa in (self.kappas[0], self.kappas[-1])}
        return tuple(column for column in self.columns() if column.name in chosen | ends or column.name == "EAD-L1")


FULL: Final = Scale()
QUICK: Final = Scale(
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
    says="without the least-likely target and the slow models (DenseNets, NASNet); I-FGSM with 10 iterations; C&W and "
    "EAD-L1 with 4 x 30 steps instead of 9 x 1,000, kappa 0 and 20; CLEVER from 20 x 8 points instead of 100 x 512",
)


IMAGENET: Final = Scale(
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
    says="100 photographs, 24 for C&W and EAD-L1, 16 for CLEVER; no least-likely target; I-FGSM with 10 and 30 "
    "iterations; C&W and EAD-L1 with 5 x 100 steps instead of 9 x 1,000, kappa 0 and 40; CLEVER from 40 x 32 points "
    "instead of 100 x 512",
)
IMAGENET_QUICK: Final = Scale(
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
    says="16 photographs, 8 for C&W, 4 for CLEVER, and the eight networks that are quick; no EAD-L1, no least-likely "
    "target; I-FGSM with 10 iterations; C&W with 3 x 20 steps instead of 9 x 1,000 and kappa 0; CLEVER from 8 x 4 "
    "points instead of 100 x 512",
)
"""For ImageNet; 76.5/255 is the 0.3 of the paper's figures."""


def _fgsm(n: float) -> str:
    return f"FGSM {format_eps(n / 255)}"


def smallest_of(steps: int) -> str:
    """Name the search of the smallest radius for I-FGSM."""
    return f"I-FGSM {steps}, smallest eps"


def choose(names: Sequence[str] | None) -> tuple[Model, ...]:
    """Return the models asked for, or all of the zoo that were trained on clean images alone."""
    if names is None:
        names = [name for name in zoo.names() if zoo.card(name).recipe == "natural"]
    return tuple(_model(name) for name in dict.fromkeys(names))


def cells(models: Sequence[Model], scale: Scale) -> tuple[Cell, ...]:
    """List the runs, model by model."""
    return tuple(
        _cell(model, goal, column, scale) for model in models for goal in scale.goals for column in scale.columns()
    )


def _cell(model: Model, goal: GoalName, column: Column, scale: Scale) -> Cell:
    return Cell(
        place=(model.name, goal, column.name),
        model=model.name,
        threat=ThreatModel(column.norm, RULES[goal]),
        attack=column.attack,
        plan=Passes(forwards=column.looks, gradients=column.gradients),
        smallest_eps=column.smallest_eps,
        keep_images=column.transfers and goal in scale.transfer_goals,
        limit=scale.minimum_images if not isinstance(column.norm, LInf) else None,
    )


def _model(name: str) -> Model:
    if not in_zoo(name):
        raise BadRequest(f"There is no model called {name!r}: see `assay list models`.")
    if name not in zoo.names():
        entry = entry_of(name)
        if entry is None or "|" in name:
            return Model(name, name)
        return Model(name, entry.family, entry.parameters, entry.depth, entry.top1, "its publisher")
    card = zoo.card(name)
    depth = card.architecture.get("depth")
    return Model(name, str(card.architecture["name"]), card.parameters, depth, card.clean_accuracy)
