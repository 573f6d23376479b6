"""How this process gets memory."""

import ctypes
import sys
from typing import Final

TRIM_THRESHOLD: Final = -1
MMAP_THRESHOLD: Final = -3
"""What glibc's malloc.h calls them."""


def keep_freed_memory() -> None:
    """Keep memory that is freed for the next tensors instead of giving it back to the system, where glibc knows how.

    Every step of an attack frees what the next one wants again, and to get it back page by page takes much of the time
    of attacks on photographs. For processes of our own, not for those we are imported into.
    """
    if not sys.platform.startswith("linux"):
        return
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(MMAP_THRESHOLD, 32 << 20)  # the most that it accepts
        set_option(TRIM_THRESHOLD, (1 << 31) - 1)
