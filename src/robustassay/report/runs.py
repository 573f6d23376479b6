"""The runs a report is about, found in their folders; records are read when they are asked for and kept by nobody."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import pandas as pd
import pyarrow as pa

from robustassay.eps import format_eps
from robustassay.errors import BadRequest, StoreFailed
from robustassay.records import to_pandas
from robustassay.report import formatting
from robustassay.store import MANIFEST, SEARCH, Store

if TYPE_CHECKING:
    import torch

MEMBERS: Final = "members"
_NORMS = {"Linf": 0, "L2": 1, "L1": 2, "L0": 3}


@final
@dataclass(frozen=True, eq=False)
class Run:
    """One specification, whose records may lie in several folders."""

    manifest: Mapping[str, Any]
    stores: tuple[Store, ...]

    @property
    def key(self) -> str:
        """The name of the specification."""
        return str(self.manifest["key"])

    @property
    def page(self) -> str:
        """Where its page lies in a report; a key that is no name of a file gets another."""
        safe = re.fullmatch(r"[0-9A-Za-z_-]{1,64}", self.key)
        return f"runs/{self.key if safe else hashlib.sha256(self.key.encode()).hexdigest()[:16]}.html"

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
        """What tells the model from all others, namesakes included; how it was searched does not."""
        told = {key: value for key, value in self.spec["model"].items() if key not in SEARCH}
        return json.dumps(told, sort_keys=True)

    @property
    def data(self) -> str:
        """What the dataset is called."""
        return str(self.spec["data"]["name"])

    @property
    def threat(self) -> str:
        """How far the attacker may go, and towards what."""
        return formatting.threat(self.spec["threat"])

    @property
    def confirms(self) -> frozenset[str]:
        """The runs whose doubtful samples this one was made for; it covers no others."""
        return frozenset(self.manifest.get("confirms", ()))

    @property
    def arena(self) -> str:
        """What runs must share to be compared: the dataset and the whole threat."""
        return json.dumps([self.spec["data"], self.spec["threat"]], sort_keys=True)

    @property
    def field(self) -> str:
        """What runs must share to stand on one axis of eps: all of that but the eps."""
        return json.dumps([self.spec["data"], {**self.spec["threat"], "eps": None}], sort_keys=True)

    @property
    def field_name(self) -> str:
        """The threat without its eps."""
        return self.threat.replace(f" {format_eps(float(self.spec['threat']['eps']))}", "", 1)

    @property
    def attack(self) -> str:
        """The name of the attack."""
        return str(self.spec["attack"]["name"])

    @property
    def settings(self) -> str:
        """The settings of the attack, in words."""
        return formatting.settings(self.spec["attack"])

    @property
    def is_noise(self) -> bool:
        """Whether the attack is a random baseline."""
        return self.attack.endswith("noise")

    @property
    def date(self) -> str:
        """The day it started."""
        return str(self.manifest["started"])[:10]

    def read(self) -> pd.DataFrame:
        """Read all records, one a sample, in the order of their ids."""
        table = pa.concat_tables([store.records() for store in self.stores])
        records = to_pandas(table).drop_duplicates("sample_id")
        records["sample_id"] = records["sample_id"].astype(object)  # ids are compared a lot, as the strings they are
        length = records["sample_id"].str.len()
        ordered = records.assign(_length=length).sort_values(["_length", "sample_id"], ignore_index=True)
        return ordered.drop(columns="_length")

    @property
    def has_images(self) -> bool:
        """Whether adversarial images were kept; looks at names only, as loading them takes torch and memory."""
        return any(next((store.path / "shards").glob("*.safetensors"), None) for store in self.stores)

    def images(self) -> "dict[str, torch.Tensor]":
        """Load the adversarial images by sample id."""
        return {sample: image for store in self.stores for sample, image in store.images().items()}


def find_runs(folders: Sequence[Path]) -> tuple[Run, ...]:
    """Find every run in these folders or below them, each specification once, by dataset, threat and model."""
    by_key: dict[str, list[tuple[Store, Mapping[str, Any]]]] = {}
    for store in _stores(folders):
        manifest = _checked(store)
        if MEMBERS in manifest["spec"]["model"]:
            continue  # images that a study made to show to other models, which nobody counted a pass of
        by_key.setdefault(manifest["key"], []).append((store, manifest))
    runs = (Run(found[0][1], tuple(store for store, _ in found)) for found in by_key.values())
    return tuple(sorted(runs, key=_place))


def holds_runs(folder: Path) -> bool:
    """Say whether there is a run in a folder or below it."""
    return Store(folder).exists() or bool(_below(folder))


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


def _place(run: Run) -> tuple[str | float, ...]:
    norm, eps = run.spec["threat"]["norm"], float(run.spec["threat"]["eps"])
    return run.data, _NORMS.get(norm, len(_NORMS)), eps, run.arena, run.model_id, run.attack, run.key
