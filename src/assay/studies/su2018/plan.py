"""The models and attacks of Su et al., as this zoo has them, and the runs they make."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, final

from assay import models as zoo
from assay.errors import BadRequest
from assay.studies.study import Cell, Passes, in_zoo
from assay.threat import L1, L2, LeastLikely, LInf, Norm, RandomTarget, TargetRule, ThreatModel

GoalName = Literal["untargeted", "random", "least-likely"]
RULES: Final[dict[GoalName, TargetRule | None]] = {
    "untargeted": None,
    "random": RandomTarget(),
    "least-likely": LeastLikely(),
}
FIXED: Final = 8
"""The radius of I-FGSM at a fixed budget, and of FGSM where it is to transfer, in 1/255."""

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

    eps: tuple[int, ...] = (2, 4, 8, 16, 32)  # of FGSM, in 1/255
    iterations: tuple[int, ...] = (10, 30, 50)
    kappas: tuple[int, ...] = (0, 10, 20, 30, 40)
    searches: int = 9
    steps: int = 1000
    initial_c: float = 0.01
    goals: tuple[GoalName, ...] = ("untargeted", "random", "least-likely")
    transfer_goals: tuple[GoalName, ...] = ("untargeted", "random")
    models: tuple[str, ...] | None = None
    images: int | None = None
    minimum_images: int | None = None  # of C&W and EAD
    clever_images: int = 100
    clever_batches: int = 100
    clever_samples: int = 512
    says: str = "the settings of the paper, with radii for small images"

    def columns(self) -> tuple[Column, ...]:
        """List the attacks."""
        found = [Column(f"FGSM {n}/255", "fgsm", LInf(n / 255), 1) for n in self.eps]
        for steps in self.iterations:
            text = f"bim:steps={steps},rel_step={1 / steps}"
            found.append(Column(f"I-FGSM {steps}", text, LInf(FIXED / 255), steps))
            found.append(Column(smallest_of(steps), text, LInf(FIXED / 255), ATTEMPTS * steps, smallest_eps=True))
        effort = f"search_steps={self.searches},steps={self.steps},initial_c={self.initial_c:g}"
        passes = self.searches * self.steps
        found += [
            Column(f"C&W κ={kappa}", f"cw:{effort},kappa={kappa:.1f}", L2(1.0), passes, transfers=True)
            for kappa in self.kappas
        ]
        found.append(Column("EAD-L1", f"ead:{effort}", L1(10.0), passes, passes, transfers=True))
        return tuple(found)

    def ways(self) -> tuple[Column, ...]:
        """List the attacks whose examples are shown to other models."""
        chosen = {f"FGSM {FIXED}/255", f"FGSM {2 * FIXED}/255", *(f"I-FGSM {steps}" for steps in self.iterations)}
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
        limit=scale.minimum_images if not isinstance(column.norm, LInf) else None,
    )


def _model(name: str) -> Model:
    if not in_zoo(name):
        raise BadRequest(f"There is no model called {name!r}: see `assay list models`.")
    if name not in zoo.names():
        return Model(name, name)
    card = zoo.card(name)
    depth = card.architecture.get("depth")
    return Model(name, str(card.architecture["name"]), card.parameters, depth, card.clean_accuracy)
