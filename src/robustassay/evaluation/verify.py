"""Verifies every claim of an attack with code of its own: this module imports nothing else of the package.

The search and the verification share the model, its device, the images and the labels, and nothing more. Distances are
computed with NumPy in float64. The goal is checked on predicted labels. The model is called again, in its own precision
and in batches of one size. A claim that does not hold is recorded with the reason; it is never repaired or counted.
"""

import hashlib
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, final

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import softmax
from torch import Tensor, nn

BATCH: Final = 32
"""Images per model call, always: a verdict does not depend on the number of claims."""

REDRAWS: Final = 64
"""Fresh draws per claim of a random model; the most frequent label counts."""

REDRAWS_PER_CALL: Final = 8
"""Draws per call, if each image of a call has random numbers of its own; on a GPU small images are one call."""

SMALL: Final = 3 * 64 * 64
"""Values of a small image."""

SAME: Final = 1e-5
"""Images of one call share their random numbers if their logits differ less than this, relative to the largest."""

_ROUNDING: Final = float(np.finfo(np.float32).eps)

Booleans = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.float64]


@final
@dataclass(frozen=True)
class Verdict:
    """The result of verification, with one entry per claim."""

    problem: list[str | None]
    within_eps: Booleans
    distance: Numbers
    label: npt.NDArray[np.int64]
    confidence: Numbers
    margin: Numbers
    uint8_ok: Booleans
    logits: Numbers  # `[claims, classes]`, of a random model their mean
    redrawn: Numbers | None = None  # of a random model: fraction of the draws that reach the goal

    @property
    def valid(self) -> Booleans:
        """Which claims hold."""
        return np.array([why is None for why in self.problem], dtype=bool)

    def among(self, claims: npt.NDArray[np.int64]) -> "Verdict":
        """Return the result of some claims, in this order."""
        redrawn = None if self.redrawn is None else self.redrawn[claims]
        kept = {name: getattr(self, name)[claims] for name in _COLUMNS}
        return Verdict([self.problem[claim] for claim in claims], redrawn=redrawn, **kept)

    def joined(self, other: "Verdict") -> "Verdict":
        """Return the result of these claims and, after them, of others; one of both may have none."""
        parts = [one for one in (self, other) if one.problem] or [self]
        both = {name: np.concatenate([getattr(one, name) for one in parts]) for name in _COLUMNS}
        redrawn = [one.redrawn for one in parts if one.redrawn is not None]
        return Verdict(self.problem + other.problem, redrawn=np.concatenate(redrawn) if redrawn else None, **both)


_COLUMNS: Final = ("within_eps", "distance", "label", "confidence", "margin", "uint8_ok", "logits")
"""The arrays of a verdict that every claim has."""


@final
@dataclass(frozen=True)
class ClaimedImages:
    """Images that an attack claims to reach its goal, unchanged."""

    x0: Tensor
    x_adv: Tensor
    wanted: Tensor  # the target class, or the true class of an untargeted attack
    targeted: bool
    norm: str
    eps: float
    any_distance: bool  # a minimum-norm attack may claim images beyond eps; they are valid, but no success
    seeds: Sequence[str] | None = None  # one per claim, for the draws of a random model


def verify(module: nn.Module, device: torch.device, claims: ClaimedImages) -> Verdict:
    """Verify each claim."""
    if not len(claims.x0):
        return Verdict([], *(np.zeros(0, dtype=kind) for kind in (bool, float, int, float, float, bool, float)))
    clean, claimed = _flat(claims.x0), _flat(claims.x_adv)
    wanted = claims.wanted.cpu().numpy()
    draws = _draws(module, device, claims.x_adv, claims.seeds)
    label, logits = _most_common(draws.argmax(2)), draws.mean(1)
    distance = measure(claimed - clean, claims.norm)
    within: Booleans = distance <= claims.eps + _slack(claims.norm, clean.shape[1])

    failures: dict[str, Booleans] = {
        "not a number": np.any(~np.isfinite(claimed), axis=1),
        "outside the pixel box": np.any((claimed < 0) | (claimed > 1), axis=1),
        "farther than eps": np.zeros_like(within) if claims.any_distance else ~within,
        "goal not reached": ~_reached(label, wanted, claims.targeted),
    }
    return Verdict(
        problem=[next((why for why, bad in failures.items() if bad[row]), None) for row in range(len(claimed))],
        within_eps=within,
        distance=distance,
        label=label,
        confidence=softmax(logits, axis=1)[np.arange(len(label)), label],
        margin=_margin(logits, wanted, claims.targeted),
        uint8_ok=_reached(_rounded_labels(module, device, claims, label), wanted, claims.targeted),
        logits=logits,
        redrawn=None if claims.seeds is None else _reached(draws.argmax(2), wanted[:, None], claims.targeted).mean(1),
    )


def _rounded_labels(
    module: nn.Module, device: torch.device, claims: ClaimedImages, label: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the labels of the images rounded to 8 bits; an image that rounding leaves unchanged has its `label`."""
    rounded, labels = (claims.x_adv * 255).round() / 255, label.copy()
    changed = (rounded != claims.x_adv).flatten(1).any(1).nonzero().squeeze(1).tolist()
    if changed:
        seeds = None if claims.seeds is None else [claims.seeds[claim] for claim in changed]
        labels[changed] = _most_common(_draws(module, device, rounded[changed], seeds).argmax(2))
    return labels


ORDERS: Final = {"Linf": np.inf, "L2": 2, "L1": 1, "L0": 0}
"""The norms, measured here without the code of the search; a new norm needs one entry."""


def measure(delta: Numbers, norm: str) -> Numbers:
    """Return the norm of each row."""
    sizes: Numbers = np.linalg.norm(delta, ord=ORDERS[norm], axis=1)
    return sizes


def _slack(norm: str, n: int) -> float:
    """The distance that rounding an image of n values to float32 may add."""
    return 0.0 if norm == "L0" else float(measure(np.full((1, n), _ROUNDING), norm)[0])


def _reached(label: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64], targeted: bool) -> Booleans:
    reached: Booleans = (label == wanted) if targeted else (label != wanted)
    return reached


def _flat(x: Tensor) -> Numbers:
    flat: Numbers = x.detach().flatten(1).cpu().numpy().astype(np.float64)
    return flat


def _draws(module: nn.Module, device: torch.device, x: Tensor, seeds: Sequence[str] | None) -> Numbers:
    """Return `[claims, draws, classes]` logits, with one draw where the model is not random.

    All draws of a claim have one seed of their own, so that they do not depend on other claims.
    """
    if seeds is None:
        return _fresh_logits(module, device, x)[:, None]
    found = []
    for image, seed in zip(x, seeds, strict=True):
        with _seeded(seed, device):
            found.append(_redraw(module, device, image.expand(REDRAWS, *image.shape)))
    return np.stack(found)


def _redraw(module: nn.Module, device: torch.device, copies: Tensor) -> Numbers:
    """Return the logits of copies of one image, one per call where all images of a call share their random numbers."""
    at_once = REDRAWS if device.type == "cuda" and copies[0].numel() <= SMALL else REDRAWS_PER_CALL
    logits = _fresh_logits(module, device, copies, at_once)
    first = logits[:REDRAWS_PER_CALL]
    if np.ptp(first, axis=0).max() > SAME * np.abs(first).max():
        return logits
    return _fresh_logits(module, device, copies, 1)


def _most_common(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the most frequent label of each claim; the lowest of several."""
    return np.array([np.bincount(row).argmax() for row in labels])


def _fresh_logits(module: nn.Module, device: torch.device, x: Tensor, size: int = BATCH) -> Numbers:
    floats = (values.dtype for values in module.parameters() if values.is_floating_point())
    dtype = next(floats, torch.float32)
    out = []
    with torch.no_grad(), _own_precision(device):
        for batch in torch.split(x.to(device), size):
            full = torch.cat((batch, batch[:1].expand(size - len(batch), *batch.shape[1:])))
            out.append(module(full.to(dtype))[: len(batch)].float().cpu())
    logits: Numbers = torch.cat(out).numpy().astype(np.float64)
    return logits


def _margin(logits: Numbers, wanted: npt.NDArray[np.int64], targeted: bool) -> Numbers:
    rows = np.arange(len(logits))
    own = logits[rows, wanted]
    others = logits.copy()
    others[rows, wanted] = -np.inf
    margin: Numbers = own - others.max(1)
    return -margin if targeted else margin


@contextmanager
def _own_precision(device: torch.device) -> Iterator[None]:
    """Turn off everything that reduces precision: autocast, TF32 and non-deterministic kernels."""
    matmul = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    exact = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
    try:
        with torch.autocast(device.type, enabled=False), exact:
            yield
    finally:
        torch.set_float32_matmul_precision(matmul)


@contextmanager
def _seeded(seed: str, device: torch.device) -> Iterator[None]:
    """Seed the generators of torch, NumPy and Python, from which random models draw, and restore them afterwards."""
    number = int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=8).digest(), "little", signed=True)
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(number)
    np.random.seed(number % (1 << 32))
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(number)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
