"""Ends this process when its parent is gone, so that nothing goes on computing for nobody."""

import ctypes
import os
import signal
import sys
import threading
import time
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_CHECK_SECONDS: Final = 1.0


def die_with_parent(parent: int) -> None:
    """End this process at once when the process `parent` ends, even if that is killed.

    The kernel of Linux does it; the watching thread does it elsewhere, and where the parent ended before this call.
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_watch, args=(parent,), daemon=True, name="parent-watch").start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_CHECK_SECONDS)
    os._exit(1)
