"""Tells whether a model answers one image always the same: randomness, memory of earlier images, batch mates."""

import random
from copy import deepcopy
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import torch
from torch import Tensor, nn

from robustassay.evaluation.verify import BATCH
from robustassay.rng import seeded
from robustassay.target import call_module, relative_difference
from robustassay.target.batching import LANES, Batching
from robustassay.target.precision import image_dtype

TOLERANCE: Final = 1e-3
"""Relative difference between two outputs for one image; a larger one cannot come from rounding."""

REPEATS: Final = 2
MANY_REPEATS: Final = 16
"""Passes after the first that show whether a model is random; many of them where it draws numbers, and before it is
refused for another reason."""

LEAST_ROWS: Final = 512
"""The self-test calls the model with so many rows, however few images are attacked."""

NEAR: Final = 1 / 255
"""Distance, per value, of the near copies of an image on which a model with a memory is compared."""


@final
@dataclass(frozen=True)
class History:
    """How a model that has seen images differs from a copy that has seen none.

    `changed` is None where no copy could be made.
    """

    changed: bool | None
    draws: bool  # an unused copy gives other outputs with another seed, or may do so


def differs(expected: Tensor, found: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """Say whether outputs differ by more than rounding in this floating type."""
    return bool((relative_difference(expected.float(), found.float(), dtype) > TOLERANCE).any())


def varies(module: nn.Module, x: Tensor, logits: Tensor, repeats: int) -> bool:
    """Say whether any of some further passes gives other outputs than `logits`."""
    return any(differs(logits, call_module(module, x), image_dtype(module)) for _ in range(repeats))


def generator_states(device: torch.device) -> tuple[object, ...]:
    """Return the states of the generators that models draw from; a pass that draws numbers changes one."""
    torch_states = [torch.get_rng_state()] + ([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])
    numpy_state = np.random.get_state(legacy=False)
    return (*(state.numpy().tobytes() for state in torch_states), str(numpy_state), random.getstate())


def unused_copy(module: nn.Module, device: torch.device) -> nn.Module | None:
    """Copy a model before its first call, on its device; None where that is impossible."""
    try:
        return deepcopy(module.to(device))
    except Exception:  # handles, generators and other values that cannot be copied
        return None


def compare_with_unused(module: nn.Module, unused: nn.Module | None, x: Tensor) -> History:
    """Show a model `x` and then near copies of it, or other images, and compare it with a copy that has seen nothing.

    All passes start from the same seed, so that random numbers make no difference.
    """
    if unused is None or _has_generator(module):
        return History(None, draws=True)
    try:
        near = _compared_on(_near_copies(x), module, unused, x)
        return near if near.changed is not False else _compared_on(1 - x, module, unused, x)
    except Exception:  # a model may fail on some images
        return History(None, draws=True)


def _compared_on(images: Tensor, module: nn.Module, unused: nn.Module, x: Tensor) -> History:
    dtype = image_dtype(module)
    fresh = _copied_call(unused, images, "one")
    call_module(module, x)  # some models remember the last call only
    with seeded("one", x.device):
        used = call_module(module, images)
    if not differs(fresh, used, dtype):
        return History(changed=False, draws=True)
    again, other_seed = (_copied_call(unused, images, seed) for seed in ("one", "two"))
    if differs(fresh, again, dtype):
        return History(None, draws=True)
    return History(changed=True, draws=differs(fresh, other_seed, dtype))


def depends_on_batch(
    module: nn.Module, x: Tensor, logits: Tensor, batch_size: int | None = None, images: int = LEAST_ROWS
) -> bool:
    """Say whether outputs depend on the size of a batch, on the place in it, or on the other images.

    `logits` are those of one call with `x`. The sizes tried are one, that of the search of so many images and that of
    verification.
    """
    alone = torch.cat([call_module(module, image[None]) for image in x[:2]])
    dtype = image_dtype(module)
    if differs(logits[:2], alone, dtype):
        return True
    sizes = {min(Batching(x.device, batch_size).images_per_call(x), max(images, LEAST_ROWS)), BATCH}
    found = (_in_company(module, x, size) for size in sorted(sizes) if size > len(x))
    return any(outputs is not None and differs(logits, outputs, dtype) for outputs in found)


def _in_company(module: nn.Module, x: Tensor, size: int) -> Tensor | None:
    """Return the outputs for images at the end of a batch, in reverse order, behind others; None if the model fails."""
    others = torch.cat((1 - x, x.flip(-1), 1 - x.flip(-1)))
    missing = max(0, size - len(x))
    try:
        front = others.repeat(-(-missing // len(others)), *(1,) * (x.dim() - 1))[:missing]
        found: Tensor = call_module(module, torch.cat((front, x.flip(0))))[missing:].flip(0)
    except torch.OutOfMemoryError:
        if size <= LANES:
            raise
    except Exception:  # the run reports it, with the samples on which the model fails
        return None
    else:
        return found
    return _in_company(module, x, size // 2)


def _near_copies(x: Tensor) -> Tensor:
    signs = torch.ones_like(x[0]).flatten()
    signs[::2] = -1
    return (x + NEAR * signs.view_as(x[0])).clamp(0, 1)


def _copied_call(unused: nn.Module, x: Tensor, seed: str) -> Tensor:
    """Call a copy of the copy, which stays unused."""
    copy = deepcopy(unused)
    with seeded(seed, x.device):
        out: Tensor = call_module(copy, x)
    return out


def _has_generator(module: nn.Module) -> bool:
    """Say whether a part of the model keeps a random generator, whose state changes with every draw."""
    kinds = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
    return any(isinstance(value, kinds) for part in module.modules() for value in vars(part).values())
