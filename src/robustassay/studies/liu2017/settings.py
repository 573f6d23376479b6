"""The sets of examples that the tables are about, and how much of the study is run in each scope."""

from dataclasses import dataclass
from typing import Final, Literal, final

from robustassay.studies.scope import ScopeName

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
class ExampleSet:
    """One set of examples: an attack and a goal, on each model alone or on each ensemble of all but one."""

    method: Method
    targeted: bool
    ensemble: bool

    @property
    def name(self) -> str:
        """Name of the set in folders."""
        return f"{self.method}-{'targeted' if self.targeted else 'untargeted'}{'-ensemble' if self.ensemble else ''}"

    @property
    def description(self) -> str:
        """Name of the set in titles."""
        goal = "targeted" if self.targeted else "untargeted"
        return f"{goal} {METHODS[self.method]}, {'all models but one' if self.ensemble else 'one model'}"

    @property
    def matched_to(self) -> "ExampleSet":
        """The set whose RMSD a fast-gradient set is matched to."""
        return ExampleSet("opt", self.targeted, self.ensemble)


EXAMPLE_SETS: Final = (
    ExampleSet("opt", False, False),
    ExampleSet("opt", True, False),
    ExampleSet("opt", True, True),
    ExampleSet("opt", False, True),
    ExampleSet("opt-small", False, False),
    ExampleSet("opt-large", True, False),
    *(ExampleSet(method, targeted, ensemble) for method in ("fg", "fgs") for targeted in (False, True)
      for ensemble in (False, True)),
)  # fmt: skip


@final
@dataclass(frozen=True)
class LiuSettings:
    """How much of the study is run."""

    models: tuple[str, ...] = ("resnet56", "vgg16", "densenet40", "mobilenet", "alexnet")
    images: int = 100
    steps: int = 100
    rate: float = 4.0  # learning rates are on the 0 to 255 scale, as in the paper
    small_rate: float = 0.125
    large_rate: float = 8.0
    draws: int = 100  # of Gaussian noise, per image
    line_step: float = 0.1
    line_end: float = 100.0
    grid: int = 101  # points per side of a plane
    without: frozenset[str] = frozenset()  # names of sets
    candidates: int | None = None  # images to choose from; all by default
    description: str = "the paper's numbers of images, steps and draws"

    def example_sets(self) -> list[ExampleSet]:
        """List the sets; those that others are matched to come first."""
        return [example_set for example_set in EXAMPLE_SETS if example_set.name not in self.without]

    def rate_of(self, example_set: ExampleSet, members: int) -> float:
        """Return the learning rate of an optimisation; an ensemble shares it, as updates are summed."""
        if example_set.ensemble:
            return self.rate / members
        return {"opt-small": self.small_rate, "opt-large": self.large_rate}.get(example_set.method, self.rate)


FULL: Final = LiuSettings()
QUICK: Final = LiuSettings(
    models=("resnet20", "resnet32", "vgg16", "mobilenet025", "alexnet"),
    images=20,
    draws=5,
    line_step=1.0,
    grid=31,
    without=frozenset({"opt-large-targeted"}),
    description="20 images instead of 100; small models of four families; 5 draws of noise per image instead of "
    "100; line searches in steps of 1 instead of 0.1; no large learning rate",
)


IMAGENET: Final = LiuSettings(
    models=("resnet34", "efficientnet-b0", "squeezenet-1.1", "mobilenet-v2-1.0-224", "mobilenet-v1-1.0-224"),
    images=40,
    draws=10,
    line_step=1.0,
    grid=51,
    candidates=200,
    description="40 photographs instead of 100; 10 draws of noise per image instead of 100; line searches in "
    "steps of 1 instead of 0.1",
)
IMAGENET_QUICK: Final = LiuSettings(
    models=("mobilenet-v1-1.0-224", "mobilenet-v2-1.0-224", "squeezenet-1.1", "efficientnet-lite0", "efficientnet-b0"),
    images=2,
    steps=10,
    draws=1,
    line_step=10.0,
    grid=7,
    candidates=12,
    without=frozenset({"opt-large-targeted", "opt-small-untargeted", "opt-untargeted-ensemble",
                       "fg-untargeted-ensemble", "fgs-untargeted-ensemble", "fg-targeted-ensemble"}),
    description="2 photographs instead of 100; 10 steps of optimisation instead of 100; one draw of noise per image "
    "instead of 100; line searches in steps of 10 instead of 0.1; no small or large learning rate; ensembles with a "
    "target only",
)  # fmt: skip


SETTINGS: Final[dict[ScopeName, LiuSettings]] = {
    "full": FULL,
    "quick": QUICK,
    "imagenet": IMAGENET,
    "imagenet-quick": IMAGENET_QUICK,
}
