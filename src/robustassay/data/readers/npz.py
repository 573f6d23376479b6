"""Datasets in numpy's .npz files: images `x`, labels `y`, and optionally class names `classes`."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from robustassay.data.arrays import from_arrays
from robustassay.data.dataset import Dataset
from robustassay.data.safe_files import check_unpacked
from robustassay.errors import BadData

CHANNELS = (1, 3)


def read(path: Path) -> Dataset:
    """Read images, uint8 or float in [0, 1], channels first or last, and their labels."""
    arrays = _arrays(path)
    if not {"x", "y"} <= arrays.keys():
        raise BadData(
            f"{path} holds {', '.join(sorted(arrays)) or 'nothing'}, but needs images x and labels y: "
            "write it with numpy.savez(path, x=images, y=labels)."
        )
    classes = arrays.get("classes")
    return from_arrays(
        _channels_first(arrays["x"], path),
        arrays["y"],
        name=path.stem,
        classes=None if classes is None else classes.ravel().tolist(),
    )


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    check_unpacked(path)
    try:
        # Object arrays are pickles, and a pickle can run code: numpy refuses them here.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {key: archive[key] for key in ("x", "y", "classes") if key in archive.files}
    except Exception as error:  # zip, header and decompression errors mean the same to the user
        raise BadData(
            f"{path} cannot be read as .npz ({error}): "
            "write it with numpy.savez(path, x=images, y=labels), both numeric arrays."
        ) from error


def _channels_first(x: npt.NDArray[Any], path: Path) -> npt.NDArray[Any]:
    if x.ndim != 4:
        return x
    first, last = x.shape[1] in CHANNELS, x.shape[3] in CHANNELS
    if first == last:
        raise BadData(
            f"The images of {path} have shape {list(x.shape)}, in which the channels are ambiguous: "
            "store 1 or 3 channels as [N, H, W, C] or [N, C, H, W]."
        )
    return x if first else x.transpose(0, 3, 1, 2)
