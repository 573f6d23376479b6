"""The grid of kinds and severities, and datasets with one corruption applied."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from torch import Tensor

from robustassay import registry
from robustassay.data.corruptions.corruption import SEVERITIES, Corruption
from robustassay.data.dataset import Dataset, Reader

VERSION: Final = "assay-corruption-1"
"""Increase this if the same corruption gives other images than before."""

KINDS: Final = (
    "gaussian-noise",
    "shot-noise",
    "impulse-noise",
    "defocus-blur",
    "glass-blur",
    "motion-blur",
    "zoom-blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic-transform",
    "pixelate",
    "jpeg-compression",
)
"""The 15 kinds of the benchmark, in its order: noise, blur, weather, digital."""


@final
@dataclass(frozen=True)
class CorruptionSpec:
    """A kind of corruption at a severity."""

    kind: str
    severity: int

    def __str__(self) -> str:
        return f"{self.kind}-{self.severity}"


def corruption_grid(kinds: Sequence[str] = KINDS) -> list[CorruptionSpec]:
    """Return all combinations of kinds and severities."""
    return [CorruptionSpec(kind, severity) for kind in kinds for severity in SEVERITIES]


def create(spec: "str | CorruptionSpec") -> Corruption:
    """Create a corruption from its name and severity, such as "fog:severity=3"."""
    text = f"{spec.kind}:severity={spec.severity}" if isinstance(spec, CorruptionSpec) else spec
    made: Corruption = registry.create("corruption", text)
    return made


def corrupt(dataset: Dataset, corruption: "Corruption | CorruptionSpec | str", seed: int = 0) -> Dataset:
    """Return the dataset with images corrupted on reading; ids, labels and order stay."""
    chosen = corruption if isinstance(corruption, Corruption) else create(corruption)
    spelled = f"{registry.name_of('corruption', type(chosen))}:severity={chosen.severity}"
    identity = "\n".join((VERSION, dataset.sha256, spelled, str(seed)))
    return replace(
        dataset,
        name=f"{spelled}|{dataset.name}",
        sha256=hashlib.sha256(identity.encode()).hexdigest(),
        read=_CorruptedReader(dataset.read, dataset.ids, chosen, seed),
        part_of=None if dataset.part_of is None else corrupt(dataset.part_of, chosen, seed),
    )


@final
@dataclass(frozen=True)
class _CorruptedReader:
    """Reads rows of another reader and corrupts them."""

    read: Reader
    ids: tuple[str, ...]
    corruption: Corruption
    seed: int

    def __call__(self, rows: Sequence[int]) -> Tensor:
        return self.corruption(self.read(rows), [self.ids[row] for row in rows], self.seed)
