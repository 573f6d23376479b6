"""A cache of computed tables on disk, named by what they depend on."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import pandas as pd

from robustassay.errors import StoreFailed
from robustassay.files import write_atomically


@final
@dataclass(frozen=True, eq=False)
class CachedTable:
    """One table in a folder. Other inputs give another file name, so no table is ever stale."""

    folder: Path
    name: str
    depends_on: object = field(repr=False)  # everything that it is computed from, as JSON values

    @property
    def path(self) -> Path:
        """The table's file."""
        text = json.dumps(self.depends_on, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return self.folder / f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.parquet"

    def exists(self) -> bool:
        """Say whether the table was computed before."""
        return self.path.is_file()

    def get(self, make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        """Read the table, or compute it and write it atomically."""
        path = self.path
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
