"""The sets of examples that the tables are about, and how much of the study is run in each scope."""

from dataclasses import dataclass
from typing import Final, Literal, final

from robustassay.studies.scope import ScopeName

Method = Literal["opt", "opt-mean", "opt-small", "opt-lambda", "opt-large", "opt-tau", "fg", "fgs"]
"""Optimisation at the paper's learning rate, of ensembles also on the loss of their mean (equation 6); at a small rate
without and with a penalty on the distance (lambda); at a large rate; with the appendix's penalty on the difference from
a distance (tau); fast gradient; fast gradient sign."""

METHODS: Final[dict[Method, str]] = {
    "opt": "optimisation",
    "opt-mean": "optimisation, loss of the mean",
    "opt-small": "optimisation, small learning rate",
    "opt-lambda": "optimisation, small learning rate, lambda > 0",
    "opt-large": "optimisation, large learning rate",
    "opt-tau": "optimisation, alternative objective (tau)",
    "fg": "FG",
    "fgs": "FGS",
}
MAIN: Final = ("opt", "fg", "fgs")
"""Methods whose sets hold every image; the others may hold fewer."""


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
    def is_matched(self) -> bool:
        """Whether its RMSD is that of another set."""
        return self.method in ("fg", "fgs", "opt-tau")

    @property
    def matched_to(self) -> "ExampleSet":
        """The set whose RMSD a set of fast gradients, or of the alternative objective, is matched to."""
        return ExampleSet("opt", self.targeted, self.ensemble)


OTHER_OBJECTIVES: Final = (
    ExampleSet("opt-small", False, False),
    ExampleSet("opt-lambda", False, False),
    ExampleSet("opt-large", True, False),
    ExampleSet("opt-tau", False, False),
    ExampleSet("opt-mean", True, True),
)
"""Sets that only appendix tables, remarks and one finding on ensembles are about."""

EXAMPLE_SETS: Final = (
    ExampleSet("opt", False, False),
    ExampleSet("opt", True, False),
    ExampleSet("opt", True, True),
    ExampleSet("opt", False, True),
    *(ExampleSet(method, targeted, ensemble) for method in ("fg", "fgs") for targeted in (False, True)
      for ensemble in (False, True)),
    *OTHER_OBJECTIVES,
)  # fmt: skip

NEEDED: Final = frozenset(
    {"opt-untargeted", "opt-targeted", "opt-targeted-ensemble", "fg-untargeted", "fg-targeted", "fgs-untargeted"}
)
"""Names of the sets that a page cannot do without; those of the others that are not finished are left out."""


@final
@dataclass(frozen=True)
class Sizes:
    """How many images, steps, draws and points; the defaults are the paper's."""

    images: int = 100
    few: int = 100  # images of the sets that only appendix tables and remarks are about
    steps: int = 100
    draws: int = 100  # of Gaussian noise, per image
    line_step: float = 0.1
    planes: int = 1  # images whose planes are counted


PAPER: Final = Sizes()
SIZE_NAMES: Final = {
    "images": "images that all models classify correctly",
    "few": "of them for small and large rates and other objectives",
    "steps": "steps of optimisation",
    "draws": "draws of noise per image",
    "line_step": "step of line searches",
    "planes": "images with a counted plane around them",
}


@final
@dataclass(frozen=True)
class Rates:
    """Learning rates on the 0 to 255 scale; those of ensembles are of each member, whose updates are summed.

    4 and 0.125 are the paper's. The others give about the RMSD that the paper reports, where its rate of 8 for each
    member gives several times as much here (`benchmarks/liu2017_rates.py`): 31 for the large rate, 30 for targeted
    ensembles and 17 for untargeted ones.
    """

    usual: float = 4.0
    small: float = 0.125
    large: float = 5.3
    ensemble: float = 1.2
    ensemble_targeted: float = 2.3

    def of(self, example_set: ExampleSet) -> float:
        """Return the rate of an optimisation."""
        if example_set.ensemble:
            return self.ensemble_targeted if example_set.targeted else self.ensemble
        special = {"opt-small": self.small, "opt-lambda": self.small, "opt-large": self.large}
        return special.get(example_set.method, self.usual)


@final
@dataclass(frozen=True)
class LiuSettings:
    """How much of the study is run."""

    models: tuple[str, ...] = ("vgg16", "resnet56", "densenet40", "mobilenet", "alexnet")
    sizes: Sizes = Sizes(planes=20)
    rates: Rates = Rates()
    weight: float = 1.0  # of the distance in objectives that have a term for it
    line_end: float = 100.0
    grid: int = 101  # points per side of a plane that is drawn
    coarse: int = 41  # and of those that are only counted
    without: frozenset[str] = frozenset()  # names of sets
    candidates: int | None = None  # images to choose from; all by default

    def example_sets(self) -> list[ExampleSet]:
        """List the sets; those that others are matched to come first."""
        return [example_set for example_set in EXAMPLE_SETS if example_set.name not in self.without]

    def weight_of(self, example_set: ExampleSet) -> float:
        """Return the weight of the distance in a set's objective."""
        return self.weight if example_set.method in ("opt-lambda", "opt-tau") else 0.0

    def images_of(self, example_set: ExampleSet) -> int:
        """Return how many images a set holds, at most."""
        return self.sizes.images if example_set.method in MAIN else min(self.sizes.few, self.sizes.images)


FULL: Final = LiuSettings()
FULL_ON_CPU: Final = LiuSettings(
    models=("vgg16", "resnet20", "vgg11", "mobilenet025", "alexnet"),
    sizes=Sizes(few=40, draws=5, planes=10),
    grid=41,
    coarse=21,
)
QUICK: Final = LiuSettings(
    models=("vgg16", "resnet20", "resnet32", "mobilenet025", "alexnet"),
    sizes=Sizes(images=20, few=10, draws=5, line_step=1.0, planes=5),
    grid=31,
    coarse=21,
    without=frozenset({"opt-large-targeted", "opt-mean-targeted-ensemble"}),
)

IMAGENET_RATES: Final = Rates(large=5.7, ensemble=1.4, ensemble_targeted=2.4)
IMAGENET: Final = LiuSettings(
    models=("resnet34", "efficientnet-b0", "squeezenet-1.1", "mobilenet-v2-1.0-224", "mobilenet-v1-1.0-224"),
    sizes=Sizes(few=10, planes=20),  # few: what one core adds to a run of a GPU
    rates=IMAGENET_RATES,
    grid=81,
    coarse=31,
    candidates=500,
)
IMAGENET_ON_CPU_RATES: Final = Rates(large=5.7, ensemble=1.7, ensemble_targeted=3.1)
"""For ensembles of three models instead of four, chosen on the last photographs of the set."""

IMAGENET_ON_CPU: Final = LiuSettings(
    models=("squeezenet-1.1", "efficientnet-b0", "mobilenet-v1-0.5-160", "mobilenet-v1-0.25-128"),
    sizes=Sizes(images=16, few=16, draws=5, line_step=1.0, planes=10),
    rates=IMAGENET_ON_CPU_RATES,
    grid=31,
    coarse=21,
    candidates=500,
    without=frozenset({"opt-mean-targeted-ensemble"}),
)
IMAGENET_QUICK: Final = LiuSettings(
    models=("mobilenet-v1-0.25-128", "mobilenet-v1-0.5-160", "squeezenet-1.1", "mobilenet-v2-1.0-224"),
    sizes=Sizes(images=2, few=0, steps=10, draws=1, line_step=10.0),
    rates=IMAGENET_RATES,
    grid=7,
    coarse=7,
    candidates=12,
    without=frozenset(
        {"opt-untargeted-ensemble", "fg-untargeted-ensemble", "fgs-untargeted-ensemble", "fg-targeted-ensemble"}
        | {example_set.name for example_set in OTHER_OBJECTIVES}
    ),
)


SETTINGS: Final[dict[ScopeName, LiuSettings]] = {
    "full": FULL,
    "quick": QUICK,
    "imagenet": IMAGENET,
    "imagenet-quick": IMAGENET_QUICK,
}
ON_CPU: Final[dict[ScopeName, LiuSettings]] = {"full": FULL_ON_CPU, "imagenet": IMAGENET_ON_CPU}
"""What a CPU measures instead, in about an hour."""
