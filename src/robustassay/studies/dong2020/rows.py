"""The eight CIFAR-10 defenses of Dong et al.'s Table 1, and which model of this zoo stands for each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from robustassay.errors import BadRequest
from robustassay.studies.photographs import IMAGENET, entry_of
from robustassay.studies.study import in_zoo, listed


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


NATURAL, PADDED = "Natural", "R&P"
PREFERRED: Final = ("efficientnet-b0", "resnet34", "mobilenet-v2-1.0-224", "mobilenet-v1-1.0-224")
"""Networks for ImageNet that stand behind the defenses, or make transfer attacks: the first one whose weights are at
hand, and the first other one."""


def on_photographs(model: str) -> tuple[Row, ...]:
    """Return the rows of the paper's Table 2 that need no training, before a network for ImageNet.

    The accuracies beside them are the paper's, of Inception-v3.
    """
    changed, drawn = "input transformation", "randomisation"
    return (
        Row(NATURAL, model, "natural training", "-", 0.780),
        Row("JPEG", f"jpeg:quality=75|{model}", changed, "general", 0.773),
        Row("Bit-Red", f"bit-depth|{model}", changed, "general", 0.618),
        Row(PADDED, f"resize-pad|{model}", drawn, "general", 0.770),
        Row("RandMix", f"randmix|{model}", drawn, "general", 0.524),
    )


def preferred(networks: Sequence[str]) -> str:
    """Return the network that defenses stand before, of those at hand."""
    named = (f"{IMAGENET}{name}" for name in PREFERRED)
    return next((name for name in named if name in networks), networks[0])


def choose(names: Sequence[str] | None, default: Sequence[Row] = ROWS) -> tuple[list[Row], list[Row]]:
    """Return the rows asked for, by label or by model, and those of them whose model is not in the zoo."""
    wanted = list(default) if not names else [_row(name, default) for name in dict.fromkeys(names)]
    return [row for row in wanted if in_zoo(row.model)], [row for row in wanted if not in_zoo(row.model)]


def substitute_for(model: str) -> str:
    """Return the model on which attacks against this one are made: the first substitute that is not itself."""
    own = model.rpartition("|")[2].strip()
    if entry_of(own) is not None:
        from robustassay.studies.photographs import networks

        others = [name for name in networks(None) if name != own]
        return preferred(others) if others else own
    for name in SUBSTITUTES:
        if name != own and in_zoo(name):
            return name
    raise BadRequest(f"Transfer attacks need a substitute: put one of {listed(SUBSTITUTES)} into the zoo.")


def _row(name: str, rows: Sequence[Row]) -> Row:
    for row in rows:
        if name.lower() in (row.label.lower(), row.model.lower()):
            return row
    if in_zoo(name):
        return Row(name, name)
    labels = listed([row.label for row in rows])
    raise BadRequest(
        f"There is no row or model called {name!r}: rows are {labels}, models those of `assay list models`."
    )
