"""One shard: the records of some samples as Parquet and their adversarial images as safetensors, bound to their run.

The name of a shard ends in the SHA-256 of its Parquet file. Inside that file, beside the records, stand the schema
version, the key of the run, the SHA-256 of the image file, and the names of the shards that this one continues. A file
that was changed, renamed, or moved here from another run is refused. Sizes are checked before anything is decoded.
"""

import hashlib
import json
import re
import uuid
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from robustassay.errors import StoreFailed
from robustassay.records import READABLE_VERSIONS, SCHEMA, SCHEMA_2, SCHEMA_VERSION

if TYPE_CHECKING:
    import torch

BINDING: Final = b"assay-shard"
MOST_BYTES: Final = 2 << 30
"""Records of one file, decoded: about ten million samples."""

MOST_IMAGE_BYTES: Final = 64 << 30
_NAME: Final = re.compile(r"[0-9a-f]{8}-([0-9a-f]{32})")
_BATCH: Final = 256
_VALUE_BYTES: Final = 16  # a number with its place in a list, at most


@final
@dataclass(frozen=True)
class Binding:
    """What ties a shard to its run and to the shards before it."""

    run: str  # the key of the run
    previous: tuple[str, ...] = ()  # the last shards of the folder when this one was written
    lost: tuple[str, ...] = ()  # shards that were missing then, whose samples are all done again
    images: str | None = None  # SHA-256 of the image file; None where no images were kept
    schema: int = SCHEMA_VERSION

    @classmethod
    def of(cls, table: pa.Schema) -> "Binding":
        """Read the binding from the metadata of a Parquet file."""
        text = (table.metadata or {}).get(BINDING)
        if text is None:
            raise ValueError("it does not say which run it belongs to")
        try:
            found = json.loads(text)
            binding = cls(**{**found, "previous": tuple(found["previous"]), "lost": tuple(found["lost"])})
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ValueError("it does not say which run it belongs to") from error
        texts = (binding.run, *binding.previous, *binding.lost, binding.images or "")
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("it does not say which run it belongs to")
        if binding.schema not in READABLE_VERSIONS:
            raise ValueError(f"it has records of schema {binding.schema!r}, and this version reads {SCHEMA_VERSION}")
        return binding

    def metadata(self) -> dict[bytes, bytes]:
        """Write the binding as the metadata of a Parquet file."""
        return {BINDING: json.dumps(asdict(self), sort_keys=True).encode()}


@final
@dataclass(frozen=True, eq=False)
class Shard:
    """A shard as it was read and checked."""

    path: Path
    records: pa.Table
    binding: Binding

    @property
    def has_images(self) -> bool:
        """Say whether the images of these samples were kept and are still there."""
        return self.binding.images is not None and self.path.with_suffix(".safetensors").is_file()

    def images(self) -> "torch.Tensor":
        """Read the images, one per record."""
        path = self.path.with_suffix(".safetensors")
        try:
            return read_images(path, len(self.records), self.binding.images)
        except (OSError, ValueError) as error:
            raise _damaged(self.path, error, f" and {path.name}") from error


def encode(records: pa.Table, binding: Binding) -> tuple[str, bytes]:
    """Return the name of a shard and the bytes of its Parquet file."""
    content = encode_records(records, binding.metadata())
    # The random part separates two shards of equal records, of which only one may have images.
    return f"{uuid.uuid4().hex[:8]}-{hashlib.sha256(content).hexdigest()[:32]}", content


def encode_records(records: pa.Table, metadata: dict[bytes, bytes]) -> bytes:
    """Write records as the bytes of a Parquet file."""
    table, sink = records.cast(SCHEMA).replace_schema_metadata(metadata), pa.BufferOutputStream()
    encodings, others = _encodings()
    pq.write_table(table, sink, compression="zstd", use_dictionary=others, column_encoding=encodings)
    content: bytes = sink.getvalue().to_pybytes()
    return content


@cache
def _encodings() -> tuple[dict[str, str], list[str]]:
    """Return the columns that compress best in an encoding of their own, with it, and all others.

    Those are float32, byte by byte, and the claims of searches over thousands of queries, whose numbers only rise.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(SCHEMA.empty_table(), sink)
    columns = list(pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema)
    found = {}
    for column in columns:
        if column.physical_type == "FLOAT" or column.path.startswith("improvements"):
            found[column.path] = "DELTA_BINARY_PACKED" if column.physical_type == "INT64" else "BYTE_STREAM_SPLIT"
    return found, [column.path for column in columns if column.path not in found]


def encode_images(images: "torch.Tensor") -> bytes:
    """Write images as the bytes of a safetensors file."""
    from safetensors.torch import save

    return save({"x_adv": images.contiguous().cpu()})


def read(path: Path, run: str) -> Shard:
    """Read a shard of this run; refuse any other file by an error that names it."""
    try:
        content, named = read_limited(path, MOST_BYTES), _NAME.fullmatch(path.stem)
        if named is None:
            raise ValueError("its name does not end in a hash, so it was not written by a run")
        if hashlib.sha256(content).hexdigest()[:32] != named[1]:
            raise ValueError("its bytes are not those that were written")
        table = decode_records(content)
        binding = Binding.of(table.schema)
        if binding.run != run:
            raise ValueError(f"it belongs to another run, {binding.run[:64]}")
        return Shard(path, table.replace_schema_metadata(None), binding)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _damaged(path, error) from error


def read_binding(path: Path) -> Binding | None:
    """Read the binding of a shard alone; None where it cannot be read."""
    try:
        check_readable(path, MOST_BYTES)
        return Binding.of(pq.read_schema(path))
    except (OSError, ValueError, pa.ArrowException):
        return None


def read_limited(path: Path, most: int) -> bytes:
    """Read a regular file of limited size."""
    check_readable(path, most)
    return path.read_bytes()


def check_readable(path: Path, most: int) -> None:
    """Refuse what is no regular file of limited size: a pipe or a device would block or never end."""
    if not path.is_file():
        raise ValueError("it is not a regular file")
    if path.stat().st_size > most:
        raise ValueError(f"it has more than {most >> 20} MiB")


def metadata(content: bytes) -> dict[bytes, bytes]:
    """Return the metadata of a Parquet file."""
    found: dict[bytes, bytes] = pq.ParquetFile(pa.BufferReader(content)).schema_arrow.metadata or {}
    return found


def decode_records(content: bytes) -> pa.Table:
    """Decode the bytes of a Parquet file of records, with its metadata; refuse other columns and too large ones."""
    file = pq.ParquetFile(pa.BufferReader(content))
    found = file.schema_arrow
    if not any(found.remove_metadata().equals(known) for known in (SCHEMA, SCHEMA_2)):
        differing = sorted({field.name for field in set(SCHEMA) ^ set(found.remove_metadata())})
        raise ValueError(f"its columns differ from ours ({', '.join(differing)[:200] or 'in their order'})")
    _check_decoded_size(file, content)
    table = file.read()
    table.validate(full=True)
    for field in list(SCHEMA)[len(found) :]:  # of an older version
        table = table.append_column(field, pa.nulls(len(table), field.type))
    return table


def read_images(path: Path, count: int, sha256: str | None) -> "torch.Tensor":
    """Read the images of so many samples; refuse a file of another hash."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    content = read_limited(path, MOST_IMAGE_BYTES)
    if sha256 is None or hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError("its bytes are not those that were written")
    try:
        images = load(content)["x_adv"]
    except (KeyError, SafetensorError) as error:
        raise ValueError(str(error)) from error
    if images.dim() < 2 or len(images) != count or not images.is_floating_point():
        raise ValueError(f"it does not hold {count} images")
    return images


def _check_decoded_size(file: pq.ParquetFile, content: bytes) -> None:
    """Refuse records that would fill the memory: run lengths and dictionaries can stand for a thousand times more."""
    columns = [
        file.metadata.row_group(group).column(column)
        for group in range(file.metadata.num_row_groups)
        for column in range(file.metadata.num_columns)
    ]
    texts = {column.path_in_schema for column in columns if column.physical_type == "BYTE_ARRAY"}
    numbers = sum(_VALUE_BYTES * column.num_values + column.total_uncompressed_size for column in columns)
    most_text = sum(c.num_values * c.total_uncompressed_size for c in columns if c.path_in_schema in texts)
    if numbers > MOST_BYTES:
        raise _too_large()
    if numbers + most_text > MOST_BYTES:  # count the text without decoding it
        known = numbers
        for batch in pq.ParquetFile(pa.BufferReader(content), read_dictionary=sorted(texts)).iter_batches(_BATCH):
            known += sum(_text_bytes(column) for column in batch.columns)
            if known > MOST_BYTES:
                raise _too_large()


def _text_bytes(array: pa.Array) -> int:
    if pa.types.is_dictionary(array.type):
        lengths: Any = pc.sum(pc.binary_length(array.dictionary).take(array.indices)).as_py()
        return lengths or 0
    if pa.types.is_list(array.type):
        return _text_bytes(array.flatten())
    return sum(map(_text_bytes, array.flatten())) if pa.types.is_struct(array.type) else 0


def _too_large() -> ValueError:
    return ValueError(f"its records would take more than {MOST_BYTES >> 20} MiB of memory")


def _damaged(path: Path, error: Exception, beside: str = "") -> StoreFailed:
    return StoreFailed(
        f"The shard {path}{beside} is damaged or not of this run ({error}): delete "
        f"{'both files' if beside else 'that file'} and run the same command again to redo its samples; all other "
        "shards are kept."
    )
