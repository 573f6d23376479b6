"""A run on disk: a manifest, and append-only shards of records that appear whole or not at all.

    FOLDER/manifest.json           the specification and its key, and where and when it ran
    FOLDER/shards/ID.parquet       records; its rename into place is the moment the work counts
    FOLDER/shards/ID.safetensors   the adversarial images of the same samples, written before, where kept
    FOLDER/failures/ID.json        samples on which the model itself failed, each with its error; no records

Every file is written beside its place, flushed to the disk and renamed. No two shards have one name, so several
processes can write to one store; where two did the same sample, the rows agree and one is read. The name of a shard
ends in the hash of its records, and inside is that of its images: a bit that flips later is noticed.
"""

import contextlib
import errno
import hashlib
import json
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa
import pyarrow.parquet as pq

from robustassay.errors import BadRequest, StoreFailed, WrongFolder
from robustassay.files import create_atomically, write_atomically
from robustassay.records import SCHEMA

if TYPE_CHECKING:
    import torch

MANIFEST: Final = "manifest.json"
SEARCH: Final = ("eot", "search")
"""What a manifest says of a model that belongs to the attack on it: gradients averaged, a quicker surrogate."""
_BYTES_A_RECORD: Final = 512  # generous: a Parquet row of ours takes about 150
_SPARE_BYTES: Final = 16 << 20
_IMAGES_HASH: Final = b"assay-images-sha256"
_HASHED_NAME: Final = re.compile(r"[0-9a-f]{8}-([0-9a-f]{32})")  # older shards have random names of another form


@final
@dataclass(frozen=True)
class Store:
    """The folder of one run."""

    path: Path

    @classmethod
    def open(cls, path: Path, manifest: Mapping[str, Any]) -> "Store":
        """Open a folder for the run whose key the manifest holds, or start it; refuse another run's folder."""
        store = cls(Path(path))
        with _explained(store.path):
            if not store.exists():
                store._check_empty()
                (store.path / "shards").mkdir(parents=True, exist_ok=True)
                text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
                create_atomically(store.path / MANIFEST, text)
        store._check_key(manifest["key"])
        return store

    @classmethod
    def at(cls, path: Path) -> "Store":
        """Open a finished or unfinished run for reading."""
        store = cls(Path(path))
        if not store.exists():
            raise BadRequest(f"{path} holds no run: give the folder named by --out of an evaluation.")
        return store

    def exists(self) -> bool:
        """Say whether a run was started here."""
        return (self.path / MANIFEST).is_file()

    def manifest(self) -> dict[str, Any]:
        """Read the manifest."""
        try:
            read = json.loads((self.path / MANIFEST).read_text(encoding="utf-8"))
            if not isinstance(read, dict):
                raise ValueError("no JSON object")
        except (OSError, ValueError, RecursionError) as error:
            raise StoreFailed(
                f"{self.path / MANIFEST} cannot be read ({error}): delete {self.path} and run again."
            ) from error
        return read

    def append(self, records: pa.Table, images: "torch.Tensor | None" = None) -> None:
        """Add the records of some samples, and their images, as one shard that appears whole."""
        kept = None if images is None else _as_safetensors(images)
        content = _as_parquet(records, kept)
        # The random part keeps apart two shards of equal records, of which one may have images and one none.
        shard = self.path / "shards" / f"{uuid.uuid4().hex[:8]}-{hashlib.sha256(content).hexdigest()[:32]}"
        with _explained(self.path):
            if kept is not None:
                write_atomically(shard.with_suffix(".safetensors"), kept)
            write_atomically(shard.with_suffix(".parquet"), content)

    def note_failures(self, failures: Mapping[str, str]) -> None:
        """Keep the samples that could not be judged because the model itself failed on them, and what it said."""
        if failures:
            with _explained(self.path):
                folder = self.path / "failures"
                folder.mkdir(exist_ok=True)
                text = json.dumps(failures, indent=2, sort_keys=True) + "\n"
                write_atomically(folder / f"{uuid.uuid4().hex}.json", text)

    def failures(self) -> dict[str, str]:
        """Return the error of each sample that the model failed on and that has no record; a later try may mend it."""
        found: dict[str, str] = {}
        for path in sorted((self.path / "failures").glob("*.json")):
            try:
                found |= {str(sample): str(why) for sample, why in json.loads(path.read_text(encoding="utf-8")).items()}
            except (OSError, ValueError, AttributeError, RecursionError) as error:
                raise StoreFailed(
                    f"{path} is damaged ({error}): delete that file and run the same command again."
                ) from error
        done = self.done() if found else frozenset()
        return {sample: why for sample, why in found.items() if sample not in done}

    def records(self) -> pa.Table:
        """Read all records, one a sample."""
        tables = [table for _, table in self._shards()]
        whole = pa.concat_tables(tables).replace_schema_metadata(None) if tables else SCHEMA.empty_table()
        first: dict[str, int] = {}
        for row, sample in enumerate(whole["sample_id"].to_pylist()):
            first.setdefault(sample, row)
        return whole.take(pa.array(first.values(), pa.int64()))

    def done(self, with_images: bool = False) -> frozenset[str]:
        """Return the ids of all finished samples, or of those whose images were kept."""
        return frozenset(
            sample
            for path, table in self._shards()
            if not with_images or path.with_suffix(".safetensors").is_file()
            for sample in table["sample_id"].to_pylist()
        )

    def images(self) -> dict[str, "torch.Tensor"]:
        """Read the adversarial images by sample id; empty where none were kept."""
        found: dict[str, torch.Tensor] = {}
        for path, table in self._shards():
            kept = path.with_suffix(".safetensors")
            if kept.is_file():
                promised = (table.schema.metadata or {}).get(_IMAGES_HASH)
                for sample, image in zip(
                    table["sample_id"].to_pylist(), _read_images(kept, len(table), promised), strict=True
                ):
                    found.setdefault(sample, image)
        return found

    def check_room(self, samples: int, image_bytes: int) -> None:
        """Refuse to start what the disk cannot hold; nothing need exist yet."""
        needed = samples * (_BYTES_A_RECORD + image_bytes) + _SPARE_BYTES
        existing = next(folder for folder in (self.path, *self.path.absolute().parents) if folder.exists())
        free = shutil.disk_usage(existing).free
        if free < needed:
            raise StoreFailed(
                f"The disk of {self.path} has {free >> 20} MiB free and this run needs about {needed >> 20} MiB: "
                "free some space or choose another folder with --out."
            )

    def _shards(self) -> Iterator[tuple[Path, pa.Table]]:
        for path in sorted((self.path / "shards").glob("*.parquet")):
            yield path, _read_records(path)

    def _check_empty(self) -> None:
        """Refuse a folder with anything in it but what a run leaves that was killed as it started."""
        ours = ("shards", f".{MANIFEST}.")
        if self.path.exists() and not (
            self.path.is_dir() and all(child.name.startswith(ours) for child in self.path.iterdir())
        ):
            raise WrongFolder(
                f"{self.path} exists and holds no run: choose an empty or new folder with --out, or delete it."
            )

    def _check_key(self, key: str) -> None:
        held = self.manifest()
        if held.get("key") != key:
            raise WrongFolder(
                f"{self.path} holds another run ({held.get('title', 'unnamed')}, key {held.get('key')}; "
                f"this one is {key}): choose another folder with --out, or delete that one."
            )


def _as_safetensors(images: "torch.Tensor") -> bytes:
    from safetensors.torch import save

    return save({"x_adv": images.contiguous().cpu()})


def _as_parquet(records: pa.Table, images: bytes | None) -> bytes:
    known = {} if images is None else {_IMAGES_HASH: hashlib.sha256(images).hexdigest()}
    sink = pa.BufferOutputStream()
    pq.write_table(records.cast(SCHEMA).replace_schema_metadata(known), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _read_records(path: Path) -> pa.Table:
    try:
        content, named = path.read_bytes(), _HASHED_NAME.fullmatch(path.stem)
        if named and hashlib.sha256(content).hexdigest()[:32] != named[1]:
            raise ValueError("its bytes are not those that were written")
        found = pq.ParquetFile(pa.BufferReader(content)).read()
        found.validate(full=True)
        # Columns that came after a shard was written are empty in it.
        columns = [
            found[field.name].cast(field.type) if field.name in found.schema.names else pa.nulls(len(found), field.type)
            for field in SCHEMA
        ]
        return pa.table(columns, schema=SCHEMA.with_metadata(found.schema.metadata))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _damaged(path, error) from error


def _read_images(path: Path, count: int, promised: bytes | None) -> "torch.Tensor":
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        content = path.read_bytes()
        if promised is not None and hashlib.sha256(content).hexdigest().encode() != promised:
            raise ValueError("its bytes are not those that were written")
        images = load(content)["x_adv"]
        if images.dim() < 2 or len(images) != count:
            raise ValueError(f"it does not hold {count} images")
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise _damaged(path.with_suffix(".parquet"), error, f" and {path.name}") from error
    return images


def _damaged(path: Path, error: Exception, beside: str = "") -> StoreFailed:
    return StoreFailed(
        f"The shard {path}{beside} is damaged ({error}): delete {'both files' if beside else 'that file'} and run the "
        "same command again to redo its samples; all other shards are kept."
    )


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what the operating system says into a sentence that helps."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            remedy = "the disk is full; free some space and run the same command again to resume"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            remedy = "the folder cannot be written; choose another with --out"
        elif error.errno in (errno.ENOTDIR, errno.EEXIST, errno.ENOENT, errno.ENAMETOOLONG):
            raise BadRequest(f"{path} cannot be made a folder: choose another with --out.") from error
        else:
            remedy = "run the same command again to resume"
        raise StoreFailed(f"Writing to {path} failed ({error.strerror or error}): {remedy}.") from error
