"""Memory settings of this process."""

import ctypes
import sys
from typing import Final

TRIM_THRESHOLD: Final = -1
MMAP_THRESHOLD: Final = -3
"""Option numbers in malloc.h of glibc."""


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for the next tensors instead of returning it to the system.

    Every step of an attack frees memory that the next step needs again; getting it back page by page takes much of the
    time of attacks on photographs. Call this only in our own processes, not when assay is imported by others.
    """
    if not sys.platform.startswith("linux"):
        return
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(MMAP_THRESHOLD, 32 << 20)  # the maximum that it accepts
        set_option(TRIM_THRESHOLD, (1 << 31) - 1)
