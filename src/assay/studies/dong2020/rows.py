"""The eight CIFAR-10 defenses of Dong et al.'s Table 1, and which model of this zoo stands for each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from assay.errors import BadRequest
from assay.studies.study import in_zoo, listed


@final
@dataclass(frozen=True)
class Row:
    """One defense of the benchmark."""

    label: str
    model: str
    category: str = "added by --models"
    intended: str = ""
    published: float | None = None  # the paper's clean accuracy, of its own model
    note: str = ""


ROWS: Final = (
    Row("Res-56", "resnet56-natural", "natural training", "-", 0.926),
    Row("PGD-AT", "resnet20x2-pgd", "robust training", "L∞ (eps = 8/255)", 0.873),
    Row("DeepDefense", "resnet20-deepdefense", "robust training", "L2", 0.797),
    Row("TRADES", "resnet20x3-trades", "robust training", "L∞ (eps = 0.031)", 0.849),
    Row("Convex", "convnet-ibp", "(certified) robust training", "L∞ (eps = 2/255)", 0.663, "interval bounds stand in"),
    Row("JPEG", "jpeg:quality=75|resnet56-natural", "input transformation", "general", 0.809),
    Row("RSE", "vgg16-rse", "randomisation and ensemble", "L2", 0.861),
    Row("ADP", "3resnet20-adp", "ensemble", "general", 0.941),
)
QUICK_ROWS: Final = ("Res-56", "PGD-AT", "JPEG")

ADVERSARIAL: Final = ("PGD-AT", "TRADES")  # trained on the worst case that PGD finds
TRANSFORMING: Final = "JPEG"
BACKBONE: Final = "Res-56"
RANDOM: Final = "RSE"

SUBSTITUTES: Final = ("resnet20x3-trades", "resnet20x2-pgd", "resnet20-pgd")
"""Models that transfer attacks are made on: TRADES, PGD-AT where TRADES is attacked; one more while it is missing."""


def choose(names: Sequence[str] | None, default: Sequence[Row] = ROWS) -> tuple[list[Row], list[Row]]:
    """Return the rows asked for, by label or by model, and those of them whose model is not in the zoo."""
    wanted = list(default) if not names else [_row(name) for name in dict.fromkeys(names)]
    return [row for row in wanted if in_zoo(row.model)], [row for row in wanted if not in_zoo(row.model)]


def substitute_for(model: str) -> str:
    """Return the model on which attacks against this one are made: the first substitute that is not itself."""
    own = model.rpartition("|")[2].strip()
    for name in SUBSTITUTES:
        if name != own and in_zoo(name):
            return name
    raise BadRequest(f"Transfer attacks need a substitute: put one of {listed(SUBSTITUTES)} into the zoo.")


def _row(name: str) -> Row:
    for row in ROWS:
        if name.lower() in (row.label.lower(), row.model.lower()):
            return row
    if in_zoo(name):
        return Row(name, name)
    labels = listed([row.label for row in ROWS])
    raise BadRequest(
        f"There is no row or model called {name!r}: rows are {labels}, models those of `assay list models`."
    )
