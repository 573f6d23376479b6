"""Writes the folder of a run as a forger would: every hash, name and key fits what was changed."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from robustassay import shards
from robustassay.evaluation.spec import RunSpec
from robustassay.records import SCHEMA
from robustassay.shards import Binding


def forge(
    run: Path,
    sent: Path,
    manifest: Callable[[dict[str, Any]], object] = lambda manifest: None,
    rows: Callable[[dict[str, Any]], object] = lambda row: None,
    images: Callable[[torch.Tensor, list[dict[str, Any]]], torch.Tensor] = lambda images, rows: images,
    keep: Callable[[dict[str, Any]], bool] = lambda row: True,
) -> Path:
    """Copy a run; change its manifest and each of its records in place, and its images; keep some of the records."""
    about = json.loads((run / "manifest.json").read_text())
    old = about["key"]
    manifest(about)
    about["key"] = RunSpec(**about["spec"]).key
    (sent / "shards").mkdir(parents=True)
    (sent / "manifest.json").write_text(json.dumps(about))
    previous: tuple[str, ...] = ()
    for path in sorted((run / "shards").glob("*.parquet")):
        shard = shards.read(path, old)
        chosen = [at for at, row in enumerate(shard.records.to_pylist()) if keep(row)]
        records = shard.records.take(chosen).to_pylist()
        for row in records:
            rows(row)
        kept = shards.encode_images(images(shard.images()[chosen], records)) if shard.has_images else None
        binding = Binding(about["key"], previous, (), None if kept is None else hashlib.sha256(kept).hexdigest())
        name, content = shards.encode(pa.Table.from_pylist(records, schema=SCHEMA), binding)
        (sent / "shards" / f"{name}.parquet").write_bytes(content)
        if kept is not None:
            (sent / "shards" / f"{name}.safetensors").write_bytes(kept)
        previous = (name,)
    if (run / "failures").is_dir():
        shutil.copytree(run / "failures", sent / "failures")
    return sent
