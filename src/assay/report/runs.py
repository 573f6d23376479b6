"""The runs a report is about, read from their folders."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import pandas as pd
import pyarrow as pa

from assay.analysis import trust
from assay.analysis.trust import Summary, summarise
from assay.errors import BadRequest, StoreFailed
from assay.records import to_pandas
from assay.report import words
from assay.store import MANIFEST, Store

if TYPE_CHECKING:
    import torch

_NORMS = {"Linf": 0, "L2": 1, "L1": 2, "L0": 3}


@final
@dataclass(frozen=True, eq=False)
class Run:
    """One specification with all its records, which may lie in several folders."""

    manifest: Mapping[str, Any]
    stores: tuple[Store, ...]
    records: pd.DataFrame = field(repr=False)

    @property
    def key(self) -> str:
        """The name of the specification, and of its place on the page."""
        return str(self.manifest["key"])

    @property
    def spec(self) -> Mapping[str, Any]:
        """Everything that its results depend on."""
        spec: Mapping[str, Any] = self.manifest["spec"]
        return spec

    @property
    def model(self) -> str:
        """What the model was called."""
        return str(self.spec["model"]["name"])

    @property
    def model_id(self) -> str:
        """What tells the model from all others, namesakes included."""
        return json.dumps(self.spec["model"], sort_keys=True)

    @property
    def data(self) -> str:
        """What the dataset is called."""
        return str(self.spec["data"]["name"])

    @property
    def threat(self) -> str:
        """How far the attacker may go, and towards what."""
        return words.threat(self.spec["threat"])

    @property
    def flags(self) -> dict[str, str]:
        """Reasons to doubt its robust accuracy."""
        return {**self.manifest.get("flags", {}), **trust.flags_of(self.records)}

    @property
    def confirms(self) -> frozenset[str]:
        """The runs whose doubtful samples this one was made for; it covers no others."""
        return frozenset(self.manifest.get("confirms", ()))

    @property
    def arena(self) -> str:
        """What runs must share to be compared: the dataset and the whole threat."""
        return json.dumps([self.spec["data"], self.spec["threat"]], sort_keys=True)

    @property
    def attack(self) -> str:
        """The name of the attack."""
        return str(self.spec["attack"]["name"])

    @property
    def settings(self) -> str:
        """The settings of the attack, in words."""
        return words.settings(self.spec["attack"])

    @property
    def is_noise(self) -> bool:
        """Whether the attack is a random baseline."""
        return self.attack.endswith("noise")

    @property
    def date(self) -> str:
        """The day it started."""
        return str(self.manifest["started"])[:10]

    @cached_property
    def summary(self) -> Summary:
        """The numbers of this run alone."""
        return summarise(self.records)

    @property
    def has_images(self) -> bool:
        """Whether adversarial images were kept; looks at names only, as loading them takes torch and memory."""
        return any(next((store.path / "shards").glob("*.safetensors"), None) for store in self.stores)

    def images(self) -> "dict[str, torch.Tensor]":
        """Load the adversarial images by sample id."""
        return {sample: image for store in self.stores for sample, image in store.images().items()}


def read_runs(folders: Sequence[Path]) -> tuple[Run, ...]:
    """Read every run in these folders or below them, each specification once, in the order of the page."""
    by_key: dict[str, list[tuple[Store, Mapping[str, Any]]]] = {}
    for store in _stores(folders):
        manifest = _checked(store)
        by_key.setdefault(manifest["key"], []).append((store, manifest))
    return tuple(sorted(map(_merge, by_key.values()), key=_place))


def _merge(found: Sequence[tuple[Store, Mapping[str, Any]]]) -> Run:
    stores = tuple(store for store, _ in found)
    return Run(found[0][1], stores, _records(stores))


def _stores(folders: Iterable[Path]) -> Iterator[Store]:
    seen: set[Path] = set()
    for folder in folders:
        found = [folder] if Store(folder).exists() else _below(folder)
        if not found:
            raise BadRequest(
                f"{folder} holds no run: give the folder named by --out of an evaluation, or one above it."
            )
        for path in found:
            if path.resolve() not in seen:
                seen.add(path.resolve())
                yield Store.at(path)
    if not seen:
        raise BadRequest("A report needs at least one run: give the folder named by --out of an evaluation.")


def _below(folder: Path) -> list[Path]:
    # Other programs call their files manifest.json too; only ours stands beside shards.
    return sorted(path.parent for path in folder.rglob(MANIFEST) if (path.parent / "shards").is_dir())


def _checked(store: Store) -> Mapping[str, Any]:
    manifest = store.manifest()
    try:
        spec = manifest["spec"]
        _ = manifest["key"], manifest["started"], spec["seed"], spec["threat"]["norm"], float(spec["threat"]["eps"])
        _ = spec["model"]["name"], spec["data"]["name"], spec["data"]["sha256"], spec["attack"]["name"]
    except (KeyError, TypeError, ValueError) as error:
        raise StoreFailed(
            f"{store.path / MANIFEST} is not a manifest this version of assay knows ({error!r}): "
            "leave that folder out, or run the evaluation again."
        ) from error
    return manifest


def _records(stores: Sequence[Store]) -> pd.DataFrame:
    """Read all records, one a sample, in the order of their ids."""
    table = pa.concat_tables([store.records() for store in stores])
    records = to_pandas(table).drop_duplicates("sample_id")
    length = records["sample_id"].str.len()
    return (
        records.assign(_length=length).sort_values(["_length", "sample_id"], ignore_index=True).drop(columns="_length")
    )


def _place(run: Run) -> tuple[str | float, ...]:
    """Order by dataset, threat and model, then from the weakest attack to the strongest."""
    norm, eps = run.spec["threat"]["norm"], float(run.spec["threat"]["eps"])
    broken = run.summary.samples - run.summary.robust.count
    return run.data, _NORMS.get(norm, len(_NORMS)), eps, run.arena, run.model_id, broken, run.key
