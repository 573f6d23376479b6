"""Normalises the arguments of evaluate()."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from robustassay import data as datasets
from robustassay.attacks.attack import Attack
from robustassay.data import Dataset
from robustassay.data.torch_data import from_torch, is_samples
from robustassay.errors import BadRequest
from robustassay.registry import name_of
from robustassay.threat import Norm, ThreatModel, preset


def as_dataset(data: Any, limit: int | None = None) -> Dataset:
    """Load data by name or path, or convert a pair of arrays, or samples of torch.utils.data."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, str | Path):
        return datasets.load(str(data))
    if isinstance(data, tuple | list) and len(data) == 2 and not _are_samples(data):
        images, labels = data
        return datasets.from_arrays(torch.stack(tuple(images)) if _are_tensors(images) else images, labels)
    if is_samples(data):
        return from_torch(data, limit)
    raise BadRequest(
        "data must be a dataset, its name or path, a pair (images, labels), or a Dataset or DataLoader of "
        f"torch.utils.data, not {type(data).__name__}."
    )


def _are_samples(data: Sequence[Any]) -> bool:
    """Tell a list of two samples from a pair of images and labels."""
    return all(isinstance(one, Mapping) or (isinstance(one, tuple) and len(one) == 2) for one in data)


def _are_tensors(images: Any) -> bool:
    return isinstance(images, tuple | list) and bool(images) and all(isinstance(one, torch.Tensor) for one in images)


def as_threat(threat: Norm | ThreatModel | str) -> ThreatModel:
    """Convert a norm, or the name of a known threat, to a threat model."""
    if isinstance(threat, ThreatModel):
        return threat
    if isinstance(threat, str):
        return ThreatModel(preset(threat))
    if isinstance(threat, Norm):
        return ThreatModel(threat)
    raise BadRequest(f"threat must be such as robustassay.LInf(8 / 255) or a ThreatModel, not {threat!r}.")


def as_list(attack: str | Attack[Any] | Sequence[str | Attack[Any]]) -> Sequence[str | Attack[Any]]:
    """Return a sequence of attacks, also for a single one."""
    if isinstance(attack, str | Attack):
        return [attack]
    if isinstance(attack, Sequence):
        return attack
    raise BadRequest(f"attack must be a name, an attack such as robustassay.attacks.PGD(), or several, not {attack!r}.")


def distinct_names(chosen: Sequence[Attack[Any]]) -> list[str]:
    """Name each attack, with a number where a name repeats."""
    names = [name_of("attack", type(attack)) for attack in chosen]
    repeated, seen = Counter(names), Counter[str]()
    for index, name in enumerate(names):
        seen[name] += 1
        if repeated[name] > 1:
            names[index] = f"{name}-{seen[name]}"
    return names
