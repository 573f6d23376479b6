"""Memory settings of this process: freed memory is kept for the next tensors instead of returned to the system.

Every step of an attack frees memory that the next step needs again; getting it back page by page takes a fifth of the
time of attacks on a ResNet-20, and more on photographs. Only glibc has these settings; elsewhere nothing changes.
"""

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

TRIM_THRESHOLD: Final = -1
MMAP_THRESHOLD: Final = -3
"""Option numbers in malloc.h of glibc."""

LARGEST_BLOCK: Final = 32 << 20
"""Larger blocks are mapped by themselves and returned when they are freed; older versions accept no higher limit."""

KEPT: Final = (1 << 31) - 1
USUALLY_KEPT: Final = 2 * LARGEST_BLOCK
"""What glibc keeps by itself, at the most, in a process with large blocks."""

_lock = threading.Lock()
_users = 0
"""How many want freed memory kept, in all threads."""


def keep_freed_memory() -> None:
    """Keep freed memory from now on: for our own processes, not where assay is imported by others."""
    global _users
    with _lock:
        _users += 1
        _set(KEPT)


@contextmanager
def kept_freed_memory() -> Iterator[None]:
    """Keep freed memory inside the block; afterwards, unless another wants it kept, return it to the system."""
    keep_freed_memory()
    try:
        yield
    finally:
        _end()


def _end() -> None:
    global _users
    with _lock:
        _users -= 1
        if not _users:
            _set(USUALLY_KEPT)
            _return_freed_memory()


def _set(kept: int) -> None:
    if library := _glibc():
        library.mallopt(MMAP_THRESHOLD, LARGEST_BLOCK)
        library.mallopt(TRIM_THRESHOLD, kept)


def _return_freed_memory() -> None:
    if library := _glibc():
        library.malloc_trim(ctypes.c_size_t(0))


@cache
def _glibc() -> ctypes.CDLL | None:
    """Return the C library if it has these settings."""
    library = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
