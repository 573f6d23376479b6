"""Stored runs: records are read when they are asked for, and not kept in memory."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import pandas as pd

from robustassay.eps import format_eps
from robustassay.errors import StoreFailed
from robustassay.records import to_pandas
from robustassay.results import identity
from robustassay.results.discovery import find_stores
from robustassay.results.labels import settings_label, threat_label
from robustassay.results.worst_case import merge_records
from robustassay.store import MANIFEST, Store

if TYPE_CHECKING:
    import torch

MEMBERS: Final = "members"
_NORMS = {"Linf": 0, "L2": 1, "L1": 2, "L0": 3}


@final
@dataclass(frozen=True, eq=False)
class StoredRun:
    """One specification, whose records may be in several folders."""

    manifest: Mapping[str, Any]
    stores: tuple[Store, ...]

    @property
    def key(self) -> str:
        """The hash of the specification."""
        return str(self.manifest["key"])

    @property
    def page(self) -> str:
        """The path of its page in a report; a key that is no safe file name is hashed."""
        safe = re.fullmatch(r"[0-9A-Za-z_-]{1,64}", self.key)
        return f"runs/{self.key if safe else hashlib.sha256(self.key.encode()).hexdigest()[:16]}.html"

    @property
    def spec(self) -> Mapping[str, Any]:
        """Everything that changes the results."""
        spec: Mapping[str, Any] = self.manifest["spec"]
        return spec

    @property
    def model(self) -> str:
        """The name of the model."""
        return str(self.spec["model"]["name"])

    @property
    def model_id(self) -> str:
        """A string that identifies the model, name included; how it was searched is not part of it."""
        return identity.model_id(self.spec["model"])

    @property
    def data(self) -> str:
        """The name of the dataset."""
        return str(self.spec["data"]["name"])

    @property
    def threat(self) -> str:
        """The threat, such as L∞ 8/255."""
        return threat_label(self.spec["threat"])

    @property
    def confirms(self) -> frozenset[str]:
        """The keys of the runs whose samples in doubt this one covers."""
        return identity.confirmed_run_keys(self.manifest)

    @property
    def comparison_key(self) -> str:
        """Equal for runs of models that can be compared: the same dataset and threat."""
        return json.dumps([self.spec["data"], self.spec["threat"]], sort_keys=True)

    @property
    def eps_axis_key(self) -> str:
        """Equal for runs that can be drawn over one axis of eps: the same dataset and threat, whatever the eps."""
        return json.dumps([self.spec["data"], {**self.spec["threat"], "eps": None}], sort_keys=True)

    @property
    def threat_without_eps(self) -> str:
        """The threat without its eps, such as L∞."""
        return self.threat.replace(f" {format_eps(float(self.spec['threat']['eps']))}", "", 1)

    @property
    def attack(self) -> str:
        """The name of the attack."""
        return identity.attack_name(self.manifest)

    @property
    def settings(self) -> str:
        """The settings of the attack, such as steps 40."""
        return settings_label(self.spec["attack"])

    @property
    def is_noise(self) -> bool:
        """Whether the attack is a random baseline."""
        return identity.is_noise(self.manifest)

    @property
    def date(self) -> str:
        """The day it started."""
        return str(self.manifest["started"])[:10]

    def read(self) -> pd.DataFrame:
        """Read all records, one row per sample, in the order of their ids."""
        records = merge_records([to_pandas(store.records()) for store in self.stores])
        records["sample_id"] = records["sample_id"].astype(object)  # plain strings compare fastest
        length = records["sample_id"].str.len()
        ordered = records.assign(_length=length).sort_values(["_length", "sample_id"], ignore_index=True)
        return ordered.drop(columns="_length")

    def failures(self) -> dict[str, str]:
        """Return the error of each sample without a record on which the model failed."""
        return {sample: why for store in self.stores for sample, why in store.failures().items()}

    @property
    def has_images(self) -> bool:
        """Whether adversarial images were kept; only file names are looked at, since loading needs torch and memory."""
        return any(next((store.path / "shards").glob("*.safetensors"), None) for store in self.stores)

    def images(self) -> "dict[str, torch.Tensor]":
        """Load the adversarial images by sample id, each from the folder of the sample's record."""
        images = [store.images() for store in self.stores]
        records = merge_records([to_pandas(one.records()).assign(place=at) for at, one in enumerate(self.stores)])
        placed = zip(records["sample_id"], records["place"], strict=True)
        return {sample: images[at][sample] for sample, at in placed if sample in images[at]}


def find_runs(folders: Sequence[Path]) -> tuple[StoredRun, ...]:
    """Find every run in these folders or below them, each specification once, by dataset, threat and model."""
    by_key: dict[str, list[tuple[Store, Mapping[str, Any]]]] = {}
    for store in find_stores(folders):
        manifest = _checked(store)
        if MEMBERS in manifest["spec"]["model"]:
            continue  # images that a study crafted on an ensemble to show to other models; their cost was not counted
        by_key.setdefault(manifest["key"], []).append((store, manifest))
    runs = (
        StoredRun(identity.merge_manifests([manifest for _, manifest in found]), tuple(store for store, _ in found))
        for found in by_key.values()
    )
    return tuple(sorted(runs, key=_order))


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


def _order(run: StoredRun) -> tuple[str | float, ...]:
    norm, eps = run.spec["threat"]["norm"], float(run.spec["threat"]["eps"])
    return run.data, _NORMS.get(norm, len(_NORMS)), eps, run.comparison_key, run.model_id, run.attack, run.key
