"""CIFAR-10 by its name alone, for whoever has its files where people usually put them."""

import os
from pathlib import Path

from robustassay.data import cifar10
from robustassay.data.dataset import Dataset
from robustassay.errors import BadData


def read() -> Dataset:
    """Read the test split from the folder that ASSAY_DATA names, or from ./data, where torchvision puts it too."""
    named = os.environ.get("ASSAY_DATA")
    for folder in ([Path(named).expanduser()] if named else []) + [Path("data")]:
        for place in (folder, folder / "cifar10", folder / "cifar-10"):
            if any((place / name).is_file() for name in cifar10.TEST_FILES):
                return cifar10.read(place)
    raise BadData(
        "CIFAR-10 is not here: unpack cifar-10-python.tar.gz into ./data, name its folder in ASSAY_DATA or as "
        "cifar10:FOLDER, or take the 1,000 images that come with assay, cifar10-1k."
    )
