"""`robustbench:NAME[:THREAT]`: RobustBench's model definitions, with their weights read as plain tensors.

The package supplies architectures and its list of Google Drive ids; downloading, and reading without running what a
file says, are done here. Weights fetched before lie in its own layout, DATASET/THREAT/NAME.pt, below the folder
`robustbench` of the cache: copy a `models` folder of RobustBench there to use it.
"""

import importlib.util
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

from torch import Tensor, nn

from robustassay.errors import BadRequest, BadWeights, UnknownName
from robustassay.models.sources import Loaded
from robustassay.models.sources.cache import fetch
from robustassay.models.sources.extras import need
from robustassay.models.weights import read_weights, sha256_of

DRIVE: Final = "https://drive.usercontent.google.com/download?export=download&confirm=t&id={}"
CONSTANTS: Final = ("mu", "sigma", "mean", "std")
"""Buffers of a definition that its checkpoint may lack: the numbers of its normalisation."""


def load(rest: str) -> Loaded:
    """Load a RobustBench model by its name and threat."""
    name, _, place = rest.partition(":")
    dataset, _, threat = (place or "Linf").rpartition("/")
    entries = _entries(dataset or "cifar10", threat)
    if name not in entries:
        raise UnknownName("RobustBench model", name, entries)
    file_id = entries[name].get("gdrive_id")
    if not isinstance(file_id, str):
        raise BadRequest(
            f"RobustBench keeps {name} as several files or elsewhere: load it in a file of yours with its load_model."
        )
    path = fetch(DRIVE.format(file_id), f"robustbench/{dataset or 'cifar10'}/{threat}/{name}.pt")
    network: nn.Module = entries[name]["model"]()
    _put(network, read_weights(path), name)
    return Loaded(network, sha256_of(path))


def _entries(dataset: str, threat: str) -> dict[str, Mapping[str, Any]]:
    """Return the definitions for a dataset and threat by name."""
    if not _is_there():
        raise BadRequest("This model needs the package robustbench: pip install 'robustassay[robustbench]'.")
    need("torchvision", "robustbench")  # which may need a repair before robustbench imports it
    with _definitions_only():
        listed: Mapping[Any, Any] = need("robustbench.model_zoo.models", "robustbench").model_dicts
    by_name = {
        f"{data.value}/{danger.value}": models for data, dangers in listed.items() for danger, models in dangers.items()
    }
    if f"{dataset}/{threat}" not in by_name:
        raise UnknownName("RobustBench threat", f"{dataset}/{threat}", by_name)
    return dict(by_name[f"{dataset}/{threat}"])


def _is_there() -> bool:
    """Return whether the package, or its replacement from an earlier call, can be imported."""
    return sys.modules.get("robustbench") is not None or (
        "robustbench" not in sys.modules and importlib.util.find_spec("robustbench") is not None
    )


@contextmanager
def _definitions_only() -> Iterator[None]:
    """Make the package's parts importable without running its __init__.

    That one imports the evaluation too, which needs a package `autoattack` that PyPI does not have under this name.
    Its readers of data import `pkg_resources`, which setuptools no longer has; an empty one does, as definitions never
    call it.
    """
    found = importlib.util.find_spec("robustbench") if "robustbench" not in sys.modules else None
    if found is not None:
        package = ModuleType("robustbench")
        package.__path__ = list(found.submodule_search_locations or ())
        sys.modules["robustbench"] = package
    gone = importlib.util.find_spec("pkg_resources") is None
    if gone:
        sys.modules["pkg_resources"] = ModuleType("pkg_resources")
    try:
        with warnings.catch_warnings(action="ignore"):  # about names of its own imports
            yield
    finally:
        if gone:
            del sys.modules["pkg_resources"]


def _put(network: nn.Module, weights: Mapping[str, Tensor], name: str) -> None:
    """Load a checkpoint saved from inside or outside of a wrapper."""
    own = network.state_dict()
    constants = {key for key in own if key.rpartition(".")[2] in CONSTANTS}
    for spelled in _spellings(weights):
        if spelled.keys() <= own.keys() and own.keys() - spelled.keys() <= constants:
            try:
                network.load_state_dict(spelled, strict=False)
            except RuntimeError:  # the names fit, the shapes do not
                continue
            return
    raise BadWeights(f"The weights of {name} fit no network of its definition: fetch them or robustbench again.")


def _spellings(weights: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    bare = {key.removeprefix("module."): value for key, value in weights.items()}
    inner = {key.removeprefix("model."): value for key, value in bare.items()}
    yield from (dict(weights), bare, inner, {f"model.{key}": value for key, value in inner.items()})
