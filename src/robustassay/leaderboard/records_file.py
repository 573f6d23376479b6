"""A run as one file to send to others: its records as Parquet, with the manifest inside.

NAME.parquet holds the records. NAME.safetensors beside it holds the images in the same order, where images were kept.
Both are bound to each other by a hash. Nothing here says that the records are true: see `recheck`.
"""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from robustassay import shards
from robustassay.errors import BadData, StoreFailed
from robustassay.evaluation import Result
from robustassay.files import write_atomically
from robustassay.leaderboard.audit import contradictions
from robustassay.leaderboard.manifests import checked
from robustassay.records import to_pandas
from robustassay.shards import Binding
from robustassay.store import Store

if TYPE_CHECKING:
    from torch import Tensor

ABOUT: Final = b"assay-manifest"
SUFFIX: Final = ".parquet"
_MOST_MANIFEST_BYTES: Final = 1 << 20


def pack(run: Path, folder: Path) -> Path:
    """Write a run's folder as one file, named by its key, and its images beside it where all were kept."""
    store = _complete(Store.at(run))
    manifest, records, images = checked(store.manifest(), run), store.records(), store.images()
    path = folder / f"{manifest['key']}{SUFFIX}"
    samples = records["sample_id"].to_pylist()
    kept = None
    if samples and images.keys() >= set(samples):
        import torch

        kept = shards.encode_images(torch.stack([images[sample] for sample in samples]))
    binding = Binding(str(manifest["key"]), images=None if kept is None else hashlib.sha256(kept).hexdigest())
    content = shards.encode_records(records, {**binding.metadata(), ABOUT: json.dumps(manifest).encode()})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if kept is not None:
            write_atomically(path.with_suffix(".safetensors"), kept)
        write_atomically(path, content)
    except OSError as error:
        raise StoreFailed(f"{path} cannot be written ({error.strerror or error}): choose another folder.") from error
    return path


def read(path: Path) -> Result:
    """Read the records of a run from such a file, or from the folder of the run; images are not read."""
    if path.is_dir():
        store = _complete(Store.at(path))
        return _consistent(Result(checked(store.manifest(), path), to_pandas(store.records()), None), path)
    table, manifest = _read(path)
    about = checked(manifest, path)
    try:
        if Binding.of(table.schema).run != about["key"]:
            raise ValueError("its records belong to another run")
    except ValueError as error:
        raise _refused(path, error) from error
    return _consistent(Result(about, to_pandas(table.replace_schema_metadata(None)), None), path)


def images(path: Path) -> "dict[str, Tensor]":
    """Read the images that were kept with a run, by sample id; empty where none were."""
    if path.is_dir():
        return Store.at(path).images()
    table, _ = _read(path)
    try:
        binding, samples = Binding.of(table.schema), table["sample_id"].to_pylist()
        if binding.images is None:
            return {}
        beside = path.with_suffix(".safetensors")
        return dict(zip(samples, shards.read_images(beside, len(samples), binding.images), strict=True))
    except (OSError, ValueError) as error:
        raise BadData(f"The images of {path} cannot be read ({error}): fetch both files again.") from error


def copy(path: Path, folder: Path) -> None:
    """Copy a records file and its images; refuse a file in their place that is not theirs: it may be a link."""
    beside = path.with_suffix(".safetensors")
    files = [path]
    if (beside.exists() or beside.is_symlink()) and images(path):
        files.insert(0, beside)
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        write_atomically(folder / file.name, file.read_bytes())


def _read(path: Path) -> tuple[pa.Table, Any]:
    """Read a records file and its manifest; neither is checked here but for sizes and columns."""
    try:
        content = shards.read_limited(path, shards.MOST_BYTES)
        text = shards.metadata(content).get(ABOUT)
        if text is None:
            raise ValueError("it has no manifest")
        if len(text) > _MOST_MANIFEST_BYTES:
            raise ValueError("its manifest is too long")
        manifest = json.loads(text)
        if isinstance(manifest, dict) and "schema" not in manifest:
            checked(manifest, path)  # written by another version: say which, before its columns are looked at
        return shards.decode_records(content), manifest
    except (OSError, ValueError, RecursionError, pa.ArrowException) as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: Exception) -> BadData:
    return BadData(f"{path} is no records file ({str(error)[:200]}): make one with `assay leaderboard add`.")


def _consistent(result: Result, path: Path) -> Result:
    if wrong := contradictions(result):
        raise BadData(f"The records of {path} contradict themselves ({'; '.join(wrong)}): run it again.")
    return result


def _complete(store: Store) -> Store:
    """Refuse a run without all its samples: left out, they would make the model look better than it is."""
    if failed := store.failures():
        raise BadData(
            f"The model of {store.path} failed on {len(failed)} samples, such as {next(iter(failed))[:80]!r}: mend it "
            "and run again, as a leaderboard ranks models on all samples."
        )
    if missing := store.missing():
        raise BadData(
            f"{store.path} lacks {len(missing)} of its shards, such as {missing[0][:80]}: run the same command again "
            "to redo their samples."
        )
    return store
