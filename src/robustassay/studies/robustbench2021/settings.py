"""How much of the study is run in each scope: models, images, shifts, seeds and out-of-distribution data."""

from dataclasses import dataclass
from typing import Final, final

from robustassay.data.corruptions import KINDS as CORRUPTIONS
from robustassay.data.corruptions import CorruptionSpec, corruption_grid
from robustassay.studies.scope import ScopeName
from robustassay.studies.timing import Passes
from robustassay.threat import L2, LInf, ThreatModel

THREAT: Final = ThreatModel(LInf(8 / 255))
L2_THREAT: Final = ThreatModel(L2(0.5))
FEW_CLASSES: Final = 100
"""Classes, at most, that have enough images each to be compared."""

EXPRESS: Final = Passes(forwards=80, gradients=200)
"""Passes of `express` on a sample that it does not break; most are broken early."""

AUTOATTACK: Final = Passes(forwards=6000, gradients=1900)
"""The same of AutoAttack."""

PASSES: Final = {"express": EXPRESS, "autoattack": AUTOATTACK}
"""By attack."""

FALLS: Final = 0.02
"""Robust accuracy under PGD up to which a model falls at once; on others an attack takes its full length."""

RANDOM_RECIPES: Final = frozenset({"rse"})
"""Recipes of models with a random forward pass, which the paper does not admit."""

RESTARTS: Final = 30
"""Random restarts of Square for a model whose evaluation is in doubt, as in section 3.1 of the paper."""

RESTART_PARTS: Final = 6
"""Runs that share these restarts: one of all takes long, and an interrupt would lose it whole."""


@final
@dataclass(frozen=True)
class RobustBenchSettings:
    """How much of the study is run. Zero images leave a part out."""

    description: str
    images: int | None = None
    robust_images: int | None = None
    models: tuple[str, ...] = ()  # all of the zoo, by default
    shifts: tuple[CorruptionSpec, ...] = tuple(corruption_grid())
    shift_images: int = 100  # under each corruption
    attacked_shift_images: int = 300  # four for each kind and severity
    ood: tuple[str, ...] = ("noise", "scrambled", "shuffled")  # made from the test images, where no others are given
    crafting_images: int = 100  # for transfer and for adversarial images in privacy
    transfer: bool = True
    lipschitz_images: int = 16
    lipschitz_steps: int = 50
    lipschitz_stages: int = 4
    attack: str = "express"
    compared_attack: str | None = None  # runs on the same images, too
    threat: ThreatModel = THREAT
    l2_images: int = 500
    seed_models: tuple[str, ...] = ("resnet20-pgd", "resnet20-alp", "convnet-ibp")
    seeds: tuple[int, ...] = (1, 2, 3, 4)  # beside that of the study
    seed_images: int = 500
    restart_models: tuple[str, ...] = ("resnet20-pgd",)
    restart_images: int = 200


FULL: Final = RobustBenchSettings(
    "all of the zoo whose forward pass is deterministic",
    attack="autoattack",
    compared_attack="express",
    shift_images=500,
    crafting_images=1000,
    lipschitz_images=64,
)
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
    attacked_shift_images=0,
    crafting_images=30,
    lipschitz_images=8,
    lipschitz_steps=20,
    lipschitz_stages=3,
    l2_images=0,
    seed_images=0,
    restart_images=0,
)  # fmt: skip


IMAGENET: Final = RobustBenchSettings(
    "the networks for ImageNet whose weights are here, on photographs",
    images=500,
    robust_images=200,
    shifts=tuple(CorruptionSpec(kind, 3) for kind in CORRUPTIONS),
    attacked_shift_images=0,
    transfer=False,  # the networks see the photographs in different sizes
    lipschitz_images=8,
    lipschitz_steps=20,
    lipschitz_stages=3,
    threat=ThreatModel(LInf(4 / 255)),
    l2_images=0,
    seed_images=0,
    restart_images=0,
)
IMAGENET_QUICK: Final = RobustBenchSettings(
    "a small part of it, on photographs",
    images=24,
    robust_images=8,
    models=("imagenet:mobilenet-v1-0.25-128", "imagenet:mobilenet-v1-0.5-160", "imagenet:squeezenet-1.1"),
    shifts=(CorruptionSpec("defocus-blur", 3), CorruptionSpec("jpeg-compression", 3)),
    attacked_shift_images=0,
    transfer=False,
    ood=("scrambled",),
    lipschitz_images=4,
    lipschitz_steps=5,
    lipschitz_stages=2,
    threat=ThreatModel(LInf(4 / 255)),
    l2_images=0,
    seed_images=0,
    restart_images=0,
)


SETTINGS: Final[dict[ScopeName, RobustBenchSettings]] = {
    "full": FULL,
    "quick": QUICK,
    "imagenet": IMAGENET,
    "imagenet-quick": IMAGENET_QUICK,
}
