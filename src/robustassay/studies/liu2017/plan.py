"""What is done: the models, how much of the study, and the sets of examples that its tables are about."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, final

from robustassay import models
from robustassay.errors import BadRequest, UnknownName
from robustassay.models.from_file import is_file_spec
from robustassay.models.sources import is_source_spec

Method = Literal["opt", "opt-small", "opt-large", "fg", "fgs"]
"""Optimisation at the paper's learning rate, a small one and a large one; fast gradient; fast gradient sign."""

METHODS: Final[dict[Method, str]] = {
    "opt": "optimisation",
    "opt-small": "optimisation, small learning rate",
    "opt-large": "optimisation, large learning rate",
    "fg": "FG",
    "fgs": "FGS",
}


@final
@dataclass(frozen=True)
class Kind:
    """One set of examples: one attack and goal, on each model alone or on all but each."""

    method: Method
    targeted: bool
    ensemble: bool

    @property
    def name(self) -> str:
        """Name the set in folders."""
        return f"{self.method}-{'targeted' if self.targeted else 'untargeted'}{'-ensemble' if self.ensemble else ''}"

    @property
    def says(self) -> str:
        """Name the set for people."""
        goal = "targeted" if self.targeted else "untargeted"
        return f"{goal} {METHODS[self.method]}, {'all models but one' if self.ensemble else 'one model'}"

    @property
    def paced_by(self) -> "Kind":
        """Return the set whose distortion a fast gradient set is matched to."""
        return Kind("opt", self.targeted, self.ensemble)


KINDS: Final = (
    Kind("opt", False, False),
    Kind("opt", True, False),
    Kind("opt", True, True),
    Kind("opt", False, True),
    Kind("opt-small", False, False),
    Kind("opt-large", True, False),
    *(Kind(method, targeted, ensemble) for method in ("fg", "fgs") for targeted in (False, True)
      for ensemble in (False, True)),
)  # fmt: skip


@final
@dataclass(frozen=True)
class Scale:
    """How much of the study is done."""

    models: tuple[str, ...] = ("resnet56", "vgg16", "densenet40", "mobilenet", "alexnet")
    images: int = 100
    steps: int = 100
    rate: float = 4.0  # learning rates are on the 0 to 255 scale, as in the paper
    small_rate: float = 0.125
    large_rate: float = 8.0
    draws: int = 100  # of Gaussian noise, for each image
    ray_step: float = 0.1
    ray_end: float = 100.0
    grid: int = 101  # points a side of a plane
    without: frozenset[str] = frozenset()  # names of sets
    candidates: int | None = None  # images from which those are chosen that all models know; all by default
    says: str = "the paper's numbers of images, steps and draws"

    def kinds(self) -> list[Kind]:
        """List the sets, those that others are matched to first."""
        return [kind for kind in KINDS if kind.name not in self.without]

    def rate_of(self, kind: Kind, members: int) -> float:
        """Return the learning rate of an optimisation; several models share one, so that their sum goes no farther."""
        if kind.ensemble:
            return self.rate / members
        return {"opt-small": self.small_rate, "opt-large": self.large_rate}.get(kind.method, self.rate)


FULL: Final = Scale()
QUICK: Final = Scale(
    models=("resnet20", "resnet32", "vgg16", "mobilenet025", "alexnet"),
    images=20,
    draws=5,
    ray_step=1.0,
    grid=31,
    without=frozenset({"opt-large-targeted"}),
    says="20 images instead of 100; small models of four families; 5 draws of noise an image instead of 100; rays in "
    "steps of 1 instead of 0.1; no large learning rate",
)


IMAGENET: Final = Scale(
    models=("resnet34", "efficientnet-b0", "squeezenet-1.1", "mobilenet-v2-1.0-224", "mobilenet-v1-1.0-224"),
    images=40,
    draws=10,
    ray_step=1.0,
    grid=51,
    candidates=200,
    says="40 photographs instead of 100; 10 draws of noise an image instead of 100; rays in steps of 1 instead of 0.1",
)
IMAGENET_QUICK: Final = Scale(
    models=("mobilenet-v1-1.0-224", "mobilenet-v2-1.0-224", "squeezenet-1.1", "efficientnet-lite0", "efficientnet-b0"),
    images=2,
    steps=10,
    draws=1,
    ray_step=10.0,
    grid=7,
    candidates=12,
    without=frozenset({"opt-large-targeted", "opt-small-untargeted", "opt-untargeted-ensemble",
                       "fg-untargeted-ensemble", "fgs-untargeted-ensemble", "fg-targeted-ensemble"}),
    says="2 photographs instead of 100; 10 steps of optimisation instead of 100; one draw of noise an image instead of "
    "100; rays in steps of 10 instead of 0.1; no small or large learning rate; ensembles with a target only",
)  # fmt: skip


def choose(names: Sequence[str]) -> dict[str, str]:
    """Return what to load by the name that tables show; `vgg16` stands for the zoo's `vgg16-natural`."""
    found: dict[str, str] = {}
    for name in names:
        label, model = _resolved(name)
        if label in found:
            raise BadRequest(f"{label} is named twice: name each model once.")
        found[label] = model
    if len(found) < 3:
        raise BadRequest("Name at least 3 models: an ensemble of all but one needs two or more.")
    return found


def _resolved(name: str) -> tuple[str, str]:
    inner = name.rpartition("|")[2].strip()
    if is_file_spec(inner):
        return f"{Path(inner.partition(':')[0]).stem}:{inner.rpartition(':')[2]}", name
    if is_source_spec(inner):
        return f"{name[: len(name) - len(inner)]}{inner.rpartition(':')[2]}", name
    for known in (inner, f"{inner}-natural"):
        if known in models.names():
            return name.removesuffix("-natural"), name[: len(name) - len(inner)] + known
    raise UnknownName("model", inner, models.names())
