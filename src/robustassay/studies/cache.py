"""Tables that take long to compute, kept on disk under what they depend on."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

import pandas as pd

from robustassay.errors import StoreFailed
from robustassay.files import write_atomically


@final
@dataclass(frozen=True)
class TableCache:
    """A folder of finished tables; one made from something else has another name, so none is ever stale."""

    folder: Path

    def path(self, name: str, told: object) -> Path:
        """Return where the table of this name, made from what is told, lies or would lie."""
        text = json.dumps(told, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return self.folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.parquet"

    def holds(self, name: str, told: object) -> bool:
        """Say whether the table is there."""
        return self.path(name, told).is_file()

    def frame(self, name: str, told: object, make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        """Read the table, or make it and put it in its place whole."""
        path = self.path(name, told)
        try:
            if not path.is_file():
                made = make()
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, made.to_parquet(index=False))
            return pd.read_parquet(path)
        except OSError as error:
            raise StoreFailed(
                f"The table {path} cannot be written or read ({error}): delete that file, or choose another --out."
            ) from error
