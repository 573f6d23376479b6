"""Dong et al.'s own networks by their hub names; the others must be named as files, with `--models LABEL=MODEL`."""

from typing import Final

from robustassay.studies.paper_models import PaperModel, PaperModels

_INCEPTION: Final = "timm:inception_v3.tf_in1k"
_FILE: Final = "no hub has it: give its weights as `--models {}=FILE.py:FUNCTION` or `{}=onnx:FILE`"

SUBSTITUTE: Final = "torchvision:resnet152"
"""The paper's source of transfer attacks on ImageNet."""


def _by_file(label: str, family: str, depth: int | None = None) -> PaperModel:
    return PaperModel(label, "", family, depth, note=_FILE.format(label, label))


def _inception(label: str, defense: str = "") -> PaperModel:
    return PaperModel(label, defense + _INCEPTION, "Inception", 48, 23_834_568)


PAPER_MODELS: Final[PaperModels] = {
    "cifar10": (
        _by_file("Res-56", "ResNet", 56),
        PaperModel(
            "PGD-AT",
            "robustbench:Engstrom2019Robustness",
            "ResNet",
            50,
            23_520_842,
            "ResNet-50 trained by the same method; the paper's own wide ResNet is on no hub",
        ),
        _by_file("DeepDefense", "ConvNet"),
        PaperModel("TRADES", "robustbench:Zhang2019Theoretically", "WideResNet", 34, 46_160_474),
        _by_file("Convex", "ConvNet"),
        _by_file("RSE", "VGG", 16),
        _by_file("ADP", "ResNet", 110),
    ),
    "imagenet": (
        _inception("Inc-v3"),
        PaperModel(
            "Ens-AT",
            "timm:inception_resnet_v2.tf_ens_adv_in1k",
            "Inception-ResNet",
            176,
            55_843_464,
            "an Inception-ResNet-v2 of the same authors and method",
        ),
        _by_file("ALP", "ResNet", 50),
        PaperModel(
            "FD",
            "robustbench:Salman2020Do_R50:imagenet/Linf",
            "ResNet",
            50,
            25_557_032,
            "adversarial training at eps 4/255 stands for feature denoising at 16/255, which is on no hub",
        ),
        _inception("JPEG, Inc-v3", "jpeg:quality=75|"),
        _inception("Bit-Red, Inc-v3", "bit-depth|"),
        _inception("R&P, Inc-v3", "resize-pad|"),
        _inception("RandMix, Inc-v3", "randmix|"),
    ),
}
