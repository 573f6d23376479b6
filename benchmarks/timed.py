"""Times one call."""

import time
from collections.abc import Callable
from typing import Any

import torch


def timed(work: Callable[..., Any], *given: Any, **settings: Any) -> tuple[float, Any]:
    """Run a function and return its result and its seconds; waits for the GPU."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    result = work(*given, **settings)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start, result
