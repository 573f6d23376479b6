"""A log of every request, one line of JSON each. Keys never appear in it."""

import datetime
import json
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, final

REDACTED: Final = "***"


@final
class Transcript:
    """An append-only log."""

    def __init__(self, path: Path, secrets: Collection[str]) -> None:
        self._secrets = sorted((secret for secret in secrets if secret), key=len, reverse=True)
        self._lock = threading.Lock()
        self._file = path.open("a", encoding="utf-8")

    def write(self, entry: Mapping[str, Any]) -> None:
        """Add a line."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = self.redact(json.dumps({"time": now, **entry}, ensure_ascii=False))
        with self._lock:
            if not self._file.closed:
                self._file.write(line + "\n")
                self._file.flush()

    def redact(self, text: str) -> str:
        """Replace every key, even where the service repeats it."""
        for secret in self._secrets:
            for spelt in (secret, json.dumps(secret, ensure_ascii=False)[1:-1]):
                text = text.replace(spelt, REDACTED)
        return text

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()
