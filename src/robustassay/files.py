"""Atomic, flushed file writes: after a crash, a file holds its old content or its new content, never a part of it."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

WINDOWS: Final = os.name == "nt"


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file, replacing an existing one; text is written as UTF-8. The folder must exist."""
    with _temporary(path, content) as temporary:
        os.replace(temporary, path)


def create_atomically(path: Path, content: bytes | str) -> None:
    """Write a file unless it exists already: of several processes, the first one wins."""
    with _temporary(path, content) as temporary, contextlib.suppress(FileExistsError):
        os.link(temporary, path)


def move_into_place(source: Path, path: Path) -> None:
    """Flush a finished file to the disk and rename it; both names must be on one file system."""
    _flush(source)
    os.replace(source, path)
    _flush(path.parent)


@contextlib.contextmanager
def _temporary(path: Path, content: bytes | str) -> Iterator[Path]:
    """Write the content to a flushed file beside `path`; flush the folder after the caller has renamed the file."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        _flush(temporary)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
    _flush(path.parent)


def _flush(path: Path) -> None:
    if WINDOWS and path.is_dir():
        return  # Windows flushes no folders
    descriptor = os.open(path, os.O_RDWR if WINDOWS else os.O_RDONLY)  # Windows flushes only what is writable
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
