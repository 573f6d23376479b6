"""Published corrupted images: the arrays of CIFAR-10-C and the folders of ImageNet-C.

FOLDER/gaussian_noise.npy, ..., FOLDER/labels.npy     images [5 * n, 32, 32, 3], severity after severity
FOLDER/gaussian_noise/1/CLASS/IMAGE, ...              one folder per kind and severity, images by class
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from robustassay.data.arrays import from_arrays
from robustassay.data.corruptions.corruption import SEVERITIES
from robustassay.data.corruptions.grid import CorruptionSpec
from robustassay.data.dataset import Dataset
from robustassay.data.readers import folder as folders
from robustassay.errors import BadData


def read_corrupted(folder: Path, spec: CorruptionSpec) -> Dataset:
    """Read the images of one kind and severity from either layout."""
    name = spec.kind.replace("-", "_")
    if (folder / f"{name}.npy").is_file():
        return _read_arrays(folder, name, spec)
    place = folder / name / str(spec.severity)
    if place.is_dir():
        return folders.read(place)
    raise BadData(
        f"{folder} holds neither {name}.npy, as CIFAR-10-C does, nor {name}/{spec.severity}, as ImageNet-C: "
        "give the folder its archive unpacks to."
    )


def _read_arrays(folder: Path, name: str, spec: CorruptionSpec) -> Dataset:
    images, labels = _mapped(folder / f"{name}.npy"), _mapped(folder / "labels.npy")
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise BadData(f"{folder / 'labels.npy'} must hold integers, one per image: fetch it again.")
    if images.ndim != 4 or images.dtype != np.uint8 or len(images) % len(SEVERITIES):
        raise BadData(f"{folder / name}.npy must hold five severities of uint8 images: fetch it again.")
    count = len(images) // len(SEVERITIES)
    first = count * (spec.severity - 1)
    # The labels repeat for each severity; some copies of the archive hold them once.
    own = labels[first : first + count] if len(labels) == len(images) else labels[:count]
    if len(own) != count:
        raise BadData(f"{folder / 'labels.npy'} holds {len(labels)} labels for {len(images)} images: fetch it again.")
    x = np.ascontiguousarray(images[first : first + count].transpose(0, 3, 1, 2))
    return from_arrays(x, own.astype(np.int64), name=f"{folder.name}-{spec}")


def _mapped(path: Path) -> npt.NDArray[Any]:
    try:
        # Memory-mapped, to read one severity of five; object arrays are pickles and are refused.
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("it is an archive")
    except Exception as error:  # a damaged header can raise any exception
        raise BadData(f"{path} cannot be read as a numpy array ({error}): fetch it again.") from error
    return array
