"""Re-checks every claim of an attack, with code of its own.

Nothing here is shared with the search: distances are taken in NumPy at float64, the goal is read off the
predicted labels, and the model is called afresh in its own precision, nothing reduced, in batches of one size.
A claim that does not hold is recorded with the reason; it is never repaired, clipped or counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import softmax
from torch import Tensor, nn

from robustassay.rng import seeded
from robustassay.target.precision import full_precision, image_dtype

BATCH: Final = 32
"""Images a verifying call always holds, so that a verdict never depends on how many claims there were."""

REDRAWS: Final = 2 * BATCH
"""How often a random model is asked again about each claim; what it says most often is what it says."""

_ROUNDING: Final = float(np.finfo(np.float32).eps)

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.float64]


@final
@dataclass(frozen=True)
class Verdict:
    """One entry a claim."""

    problem: list[str | None]
    within_eps: Flags
    distance: Numbers
    label: npt.NDArray[np.int64]
    confidence: Numbers
    margin: Numbers
    uint8_ok: Flags
    redrawn: Numbers | None = None  # of a random model: part of the draws in which the goal is reached

    @property
    def valid(self) -> Flags:
        """Say which claims hold."""
        return np.array([why is None for why in self.problem], dtype=bool)


@final
@dataclass(frozen=True)
class Claims:
    """Images that an attack says reached its goal, as the attack found them."""

    x0: Tensor
    x_adv: Tensor
    wanted: Tensor  # the target class, or the true class when any other will do
    targeted: bool
    norm: str
    eps: float
    any_distance: bool  # an attack that seeks the minimum may show points beyond eps; they are no success
    seeds: Sequence[str] | None = None  # of the draws of a random model, one a claim


def verify(module: nn.Module, device: torch.device, claims: Claims) -> Verdict:
    """Judge each claim on its own."""
    if not len(claims.x0):
        return Verdict([], *(np.zeros(0, dtype=kind) for kind in (bool, float, int, float, float, bool)))
    clean, claimed = _flat(claims.x0), _flat(claims.x_adv)
    wanted = claims.wanted.cpu().numpy()
    draws = _draws(module, device, claims.x_adv, claims.seeds)
    label, logits = _most_common(draws.argmax(2)), draws.mean(1)
    distance = measure(claimed - clean, claims.norm)
    within: Flags = distance <= claims.eps + _slack(claims.norm, clean.shape[1])

    failures: dict[str, Flags] = {
        "not a number": np.any(~np.isfinite(claimed), axis=1),
        "outside the pixel box": np.any((claimed < 0) | (claimed > 1), axis=1),
        "farther than eps": np.zeros_like(within) if claims.any_distance else ~within,
        "goal not reached": ~_reached(label, wanted, claims.targeted),
    }
    eight_bits = _most_common(_draws(module, device, (claims.x_adv * 255).round() / 255, claims.seeds).argmax(2))
    return Verdict(
        problem=[next((why for why, bad in failures.items() if bad[row]), None) for row in range(len(claimed))],
        within_eps=within,
        distance=distance,
        label=label,
        confidence=softmax(logits, axis=1)[np.arange(len(label)), label],
        margin=_margin(logits, wanted, claims.targeted),
        uint8_ok=_reached(eight_bits, wanted, claims.targeted),
        redrawn=None if claims.seeds is None else _reached(draws.argmax(2), wanted[:, None], claims.targeted).mean(1),
    )


def measure(delta: Numbers, norm: str) -> Numbers:
    """Return the size of each row in the named norm."""
    order = {"Linf": np.inf, "L2": 2, "L1": 1, "L0": 0}[norm]
    sizes: Numbers = np.linalg.norm(delta, ord=order, axis=1)
    return sizes


def _slack(norm: str, n: int) -> float:
    """What rounding an image of n values to float32 may add to its distance."""
    return 0.0 if norm == "L0" else float(measure(np.full((1, n), _ROUNDING), norm)[0])


def _reached(label: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64], targeted: bool) -> Flags:
    reached: Flags = (label == wanted) if targeted else (label != wanted)
    return reached


def _flat(x: Tensor) -> Numbers:
    flat: Numbers = x.detach().flatten(1).cpu().numpy().astype(np.float64)
    return flat


def _draws(module: nn.Module, device: torch.device, x: Tensor, seeds: Sequence[str] | None) -> Numbers:
    """Return `[claims, draws, classes]` logits: one draw where nothing is random.

    The draws of a claim are one batch with a seed of its own, so that they do not depend on the other claims.
    """
    if seeds is None:
        return _fresh_logits(module, device, x)[:, None]
    found = []
    for image, seed in zip(x, seeds, strict=True):
        with seeded(seed, device):
            found.append(_fresh_logits(module, device, image.expand(REDRAWS, *image.shape)))
    return np.stack(found)


def _most_common(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the label most draws give, the lowest of several."""
    return np.array([np.bincount(row).argmax() for row in labels])


def _fresh_logits(module: nn.Module, device: torch.device, x: Tensor) -> Numbers:
    kind = image_dtype(module)
    out = []
    with torch.no_grad(), full_precision(device):
        for batch in torch.split(x.to(device), BATCH):
            full = torch.cat((batch, batch[:1].expand(BATCH - len(batch), *batch.shape[1:])))
            out.append(module(full.to(kind))[: len(batch)].float().cpu())
    logits: Numbers = torch.cat(out).numpy().astype(np.float64)
    return logits


def _margin(logits: Numbers, wanted: npt.NDArray[np.int64], targeted: bool) -> Numbers:
    rows = np.arange(len(logits))
    own = logits[rows, wanted]
    others = logits.copy()
    others[rows, wanted] = -np.inf
    margin: Numbers = own - others.max(1)
    return -margin if targeted else margin
