"""Process-wide settings of PyTorch: ours while we compute, the caller's while a model of the caller is called."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class _Settings:
    dtype: torch.dtype
    device: torch.device


_OURS = _Settings(torch.float32, torch.device("cpu"))
_callers: _Settings | None = None
"""The settings of the caller of an evaluation, where they differ from ours."""


@contextmanager
def standard_environment() -> Iterator[None]:
    """Compute with gradients and the defaults of PyTorch inside the block, whatever the caller has set."""
    global _callers
    before, found = _callers, _Settings(torch.get_default_dtype(), torch.get_default_device())
    if found != _OURS and before is None:
        _callers = found
    try:
        with torch.inference_mode(False), torch.enable_grad(), _set(_OURS):
            yield
    finally:
        _callers = before


@contextmanager
def callers_environment() -> Iterator[None]:
    """Call a model inside the block with the defaults of the caller, which its forward pass may rely on."""
    if _callers is None:
        yield
        return
    with _set(_callers):
        yield


@contextmanager
def _set(wanted: _Settings) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(wanted.dtype)
    try:
        with ExitStack() as stack:
            if torch.get_default_device() != wanted.device:
                stack.enter_context(wanted.device)
            yield
    finally:
        torch.set_default_dtype(before)
