"""ImageNet by its name alone, for whoever has named its folder once."""

import os
from pathlib import Path

from robustassay.data import imagenet
from robustassay.data.dataset import Dataset
from robustassay.errors import BadData


def read() -> Dataset:
    """Read the folder that ASSAY_IMAGENET names, or ./data/imagenet."""
    named = os.environ.get("ASSAY_IMAGENET")
    place = Path(named).expanduser() if named else Path("data/imagenet")
    if not place.exists():
        raise BadData(
            f"ImageNet is not in {place}: name its folder in ASSAY_IMAGENET, or as imagenet:FOLDER or nips2017:FOLDER."
        )
    return imagenet.read(place)
