"""Readers of datasets, one format per file, and the table of the names they are loaded by."""

from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class DatasetSource:
    """One kind of dataset: its description, and its reader as `module:function`."""

    about: str
    reader: str


# A new reader needs one row here; load(), the command line and the docs then know it.
SOURCES = MappingProxyType(
    {
        "cifar10-1k": DatasetSource(
            "1,000 images of the CIFAR-10 test set, 100 per class, embedded in assay", "robustassay.data.embedded:read"
        ),
        "cifar10": DatasetSource(
            "the CIFAR-10 test split from its official files in ./data or the folder in ASSAY_DATA",
            "robustassay.data.readers.cifar10:read_default_folder",
        ),
        "cifar10:PATH": DatasetSource(
            "the CIFAR-10 test split from its official python or binary files", "robustassay.data.readers.cifar10:read"
        ),
        "cifar100": DatasetSource(
            "the CIFAR-100 test split from its official files in ./data or the folder in ASSAY_DATA",
            "robustassay.data.readers.cifar100:read_default_folder",
        ),
        "cifar100:PATH": DatasetSource(
            "the CIFAR-100 test split from its official python or binary files, or one folder per class; fine labels",
            "robustassay.data.readers.cifar100:read",
        ),
        "imagenet": DatasetSource(
            "ImageNet photographs in the folder in ASSAY_IMAGENET, or in ./data/imagenet",
            "robustassay.data.readers.imagenet:read_default_folder",
        ),
        "imagenet:PATH": DatasetSource(
            "ImageNet photographs: one folder per synset, or a flat folder with a label file",
            "robustassay.data.readers.imagenet:read",
        ),
        "nips2017:PATH": DatasetSource(
            "photographs and a CSV with true and target classes, as in the NIPS 2017 competition",
            "robustassay.data.readers.nips2017:read",
        ),
        "folder:PATH": DatasetSource(
            "a folder with one sub-folder per class; all images have the same size",
            "robustassay.data.readers.folder:read",
        ),
        "npz:PATH": DatasetSource(
            "an .npz file with images x (uint8, or float in [0, 1]) and labels y", "robustassay.data.readers.npz:read"
        ),
    }
)
