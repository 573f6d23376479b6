"""The defenses of Dong et al.'s Table 1, and the model that represents each of them here."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, final

from robustassay.errors import BadRequest
from robustassay.studies.dong2020.paper_models import PAPER_MODELS, SUBSTITUTE
from robustassay.studies.page import comma_list
from robustassay.studies.paper_models import find
from robustassay.studies.photographs import IMAGENET, entry_of, networks
from robustassay.studies.runs import is_available

Role = Literal["natural", "adversarial", "transformation", "randomized", "other"]
"""What the findings compare."""

ADDED: Final = "added by --models"
"""The category of rows that are not the paper's."""


@final
@dataclass(frozen=True)
class BenchmarkDefense:
    """One row of the benchmark."""

    label: str
    model: str
    category: str = ADDED
    intended: str = ""  # the threat model that it was designed for
    published: float | None = None  # clean accuracy of the paper's own model
    role: Role = "other"
    note: str = ""


DEFENSES: Final = (
    BenchmarkDefense("Res-56", "resnet56-natural", "natural training", "-", 0.926, "natural"),
    BenchmarkDefense("PGD-AT", "resnet20x2-pgd", "robust training", "L∞ (eps = 8/255)", 0.873, "adversarial"),
    BenchmarkDefense("DeepDefense", "resnet20-deepdefense", "robust training", "L2", 0.797),
    BenchmarkDefense("TRADES", "resnet20x3-trades", "robust training", "L∞ (eps = 0.031)", 0.849, "adversarial"),
    BenchmarkDefense(
        "Convex", "convnet-ibp", "(certified) robust training", "L∞ (eps = 2/255)", 0.663,
        note="trained with CROWN-IBP bounds, as the paper's network (convex outer polytope, 2/255) is not at hand; "
        "`--models Convex=FILE.py:FUNCTION` puts another one into the row",
    ),
    BenchmarkDefense(
        "JPEG", "jpeg:quality=75|resnet56-natural", "input transformation", "general", 0.809, "transformation"
    ),
    BenchmarkDefense("RSE", "vgg16-rse", "randomisation and ensemble", "L2", 0.861, "randomized"),
    BenchmarkDefense("ADP", "3resnet20-adp", "ensemble", "general", 0.941),
)  # fmt: skip
QUICK_DEFENSES: Final = ("Res-56", "PGD-AT", "JPEG")

SUBSTITUTES: Final = ("resnet20x3-trades", "resnet20x2-pgd", "resnet20-pgd")
"""Source models of transfer attacks, in order of preference: TRADES; PGD-AT where TRADES itself is attacked."""

PREFERRED: Final = ("efficientnet-b0", "resnet34", "mobilenet-v2-1.0-224", "mobilenet-v1-1.0-224")
"""Networks for ImageNet in order of preference: the first one with weights here is defended, the next is the source of
transfer attacks."""


def imagenet_defenses() -> tuple[BenchmarkDefense, ...]:
    """Return the rows of Table 1 that need no training, in front of the preferred network whose weights are here.

    Without weights the network is the paper's Inception-v3, by its hub name; published accuracies are always its own.
    """
    try:
        model = preferred(networks(None))
    except BadRequest:
        model = "timm:inception_v3.tf_in1k"
    return defended_by_input(model)


def defended_by_input(model: str) -> tuple[BenchmarkDefense, ...]:
    """Return a network for ImageNet, and the same behind each defense that changes its input."""
    changed, drawn = "input transformation", "(input) randomisation"
    return (
        BenchmarkDefense("Natural", model, "natural training", "-", 0.780, "natural"),
        BenchmarkDefense("JPEG", f"jpeg:quality=75|{model}", changed, "general", 0.773, "transformation"),
        BenchmarkDefense("Bit-Red", f"bit-depth|{model}", changed, "general", 0.618, "transformation"),
        BenchmarkDefense("R&P", f"resize-pad|{model}", drawn, "general", 0.770, "randomized"),
        BenchmarkDefense(
            "RandMix", f"randmix|{model}", "(certified input) randomisation", "general", 0.524, "randomized"
        ),
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


def substitute_for(model: str, photographs: bool = False) -> str:
    """Return the source model of transfer attacks on a model: the first substitute that is not itself."""
    own = model.rpartition("|")[2].strip()
    if photographs and entry_of(own) is None:
        return SUBSTITUTE
    if photographs:
        others = [name for name in networks(None) if name != own]
        return preferred(others) if others else SUBSTITUTE
    for name in SUBSTITUTES:
        if name != own and is_available(name):
            return name
    raise BadRequest(f"Transfer attacks need a substitute: put one of {comma_list(SUBSTITUTES)} into the zoo.")


def _defense(name: str, defenses: Sequence[BenchmarkDefense]) -> BenchmarkDefense:
    """Return a row by its label, its model, or `LABEL=MODEL` for another model in that row."""
    label, equals, model = name.partition("=")
    if equals and ":" not in label and "|" not in label and is_available(model):
        row = next((row for row in defenses if row.label.lower() == label.lower()), BenchmarkDefense(label, model))
        return replace(row, model=model, note="")
    for defense in defenses:
        if name.lower() in (defense.label.lower(), defense.model.lower()):
            return defense
    paper = find(PAPER_MODELS, name)
    if paper is not None:
        category, intended, published, role = PAPER_ROWS[paper.label]
        return BenchmarkDefense(paper.label, paper.model, category, intended, published, role, paper.note)
    if is_available(name):
        return BenchmarkDefense(name, name)
    labels = comma_list(defense.label for defense in defenses)
    raise BadRequest(
        f"There is no row or model called {name!r}: rows are {labels}, models those of `assay list models`."
    )


PAPER_ROWS: Final[dict[str, tuple[str, str, float, Role]]] = {
    **{row.label: (row.category, row.intended, row.published or 0.0, row.role) for row in DEFENSES},
    "Inc-v3": ("natural training", "-", 0.780, "natural"),
    "Ens-AT": ("robust training", "L∞ (eps = 16/255)", 0.735, "other"),
    "ALP": ("robust training", "L∞ (eps = 16/255)", 0.490, "other"),
    "FD": ("robust training", "L∞ (eps = 16/255)", 0.643, "adversarial"),
    **{
        f"{row.label}, Inc-v3": (row.category, row.intended, row.published or 0.0, row.role)
        for row in defended_by_input("")[1:]
    },
}
"""Category, intended threat, published clean accuracy and role of the paper's own networks."""
