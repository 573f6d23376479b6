"""Models from other sources: `timm:NAME`, `onnx:FILE` and so on, one adapter per file.

Each adapter is a module with a `load` from what stands after the colon to a `Loaded`. It imports the library it
adapts only then; all of these are extras. Weights are read as plain tensors, never as programs.
"""

from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from torch import nn


@final
@dataclass(frozen=True)
class ModelSource:
    """One source of models: the form of its names, its description, and its adapter."""

    spelled: str
    about: str
    module: str


@final
@dataclass(frozen=True)
class Loaded:
    """A model in eval mode that maps images in [0, 1] to logits, and the hash of its origin."""

    module: "nn.Module"
    origin: str


# A new adapter needs one row here; load_model, the command line and the docs then know it.
SOURCES = MappingProxyType(
    {
        "torchvision": ModelSource(
            "torchvision:NAME[:WEIGHTS]",
            "torchvision's models; WEIGHTS is one of its own sets or a file of yours",
            "robustassay.models.sources.torchvision",
        ),
        "timm": ModelSource(
            "timm:NAME[:FILE]", "timm's models, with its weights or a file of yours", "robustassay.models.sources.timm"
        ),
        "hf": ModelSource(
            "hf:ORG/REPO[@REVISION]",
            "image classifiers on the Hugging Face hub, or a folder in the same layout; safetensors only",
            "robustassay.models.sources.hub",
        ),
        "robustbench": ModelSource(
            "robustbench:NAME[:THREAT]",
            "RobustBench's zoo; THREAT is such as Linf (the default), L2 or imagenet/Linf",
            "robustassay.models.sources.robustbench",
        ),
        "imagenet": ModelSource(
            "imagenet:NAME[:FILE]",
            "networks of ours for ImageNet, with published weights from the folder that ASSAY_WEIGHTS names",
            "robustassay.models.sources.imagenet",
        ),
        "background": ModelSource(
            "background:MODEL",
            "a model of 1,001 classes, of which the first is background: its logit is dropped",
            "robustassay.models.sources.background",
        ),
        "classes": ModelSource(
            "classes:NUMBERS:MODEL",
            "a model restricted to some classes, in the order of those of the data: classes:0,217,482:timm:resnet18",
            "robustassay.models.sources.chosen_classes",
        ),
        "onnx": ModelSource("onnx:FILE", "an ONNX file, made differentiable", "robustassay.models.sources.onnx"),
        "onnx-scores": ModelSource(
            "onnx-scores:FILE",
            "an ONNX file as its runtime computes it: scores without gradients",
            "robustassay.models.sources.onnx_scores",
        ),
    }
)


def is_source_spec(spec: str) -> bool:
    """Return whether a model name begins with a source."""
    kind, colon, _ = spec.partition(":")
    return bool(colon) and kind in SOURCES


def load_from_source(spec: str) -> Loaded:
    """Load a model from the source in its name."""
    kind, _, rest = spec.partition(":")
    loaded: Loaded = import_module(SOURCES[kind].module).load(rest.strip())
    # Dropout and batch statistics would make every number wrong.
    loaded.module.eval().requires_grad_(False)
    return loaded
