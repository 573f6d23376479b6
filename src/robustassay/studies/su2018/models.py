"""The models of the study, and what is known of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from robustassay import models as zoo
from robustassay.errors import BadRequest
from robustassay.studies.paper_models import PaperModel, PaperModels, find
from robustassay.studies.photographs import IMAGENET, entry_of
from robustassay.studies.runs import is_available

_RESNET: Final = "torchvision has version 1 of the blocks, the paper version 2"
_TORCHVISION: Final = "trained by torchvision"
_HERE: Final = "needs the weights file in the folder of `--weights`"

PAPER_MODELS: Final[PaperModels] = {
    "imagenet": (
        PaperModel("AlexNet", "torchvision:alexnet", "alexnet", 8, 61_100_840, _TORCHVISION),
        PaperModel("VGG 16", "torchvision:vgg16", "vgg", 16, 138_357_544, _TORCHVISION),
        PaperModel("VGG 19", "torchvision:vgg19", "vgg", 19, 143_667_240, _TORCHVISION),
        PaperModel("Inception-v1", "torchvision:googlenet", "inception", 22, 6_624_904, _TORCHVISION),
        PaperModel(
            *("Inception-v2", "", "inception", 48, 11_300_000),
            note="no hub has it: give weights of your own as --models FILE.py:FUNCTION",
        ),
        PaperModel("Inception-v3", "timm:inception_v3.tf_in1k", "inception", 48, 23_834_568),
        PaperModel("Inception-v4", "timm:inception_v4.tf_in1k", "inception", 76, 42_679_816),
        PaperModel("Inception-ResNet-v2", "timm:inception_resnet_v2.tf_in1k", "inception", 176, 55_843_464),
        PaperModel("ResNet-v2-50", "torchvision:resnet50", "resnet", 50, 25_557_032, _RESNET),
        PaperModel("ResNet-v2-101", "torchvision:resnet101", "resnet", 101, 44_549_160, _RESNET),
        PaperModel("ResNet-v2-152", "torchvision:resnet152", "resnet", 152, 60_192_808, _RESNET),
        PaperModel("DenseNet-121-k32", "torchvision:densenet121", "densenet", 121, 7_978_856, _TORCHVISION),
        PaperModel("DenseNet-169-k32", "torchvision:densenet169", "densenet", 169, 14_149_480, _TORCHVISION),
        PaperModel("DenseNet-161-k48", "torchvision:densenet161", "densenet", 161, 28_681_000, _TORCHVISION),
        PaperModel("MobileNet-0.25-128", f"{IMAGENET}mobilenet-v1-0.25-128", "mobilenet", 28, 467_593, _HERE),
        PaperModel("MobileNet-0.50-160", f"{IMAGENET}mobilenet-v1-0.5-160", "mobilenet", 28, 1_326_633, _HERE),
        PaperModel("MobileNet-1.0-224", f"{IMAGENET}mobilenet-v1-1.0-224", "mobilenet", 28, 4_222_057, _HERE),
        PaperModel("NASNet", "timm:nasnetalarge.tf_in1k", "nasnet", 128, 88_753_150),
    )
}
"""Table 1, with layers counted by our rule. (The paper's numbers for the MobileNets, 128, 160 and 224, are the sides
of their images; it gives 96 for Inception-ResNet-v2 and none for NASNet.)"""

PAPER_TOP1: Final = {
    **{"AlexNet": 0.569, "VGG 16": 0.715, "VGG 19": 0.711, "Inception-v1": 0.698, "Inception-v2": 0.739},
    **{"Inception-v3": 0.780, "Inception-v4": 0.802, "Inception-ResNet-v2": 0.804},
    **{"ResNet-v2-50": 0.756, "ResNet-v2-101": 0.770, "ResNet-v2-152": 0.778},
    **{"DenseNet-121-k32": 0.749, "DenseNet-169-k32": 0.761, "DenseNet-161-k48": 0.776},
    **{"MobileNet-0.25-128": 0.415, "MobileNet-0.50-160": 0.591, "MobileNet-1.0-224": 0.709, "NASNet": 0.827},
}
"""Top-1 accuracy of Table 1."""


@final
@dataclass(frozen=True)
class StudiedModel:
    """One model; comparisons that need an unknown fact leave it out."""

    name: str
    family: str
    parameters: int | None = None
    depth: int | None = None  # layers on the longest path; measured once the model is loaded
    accuracy: float | None = None  # on the whole test set; measured on the study's images where unknown
    accuracy_source: str = "its card"

    @property
    def label(self) -> str:
        """Short name for tables and figures."""
        entry = entry_of(self.name)
        return entry.name if entry else self.name.removesuffix("-natural").rpartition(":")[2]

    @property
    def kind(self) -> str:
        """The name without numbers: networks of one family and kind differ in depth and width only."""
        return "".join(letter for letter in self.label if not letter.isdigit() and letter != ".")


def choose(names: Sequence[str] | None) -> tuple[StudiedModel, ...]:
    """Return the models asked for, or all of the zoo that were trained on clean images only."""
    if names is None:
        names = [name for name in zoo.names() if zoo.card(name).recipe == "natural"]
    return tuple(_studied(name) for name in dict.fromkeys(names))


def _studied(name: str) -> StudiedModel:
    if not is_available(name):
        raise BadRequest(f"There is no model called {name!r}: see `assay list models`.")
    if name in zoo.names():
        card = zoo.card(name)
        return StudiedModel(name, str(card.architecture["name"]), card.parameters, None, card.clean_accuracy)
    entry, paper = entry_of(name), find(PAPER_MODELS, name)
    if entry is not None and "|" not in name:
        return StudiedModel(name, entry.family, entry.parameters, entry.depth, entry.top1, "its publisher")
    if paper is not None:
        return StudiedModel(name, paper.family, paper.parameters, paper.depth, PAPER_TOP1[paper.label], "the paper")
    return StudiedModel(name, name)
