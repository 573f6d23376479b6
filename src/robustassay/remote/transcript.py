"""A log of every try, one line of JSON each. The client removes secrets from what it writes here."""

import datetime
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final


@final
class Transcript:
    """An append-only log in ASCII: every other character is written as an escape, so that any terminal can show it."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._file = path.open("a", encoding="ascii")

    def write(self, entry: Mapping[str, Any]) -> None:
        """Add a line."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, **entry})
        with self._lock:
            if not self._file.closed:
                self._file.write(line + "\n")
                self._file.flush()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()
