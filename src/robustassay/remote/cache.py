"""Answers on disk, so that no image is paid for twice."""

import sqlite3
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import final

from robustassay.errors import StoreFailed
from robustassay.remote.response_formats import Answer


@final
class AnswerCache:
    """Answers by request key and image hash. Each is written as soon as it arrives."""

    def __init__(self, path: Path, request_key: str) -> None:
        self._path, self._request_key, self._lock = path, request_key, threading.Lock()
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
        """Return the stored answers to some of these images."""
        found = {}
        try:
            with self._lock:
                for image in images:
                    query = "SELECT answer FROM answers WHERE asked_as = ? AND image = ?"
                    row = self._db.execute(query, (self._request_key, image)).fetchone()
                    if row is not None:
                        found[image] = Answer.from_json(row[0])
        except sqlite3.Error as error:
            raise self._failed(error) from error
        return found

    def put(self, image: str, answer: Answer) -> None:
        """Store an answer; an earlier one to the same image stays."""
        try:
            with self._lock:
                self._db.execute(
                    "INSERT OR IGNORE INTO answers VALUES (?, ?, ?)", (self._request_key, image, answer.to_json())
                )
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def clear(self) -> None:
        """Delete the answers of a service that has changed."""
        try:
            with self._lock:
                self._db.execute("DELETE FROM answers WHERE asked_as = ?", (self._request_key,))
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def _failed(self, error: Exception) -> StoreFailed:
        return StoreFailed(f"The cache {self._path} cannot be used ({error}): free some space, or delete that file.")
