"""The defenses of Dong et al.'s Tables 1 and 2, and the model that represents each of them here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from robustassay.errors import BadRequest
from robustassay.studies.page import comma_list
from robustassay.studies.photographs import IMAGENET, entry_of
from robustassay.studies.runs import is_available


@final
@dataclass(frozen=True)
class BenchmarkDefense:
    """One row of the benchmark."""

    label: str
    model: str
    category: str = "added by --models"
    intended: str = ""  # the threat model that it was designed for
    published: float | None = None  # clean accuracy of the paper's own model
    note: str = ""


DEFENSES: Final = (
    BenchmarkDefense("Res-56", "resnet56-natural", "natural training", "-", 0.926),
    BenchmarkDefense("PGD-AT", "resnet20x2-pgd", "robust training", "L∞ (eps = 8/255)", 0.873),
    BenchmarkDefense("DeepDefense", "resnet20-deepdefense", "robust training", "L2", 0.797),
    BenchmarkDefense("TRADES", "resnet20x3-trades", "robust training", "L∞ (eps = 0.031)", 0.849),
    BenchmarkDefense(
        "Convex",
        "convnet-ibp",
        "(certified) robust training",
        "L∞ (eps = 2/255)",
        0.663,
        "trained with interval bounds instead",
    ),
    BenchmarkDefense("JPEG", "jpeg:quality=75|resnet56-natural", "input transformation", "general", 0.809),
    BenchmarkDefense("RSE", "vgg16-rse", "randomisation and ensemble", "L2", 0.861),
    BenchmarkDefense("ADP", "3resnet20-adp", "ensemble", "general", 0.941),
)
QUICK_DEFENSES: Final = ("Res-56", "PGD-AT", "JPEG")

ADVERSARIAL: Final = ("PGD-AT", "TRADES")
"""Defenses by adversarial training with PGD."""

TRANSFORMATION: Final = "JPEG"
UNDEFENDED: Final = "Res-56"
RANDOMIZED: Final = "RSE"

SUBSTITUTES: Final = ("resnet20x3-trades", "resnet20x2-pgd", "resnet20-pgd")
"""Source models of transfer attacks, in order of preference: TRADES; PGD-AT where TRADES itself is attacked."""


IMAGENET_UNDEFENDED, IMAGENET_RANDOMIZED = "Natural", "R&P"
PREFERRED: Final = ("efficientnet-b0", "resnet34", "mobilenet-v2-1.0-224", "mobilenet-v1-1.0-224")
"""Networks for ImageNet in order of preference: the first one with weights here is defended, the next is the source of
transfer attacks."""


def imagenet_defenses(model: str) -> tuple[BenchmarkDefense, ...]:
    """Return the rows of Table 2 that need no training, in front of a network for ImageNet.

    Their published accuracies are those of the paper's Inception-v3.
    """
    transformation, randomisation = "input transformation", "randomisation"
    return (
        BenchmarkDefense(IMAGENET_UNDEFENDED, model, "natural training", "-", 0.780),
        BenchmarkDefense("JPEG", f"jpeg:quality=75|{model}", transformation, "general", 0.773),
        BenchmarkDefense("Bit-Red", f"bit-depth|{model}", transformation, "general", 0.618),
        BenchmarkDefense(IMAGENET_RANDOMIZED, f"resize-pad|{model}", randomisation, "general", 0.770),
        BenchmarkDefense("RandMix", f"randmix|{model}", randomisation, "general", 0.524),
    )


def preferred(networks: Sequence[str]) -> str:
    """Return the first preferred network, or the first one where none is preferred."""
    named = (f"{IMAGENET}{name}" for name in PREFERRED)
    return next((name for name in named if name in networks), networks[0])


def choose(
    names: Sequence[str] | None, default: Sequence[BenchmarkDefense] = DEFENSES
) -> tuple[list[BenchmarkDefense], list[BenchmarkDefense]]:
    """Return the rows asked for, by label or by model: those whose model is available, and those whose is not."""
    wanted = list(default) if not names else [_defense(name, default) for name in dict.fromkeys(names)]
    return [row for row in wanted if is_available(row.model)], [row for row in wanted if not is_available(row.model)]


def substitute_for(model: str) -> str:
    """Return the source model of transfer attacks on a model: the first substitute that is not itself."""
    own = model.rpartition("|")[2].strip()
    if entry_of(own) is not None:
        from robustassay.studies.photographs import networks

        others = [name for name in networks(None) if name != own]
        return preferred(others) if others else own
    for name in SUBSTITUTES:
        if name != own and is_available(name):
            return name
    raise BadRequest(f"Transfer attacks need a substitute: put one of {comma_list(SUBSTITUTES)} into the zoo.")


def _defense(name: str, defenses: Sequence[BenchmarkDefense]) -> BenchmarkDefense:
    for defense in defenses:
        if name.lower() in (defense.label.lower(), defense.model.lower()):
            return defense
    if is_available(name):
        return BenchmarkDefense(name, name)
    labels = comma_list(defense.label for defense in defenses)
    raise BadRequest(
        f"There is no row or model called {name!r}: rows are {labels}, models those of `assay list models`."
    )
