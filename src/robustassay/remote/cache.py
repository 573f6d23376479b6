"""Answers that were paid for, on disk: the same image is never asked about twice."""

import sqlite3
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import final

from robustassay.errors import StoreFailed
from robustassay.remote.answers import Answer


@final
class Cache:
    """Answers by how the service is asked and by the image; each is on disk as soon as it came."""

    def __init__(self, path: Path, asked_as: str) -> None:
        self._path, self._asked_as, self._lock = path, asked_as, threading.Lock()
        try:
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=30)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS answers "
                "(asked_as TEXT, image TEXT, answer TEXT, PRIMARY KEY (asked_as, image)) WITHOUT ROWID"
            )
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def find(self, images: Iterable[str]) -> dict[str, Answer]:
        """Return the answers that are known."""
        found = {}
        try:
            with self._lock:
                for image in images:
                    query = "SELECT answer FROM answers WHERE asked_as = ? AND image = ?"
                    row = self._db.execute(query, (self._asked_as, image)).fetchone()
                    if row is not None:
                        found[image] = Answer.from_json(row[0])
        except sqlite3.Error as error:
            raise self._failed(error) from error
        return found

    def put(self, image: str, answer: Answer) -> None:
        """Keep an answer; the first one stays."""
        try:
            with self._lock:
                self._db.execute(
                    "INSERT OR IGNORE INTO answers VALUES (?, ?, ?)", (self._asked_as, image, answer.to_json())
                )
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def forget(self) -> None:
        """Drop what was answered by a service that is no longer there."""
        try:
            with self._lock:
                self._db.execute("DELETE FROM answers WHERE asked_as = ?", (self._asked_as,))
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._db.close()

    def _failed(self, error: Exception) -> StoreFailed:
        return StoreFailed(f"The cache {self._path} cannot be used ({error}): free some space, or delete that file.")
