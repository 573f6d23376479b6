"""The papers that can be repeated, and how the command line describes them; imports nothing heavy."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from robustassay.studies.study import Study


@final
@dataclass(frozen=True)
class Paper:
    """One paper: `robustassay.studies.NAME` holds its `STUDY`."""

    name: str
    summary: str  # the help of its command
    models: str  # the help of --models
    uses_extra_data: bool = False

    def study(self) -> "Study[Any]":
        """Load the study."""
        found: Study[Any] = import_module(f"robustassay.studies.{self.name}").STUDY
        return found


PAPERS: Final = {
    paper.name: paper
    for paper in (
        Paper(
            "dong2020",
            "Repeat Dong et al. 2020, 15 attacks on 8 defenses: tables, figures, and which of the five findings hold.",
            "Rows of the paper such as PGD-AT, other models, or LABEL=MODEL for another model in a row; all rows by "
            "default. On ImageNet: Natural, JPEG, Bit-Red, R&P, RandMix. `paper`: the paper's networks by hub name.",
        ),
        Paper(
            "liu2017",
            "Repeat Liu et al. 2017, transfer between models with and without ensembles: tables, figures and findings.",
            "Three models or more, such as resnet56 vgg16 alexnet; five of different families by default.",
        ),
        Paper(
            "robustbench2021",
            "Repeat Croce et al. 2021, RobustBench: leaderboards with its published entries, Figures 2 to 7 and 10, "
            "and which findings hold.",
            "Zoo models or others; by default all of the zoo whose forward pass is deterministic.",
            uses_extra_data=True,
        ),
        Paper(
            "su2018",
            "Repeat Su et al. 2018, is robustness the cost of accuracy: the law, the frontier, transfer, and four "
            "findings.",
            "Zoo models or others; by default all models of the zoo that were trained on clean images only, or all "
            "networks for ImageNet whose weights are here.",
        ),
    )
}
