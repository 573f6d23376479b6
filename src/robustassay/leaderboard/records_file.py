"""A run as one file to send around: its records as Parquet, with the manifest inside.

NAME.parquet holds the records; NAME.safetensors beside it, where images were kept, the images in the same order.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from robustassay.errors import BadData, StoreFailed
from robustassay.evaluation import Result
from robustassay.evaluation.spec import RunSpec
from robustassay.files import write_atomically
from robustassay.records import SCHEMA, to_pandas
from robustassay.store import Store

if TYPE_CHECKING:
    from torch import Tensor

ABOUT: Final = b"assay-manifest"
SUFFIX: Final = ".parquet"


def pack(run: Path, folder: Path) -> Path:
    """Write a run's folder as one file, named by its key, and its images beside it where all were kept."""
    from safetensors.torch import save

    store = _complete(Store.at(run))
    manifest, records, images = store.manifest(), store.records(), store.images()
    path = folder / f"{manifest['key']}{SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        whole = images.keys() >= set(records["sample_id"].to_pylist()) and len(records)
        if whole:
            import torch

            stacked = torch.stack([images[sample] for sample in records["sample_id"].to_pylist()])
            write_atomically(path.with_suffix(".safetensors"), save({"x_adv": stacked}))
        sink = pa.BufferOutputStream()
        pq.write_table(records.replace_schema_metadata({ABOUT: json.dumps(manifest)}), sink, compression="zstd")
        write_atomically(path, sink.getvalue().to_pybytes())
    except OSError as error:
        raise StoreFailed(f"{path} cannot be written ({error.strerror or error}): choose another folder.") from error
    return path


def read(path: Path) -> Result:
    """Read the records of a run from such a file, or from the folder of the run; images stay where they are."""
    if path.is_dir():
        store = _complete(Store.at(path))
        return Result(checked(store.manifest(), path), to_pandas(store.records()), None)
    try:
        table = pq.read_table(path)
        table.validate(full=True)
        manifest = json.loads((table.schema.metadata or {})[ABOUT])
    except (OSError, ValueError, KeyError, RecursionError, pa.ArrowException) as error:
        raise BadData(f"{path} is no records file ({error!r}): make one with `assay leaderboard add`.") from error
    if not table.schema.remove_metadata().equals(SCHEMA):
        differing = set(SCHEMA) ^ set(table.schema.remove_metadata())
        told = ", ".join(sorted({field.name for field in differing})) or "the order of its columns"
        raise BadData(f"{path} was written by another version of assay, or changed ({told}): run again.")
    return Result(checked(manifest, path), to_pandas(table), None)


def _complete(store: Store) -> Store:
    """Refuse a run whose model failed on samples: left out, they would make it look better than it is."""
    failed = store.failures()
    if failed:
        raise BadData(
            f"The model of {store.path} failed on {len(failed)} samples, such as {next(iter(failed))!r}: mend it and "
            "run again, as a leaderboard ranks models on all samples."
        )
    return store


def images(path: Path) -> "dict[str, Tensor]":
    """Read the images that were kept with a run, by sample id; empty where none were."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if path.is_dir():
        return Store.at(path).images()
    beside = path.with_suffix(".safetensors")
    if not beside.is_file():
        return {}
    try:
        ids = pq.read_table(path, columns=["sample_id"])["sample_id"].to_pylist()
        return dict(zip(ids, load_file(beside)["x_adv"], strict=True))
    except (OSError, ValueError, KeyError, TypeError, SafetensorError, pa.ArrowException) as error:
        raise BadData(f"{beside} does not hold the images of {path.name} ({error}): fetch both again.") from error


def checked(manifest: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """Return a manifest whose key is that of its specification, so that nobody has edited what was run."""
    try:
        key = RunSpec(**manifest["spec"]).key
        _ = manifest["started"], manifest["spec"]["threat"]["norm"], float(manifest["spec"]["threat"]["eps"])
        _ = manifest["spec"]["model"]["name"], manifest["spec"]["data"]["sha256"], manifest["spec"]["attack"]["name"]
    except (KeyError, TypeError, ValueError) as error:
        raise BadData(f"The manifest of {path} is none of assay's ({error!r}): leave it out, or run again.") from error
    if manifest.get("key") != key:
        raise BadData(f"The manifest of {path} was changed after the run (its key is {key}): run again.")
    return manifest
