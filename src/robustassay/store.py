"""A run on disk: a manifest, and shards of records that are only ever added, each whole or not at all.

    FOLDER/manifest.json           the specification and its key, the schema version, and where and when it ran
    FOLDER/shards/ID.parquet       records; the work counts from the moment this file is renamed into place
    FOLDER/shards/ID.safetensors   the adversarial images of the same samples, if kept, written before the records
    FOLDER/failures/ID.json        samples on which the model itself failed, with its error; they have no records
    FOLDER/after.json              what was found out after the run, such as its self-test: read as part of the manifest

Every file is written under another name, flushed to the disk and renamed. No two shards have one name, so several
processes can write to one folder. If two of them did the same sample, the rows must agree, and one is read.

Shards form a hash chain: each names the last shards that were there when it was written, and names are hashes. The
links are inside the shards, so no second file must be kept in step: a kill between two shards leaves a valid chain, and
two processes write two branches that the next shard joins. A shard that was deleted leaves a name without a file. A
run that is resumed does its samples again; once all samples of the run are done, a shard without records says so.
"""

import contextlib
import errno
import hashlib
import json
import shutil
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa

from robustassay import shards
from robustassay.errors import BadRequest, StoreFailed, WrongFolder
from robustassay.files import create_atomically, write_atomically
from robustassay.records import READABLE_VERSIONS, SCHEMA, SCHEMA_VERSION
from robustassay.shards import Binding, Shard

if TYPE_CHECKING:
    import torch

MANIFEST: Final = "manifest.json"
AFTER: Final = "after.json"
VERDICT: Final = ("label", "target", "clean_label", "clean_ok", "success")
"""Columns in which two records of one sample must agree."""
_RECORD_BYTES: Final = 512  # generous: a Parquet row of ours takes about 200
_SPARE_BYTES: Final = 16 << 20
_MOST_MANIFEST_BYTES: Final = 16 << 20


@final
@dataclass(frozen=True)
class Store:
    """The folder of one run."""

    path: Path
    _bindings: dict[str, Binding | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def open(cls, path: Path, manifest: Mapping[str, Any]) -> "Store":
        """Open or start the folder of the run whose key the manifest holds; refuse the folder of another run."""
        store = cls(Path(path))
        with _explained(store.path):
            if not store.exists():
                store._check_empty()
                (store.path / "shards").mkdir(parents=True, exist_ok=True)
                text = json.dumps({**manifest, "schema": SCHEMA_VERSION}, indent=2, sort_keys=True) + "\n"
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
        """Say whether this is the folder of a run."""
        return (self.path / MANIFEST).is_file()

    def manifest(self) -> dict[str, Any]:
        """Read the manifest, with what was found out after the run; refuse that of another schema version."""
        read = self._read_object(MANIFEST)
        check_schema(read, self.path)
        return read | self.after()

    def after(self) -> dict[str, Any]:
        """Read what was found out after the run."""
        return self._read_object(AFTER) if (self.path / AFTER).is_file() else {}

    def note_after(self, entries: Mapping[str, Any]) -> None:
        """Add entries to what was found out after the run."""
        with _explained(self.path):
            text = json.dumps({**self.after(), **entries}, indent=2, sort_keys=True) + "\n"
            write_atomically(self.path / AFTER, text)

    def _read_object(self, name: str) -> dict[str, Any]:
        try:
            read = json.loads(shards.read_limited(self.path / name, _MOST_MANIFEST_BYTES))
            if not isinstance(read, dict):
                raise ValueError("no JSON object")
        except (OSError, ValueError, RecursionError) as error:
            raise StoreFailed(
                f"{self.path / name} cannot be read ({error}): delete {self.path} and run again."
            ) from error
        return read

    def append(self, records: pa.Table, images: "torch.Tensor | None" = None) -> None:
        """Add the records of some samples, and their images, as one shard that appears whole."""
        self._write_shard(records, images, lost=())

    def note_redone(self, samples: Collection[str]) -> None:
        """Note that deleted shards are made good, if all these samples of the run have a record or have failed."""
        lost = self.missing()
        if lost and self.done() | self.failures().keys() >= set(samples):
            self._write_shard(SCHEMA.empty_table(), None, lost)

    def _write_shard(self, records: pa.Table, images: "torch.Tensor | None", lost: tuple[str, ...]) -> None:
        kept = None if images is None else shards.encode_images(images)
        sha256 = None if kept is None else hashlib.sha256(kept).hexdigest()
        binding = Binding(str(self.manifest().get("key")), self._ends()[0], lost, sha256)
        name, content = shards.encode(records, binding)
        path = self.path / "shards" / f"{name}.parquet"
        with _explained(self.path):
            if kept is not None:
                write_atomically(path.with_suffix(".safetensors"), kept)
            write_atomically(path, content)

    def missing(self) -> tuple[str, ...]:
        """Return the names of shards that were deleted and whose samples were not done again."""
        return self._ends()[1]

    def note_failures(self, failures: Mapping[str, str]) -> None:
        """Save the samples on which the model itself failed, each with its error."""
        if failures:
            with _explained(self.path):
                folder = self.path / "failures"
                folder.mkdir(exist_ok=True)
                text = json.dumps(failures, indent=2, sort_keys=True) + "\n"
                write_atomically(folder / f"{uuid.uuid4().hex}.json", text)

    def failures(self) -> dict[str, str]:
        """Return the error of each sample that has no record because the model failed on it."""
        found: dict[str, str] = {}
        for path in sorted((self.path / "failures").glob("*.json")):
            try:
                text = shards.read_limited(path, _MOST_MANIFEST_BYTES)
                found |= {str(sample): str(why) for sample, why in json.loads(text).items()}
            except (OSError, ValueError, AttributeError, RecursionError) as error:
                raise StoreFailed(
                    f"{path} is damaged ({error}): delete that file and run the same command again."
                ) from error
        done = self.done() if found else frozenset()
        return {sample: why for sample, why in found.items() if sample not in done}

    def records(self) -> pa.Table:
        """Read all records, one per sample; refuse shards that contradict each other."""
        held = list(self._shards())
        return _all_records(held).take(pa.array(self._chosen_rows(held).values(), pa.int64()))

    def done(self, with_images: bool = False) -> frozenset[str]:
        """Return the ids of all finished samples, or of those whose images were kept."""
        return frozenset(
            sample
            for shard in self._shards()
            if not with_images or shard.has_images
            for sample in shard.records["sample_id"].to_pylist()
        )

    def images(self) -> dict[str, "torch.Tensor"]:
        """Read the adversarial images by sample id; where a sample has several, that of its record."""
        held = list(self._shards())
        chosen = self._chosen_rows(held)
        found: dict[str, torch.Tensor] = {}
        row = 0
        for shard in held:
            samples = shard.records["sample_id"].to_pylist()
            if shard.has_images:
                for at, (sample, image) in enumerate(zip(samples, shard.images(), strict=True), row):
                    if chosen[sample] == at or sample not in found:
                        found[sample] = image
            row += len(samples)
        return found

    def check_room(self, samples: int, image_bytes: int) -> None:
        """Refuse a run that the disk cannot hold; the folder need not exist."""
        needed = samples * (_RECORD_BYTES + image_bytes) + _SPARE_BYTES
        existing = next(folder for folder in (self.path, *self.path.absolute().parents) if folder.exists())
        free = shutil.disk_usage(existing).free
        if free < needed:
            raise StoreFailed(
                f"The disk of {self.path} has {free >> 20} MiB free and this run needs about {needed >> 20} MiB: "
                "free some space or choose another folder with --out."
            )

    def _shards(self) -> Iterator[Shard]:
        run = str(self.manifest().get("key"))
        for path in sorted((self.path / "shards").glob("*.parquet")):
            yield shards.read(path, run)

    def _ends(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the shards that no other continues, and the shards that are named but gone."""
        present = {path.stem for path in (self.path / "shards").glob("*.parquet")}
        for name in present - self._bindings.keys():
            self._bindings[name] = shards.read_binding(self.path / "shards" / f"{name}.parquet")
        bindings = [binding for name, binding in self._bindings.items() if name in present and binding is not None]
        continued = {name for binding in bindings for name in binding.previous}
        known = present.union(*(binding.lost for binding in bindings))
        return tuple(sorted(present - continued)), tuple(sorted(continued - known))

    def _chosen_rows(self, held: Sequence[Shard]) -> dict[str, int]:
        """Return the row of each sample among all records of these shards."""
        whole = _all_records(held)
        chosen: dict[str, int] = {}
        repeated: dict[str, list[int]] = {}
        for row, sample in enumerate(whole["sample_id"].to_pylist()):
            if chosen.setdefault(sample, row) != row:
                repeated.setdefault(sample, [chosen[sample]]).append(row)
        return chosen | self._choose(whole, repeated) if repeated else chosen

    def _choose(self, records: pa.Table, repeated: Mapping[str, list[int]]) -> dict[str, int]:
        """Choose among several records of one sample the worst for the model, and refuse a contradiction.

        Only of a model that draws random numbers may they differ: its draws depend on the samples of the wave.
        """
        random = "eot" in _mapping(_mapping(self.manifest().get("spec")).get("model"))
        chosen = {}
        for sample, rows in repeated.items():
            held = records.take(pa.array(rows, pa.int64())).select([*VERDICT, "distance"]).to_pylist()
            if not random and any(one[column] != held[0][column] for one in held for column in VERDICT):
                raise StoreFailed(
                    f"Two shards of {self.path} contradict each other on sample {sample[:80]!r}: delete the one that "
                    "does not belong there, or all shards, and run the same command again."
                )
            badness = [
                (not one["success"], float("inf") if one["distance"] is None else one["distance"]) for one in held
            ]
            chosen[sample] = rows[badness.index(min(badness))]
        return chosen

    def _check_empty(self) -> None:
        """Refuse a folder that holds anything but the remains of a run that was killed at its start."""
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


def check_schema(manifest: Mapping[str, Any], path: Path) -> None:
    """Refuse records of another schema version, and say which version wrote them."""
    found = manifest.get("schema", 1)
    if found not in READABLE_VERSIONS:
        software = _mapping(manifest.get("software"))
        version = software.get("robustassay", software.get("assay", "an unknown version"))
        raise WrongFolder(
            f"{path} was written by version {str(version)[:40]} with records of schema {str(found)[:20]}, and this "
            f"version reads schema {' and '.join(map(str, READABLE_VERSIONS))}: delete it or choose another folder "
            "with --out, and run again."
        )


def _all_records(held: Sequence[Shard]) -> pa.Table:
    return pa.concat_tables([shard.records for shard in held]) if held else SCHEMA.empty_table()


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into a sentence that says what to do."""
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
