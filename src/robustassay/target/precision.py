"""The precision a model computes in, independent of the settings of its caller."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def full_precision(device: torch.device, tf32: bool = False) -> Iterator[None]:
    """Compute in the model's own precision: no autocast, no kernels selected by timing, TF32 only where asked for."""
    matmul = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    exact = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=tf32)
    try:
        with torch.autocast(device.type, enabled=False), exact:
            yield
    finally:
        torch.set_float32_matmul_precision(matmul)


def image_dtype(module: nn.Module) -> torch.dtype:
    """Return the floating type of a model's parameters, which its images must have."""
    kinds = (parameter.dtype for parameter in module.parameters() if parameter.is_floating_point())
    return next(kinds, torch.float32)
