"""How much of the study is done: which models, images, shifts and outsiders."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from robustassay import data as datasets
from robustassay import models
from robustassay.data import Dataset
from robustassay.data.corruptions import KINDS as CORRUPTIONS
from robustassay.data.corruptions import CorruptionSpec, corrupt
from robustassay.errors import BadRequest
from robustassay.studies.out_of_distribution import out_of_distribution_images
from robustassay.studies.study import Passes, in_zoo
from robustassay.studies.workbench import MEMBERS, OUTSIDE, SHIFT, TEST, Workbench
from robustassay.threat import LInf, ThreatModel

THREAT: Final = ThreatModel(LInf(8 / 255))
FEW: Final = 100
"""Classes, at most, of which there are images enough to compare them."""

EXPRESS: Final = Passes(forwards=80, gradients=200)
"""What the attack means to spend on a sample that stands; most fall early."""


@final
@dataclass(frozen=True)
class Scale:
    """How much is done."""

    says: str
    images: int | None = None
    robust_images: int | None = None
    models: tuple[str, ...] = ()  # all of the zoo, by default
    shifts: tuple[CorruptionSpec, ...] = tuple(CorruptionSpec(kind, 3) for kind in CORRUPTIONS)
    outside: tuple[str, ...] = ("noise", "scrambled", "shuffled")
    slope_images: int = 32
    slope_steps: int = 50
    slope_stages: int = 6
    attack: str = "express"
    threat: ThreatModel = THREAT


FULL: Final = Scale("all models of the zoo, all images; shifts are the 15 corruptions at severity 3")
QUICK: Final = Scale(
    "a small part of it",
    images=300,
    robust_images=150,
    models=(
        "vgg11-natural", "vgg16-natural", "alexnet-natural", "mobilenet025-natural", "resnet20-natural",
        "convnet-ibp", "resnet20-deepdefense", "resnet20-ensemble-adv", "resnet20-alp", "resnet20-pgd",
        "resnet20x2-pgd",
    ),
    shifts=tuple(CorruptionSpec(kind, 3) for kind in ("gaussian-noise", "defocus-blur", "fog", "jpeg-compression")),
    slope_images=8,
    slope_steps=20,
    slope_stages=3,
)  # fmt: skip


IMAGENET: Final = Scale(
    "the networks for ImageNet whose weights are at hand, on photographs; shifts are the 15 corruptions at severity 3",
    images=500,
    robust_images=200,
    slope_images=8,
    slope_steps=20,
    slope_stages=3,
    threat=ThreatModel(LInf(4 / 255)),
)
IMAGENET_QUICK: Final = Scale(
    "a small part of it, on photographs",
    images=24,
    robust_images=8,
    models=("imagenet:mobilenet-v1-0.25-128", "imagenet:mobilenet-v1-0.5-160", "imagenet:squeezenet-1.1"),
    shifts=(CorruptionSpec("defocus-blur", 3), CorruptionSpec("jpeg-compression", 3)),
    outside=("scrambled",),
    slope_images=4,
    slope_steps=5,
    slope_stages=2,
    threat=ThreatModel(LInf(4 / 255)),
)


def choose(names: Sequence[str] | None, scale: Scale) -> tuple[str, ...]:
    """Return the models asked for, or those of the scale that the zoo has."""
    chosen = tuple(dict.fromkeys(names or scale.models or models.names()))
    if names:
        for name in names:
            if not in_zoo(name):
                raise BadRequest(f"There is no model called {name!r}: take one of `assay list models`, or a file's.")
    return tuple(name for name in chosen if in_zoo(name))


def kinds(members: str | None, classes: int = 10) -> list[str]:
    """Return the analyses that can be made.

    Privacy needs images that the models were trained on, fairness several images of each class.
    """
    fairness, privacy = ["fairness"] if classes <= FEW else [], ["privacy"] if members else []
    return ["time", "shift", "calibration", "ood", *fairness, *privacy, "smoothness"]


def workbench(
    names: tuple[str, ...],
    test: Dataset,
    scale: Scale,
    out: Path,
    members: str | None = None,
    more_shifts: Sequence[str] = (),
    more_outside: Sequence[str] = (),
    seed: int = 0,
    device: str | None = None,
) -> Workbench:
    """Lay out the work."""
    chosen = {TEST: test}
    chosen |= {f"{SHIFT}{cell}": corrupt(test, cell, seed) for cell in scale.shifts}
    chosen |= {f"{SHIFT}{name}": _as_many(name, test) for name in more_shifts}
    chosen |= {f"{OUTSIDE}{kind}": out_of_distribution_images(test, kind, seed) for kind in scale.outside}
    chosen |= {f"{OUTSIDE}{name}": _as_many(name, test) for name in more_outside}
    if members:
        chosen[MEMBERS] = _as_many(members, test)
    return Workbench(
        names,
        chosen,
        out,
        scale.threat,
        scale.attack,
        EXPRESS if scale.attack == "express" else None,
        None if scale.robust_images is None else min(scale.robust_images, len(test)),
        scale.slope_images,
        scale.slope_steps,
        scale.slope_stages,
        seed=seed,
        device=device,
    )


def _as_many(name: str, test: Dataset) -> Dataset:
    whole = datasets.load(name)
    return whole.take(min(len(whole), len(test)))
