"""Normalises the arguments of evaluate()."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robustassay import data as datasets
from robustassay.attacks.attack import Attack
from robustassay.data import Dataset
from robustassay.errors import BadRequest
from robustassay.registry import name_of
from robustassay.threat import Norm, ThreatModel, preset


def as_dataset(data: Dataset | str | Path | tuple[Any, Any]) -> Dataset:
    """Load data by name or path, or convert a pair of arrays."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, str | Path):
        return datasets.load(str(data))
    if isinstance(data, tuple | list) and len(data) == 2:
        return datasets.from_arrays(*data)
    raise BadRequest(
        f"data must be a dataset, its name or path, or a pair (images, labels), not {type(data).__name__}."
    )


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
