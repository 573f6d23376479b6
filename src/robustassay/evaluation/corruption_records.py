"""One file per model with its predictions under all corruptions, bound to the model and the data it was measured on."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

import pandas as pd

from robustassay.errors import BadData
from robustassay.files import write_atomically

FILE: Final = "corruption-records.parquet"
FORMAT: Final = "assay-corruptions-1"
COLUMNS: Final = ("kind", "severity", "sample_id", "correct")
_ABOUT: Final = b"assay_corruptions"
_MOST_BYTES: Final = 1 << 28


@final
@dataclass(frozen=True, eq=False)
class CorruptionRecords:
    """The predictions of one model: kind, severity, sample_id, correct; clean images are the kind `clean`."""

    model: Mapping[str, Any]  # its name and identity
    data: str  # the name of the dataset that was corrupted
    frame: pd.DataFrame = field(repr=False)

    def write(self, path: Path) -> None:
        """Write the file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        about = json.dumps({"format": FORMAT, "model": dict(self.model), "data": self.data})
        table = pa.Table.from_pandas(self.frame[list(COLUMNS)], preserve_index=False)
        sink = io.BytesIO()
        pq.write_table(table.replace_schema_metadata({_ABOUT: about.encode()}), sink, compression="zstd")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, sink.getvalue())

    @classmethod
    def read(cls, path: Path) -> "CorruptionRecords":
        """Read a file; anything else raises one sentence."""
        import pyarrow.parquet as pq

        try:
            if path.stat().st_size > _MOST_BYTES:
                raise ValueError("it is too large")
            table = pq.read_table(path)
            about = json.loads((table.schema.metadata or {})[_ABOUT])
            frame = table.to_pandas().astype({"kind": str, "severity": int, "sample_id": str, "correct": bool})
            model, data = dict(about["model"]), str(about["data"])
            if about["format"] != FORMAT or tuple(frame) != COLUMNS or "name" not in model:
                raise ValueError("another version wrote it")
            if frame.duplicated(["kind", "severity", "sample_id"]).any():
                raise ValueError("a prediction is in it twice")
        except Exception as error:  # a damaged file can raise any exception
            raise BadData(f"{path} holds no predictions under corruptions ({error}): measure it again.") from error
        return cls(model, data, frame)
