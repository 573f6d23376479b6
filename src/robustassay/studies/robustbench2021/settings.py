"""How much of the study is run in each scope: models, images, shifts and out-of-distribution data."""

from dataclasses import dataclass
from typing import Final, final

from robustassay.data.corruptions import KINDS as CORRUPTIONS
from robustassay.data.corruptions import CorruptionSpec
from robustassay.studies.scope import ScopeName
from robustassay.studies.timing import Passes
from robustassay.threat import LInf, ThreatModel

THREAT: Final = ThreatModel(LInf(8 / 255))
FEW_CLASSES: Final = 100
"""Classes, at most, that have enough images each to be compared."""

EXPRESS: Final = Passes(forwards=80, gradients=200)
"""Passes of `express` on a sample that it does not break; most are broken early."""


@final
@dataclass(frozen=True)
class RobustBenchSettings:
    """How much of the study is run."""

    description: str
    images: int | None = None
    robust_images: int | None = None
    models: tuple[str, ...] = ()  # all of the zoo, by default
    shifts: tuple[CorruptionSpec, ...] = tuple(CorruptionSpec(kind, 3) for kind in CORRUPTIONS)
    ood: tuple[str, ...] = ("noise", "scrambled", "shuffled")
    lipschitz_images: int = 32
    lipschitz_steps: int = 50
    lipschitz_stages: int = 6
    attack: str = "express"
    threat: ThreatModel = THREAT


FULL: Final = RobustBenchSettings("all models of the zoo, all images; shifts are the 15 corruptions at severity 3")
QUICK: Final = RobustBenchSettings(
    "a small part of it",
    images=300,
    robust_images=150,
    models=(
        "vgg11-natural", "vgg16-natural", "alexnet-natural", "mobilenet025-natural", "resnet20-natural",
        "convnet-ibp", "resnet20-deepdefense", "resnet20-ensemble-adv", "resnet20-alp", "resnet20-pgd",
        "resnet20x2-pgd",
    ),
    shifts=tuple(CorruptionSpec(kind, 3) for kind in ("gaussian-noise", "defocus-blur", "fog", "jpeg-compression")),
    lipschitz_images=8,
    lipschitz_steps=20,
    lipschitz_stages=3,
)  # fmt: skip


IMAGENET: Final = RobustBenchSettings(
    "the networks for ImageNet whose weights are here, on photographs; shifts are the 15 corruptions at severity 3",
    images=500,
    robust_images=200,
    lipschitz_images=8,
    lipschitz_steps=20,
    lipschitz_stages=3,
    threat=ThreatModel(LInf(4 / 255)),
)
IMAGENET_QUICK: Final = RobustBenchSettings(
    "a small part of it, on photographs",
    images=24,
    robust_images=8,
    models=("imagenet:mobilenet-v1-0.25-128", "imagenet:mobilenet-v1-0.5-160", "imagenet:squeezenet-1.1"),
    shifts=(CorruptionSpec("defocus-blur", 3), CorruptionSpec("jpeg-compression", 3)),
    ood=("scrambled",),
    lipschitz_images=4,
    lipschitz_steps=5,
    lipschitz_stages=2,
    threat=ThreatModel(LInf(4 / 255)),
)


SETTINGS: Final[dict[ScopeName, RobustBenchSettings]] = {
    "full": FULL,
    "quick": QUICK,
    "imagenet": IMAGENET,
    "imagenet-quick": IMAGENET_QUICK,
}
