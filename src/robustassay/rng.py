"""Random numbers per sample: a function of (seed, sample id, draw), independent of the batch.

Each row has a 64-bit key, a hash of the seed and its sample id, and a count of its draws. A draw hashes key and count
into a block key; value i of the draw is SplitMix64's finaliser at block + i * golden ratio (Steele et al. 2014). The
arithmetic is on integers, so every device gives the same bits; normals are computed in float64 and rounded, so that the
last bit of a logarithm does not matter.
"""

import hashlib
import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np
import torch
from torch import Tensor

_GOLDEN: Final = 0x9E3779B97F4A7C15 - (1 << 64)  # odd 64-bit constants, written as signed integers
_MIX_1: Final = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2: Final = 0x94D049BB133111EB - (1 << 64)


class Streams:
    """One random stream per row; each call draws for all rows and increments their counts."""

    def __init__(self, keys: Tensor, draws: Tensor, rows: Tensor, copies: int = 1) -> None:
        self._keys = keys
        self._draws = draws  # shared by all views of a stream, so that no view repeats numbers
        self._rows = rows
        self._copies = copies

    @classmethod
    def of(cls, seed: int, ids: Sequence[str], device: torch.device | str = "cpu") -> "Streams":
        """Return the streams of these samples at their first draw."""
        keys = torch.tensor([_key(seed, sample) for sample in ids], dtype=torch.int64, device=device)
        return cls(keys, torch.zeros_like(keys), torch.arange(len(keys), device=device))

    def among(self, rows: Tensor) -> "Streams":
        """Return the streams of some rows, at their current counts."""
        return Streams(self._keys, self._draws, self._rows[rows])

    def copied(self, copies: int) -> "Streams":
        """Return streams for several adjacent copies of each row; no two copies draw the same numbers."""
        return Streams(self._keys, self._draws, self._rows, copies)

    @property
    def keys(self) -> Tensor:
        """The key of each row's stream."""
        return self._keys[self._rows]

    @property
    def draws(self) -> Tensor:
        """How often each row has drawn."""
        return self._draws[self._rows]

    def ahead(self, steps: int, draws: int = 1) -> "Streams":
        """Return the streams of the next steps, each of so many draws: row i * steps + j is step j of row i.

        One call then draws for all of them, with the numbers that a call per step would give.
        """
        assert self._copies == 1, "streams of copies draw for all copies of a row together"
        first = self._draws[self._rows][:, None] + draws * torch.arange(steps, device=self._draws.device)
        self._draws[self._rows] += draws * steps
        keys = self._keys[self._rows].repeat_interleave(steps)
        return Streams(keys, first.flatten(), torch.arange(len(keys), device=keys.device))

    def skip(self, draws: Tensor) -> None:
        """Go on as if each row had drawn so often more."""
        self._draws[self._rows] += draws

    def uniform(self, *shape: int) -> Tensor:
        """Draw from [0, 1), on the grid of 2^-24 that float32 holds exactly."""
        return self._halves(shape, bits=24).float().mul_(2.0**-24)

    def normal(self, *shape: int) -> Tensor:
        """Draw standard normals, by Box and Muller's transform."""
        words = self._words((math.prod(shape) + 1) // 2)
        radius = _shift(words, 32).add_(1).double().mul_(2.0**-32).log_().mul_(-2).sqrt_()
        angle = words.bitwise_and_(0xFFFFFFFF).double().mul_(2 * math.pi * 2.0**-32)
        both = torch.cat((radius * angle.cos(), radius * angle.sin()), dim=1)
        return both[:, : math.prod(shape)].float().reshape(-1, *shape)

    def rademacher(self, *shape: int) -> Tensor:
        """Draw -1 or +1."""
        return self._halves(shape, bits=1).mul_(2).sub_(1).float()

    def integers(self, high: int, *shape: int) -> Tensor:
        """Draw integers from 0 to high - 1; the bias is below high / 2^62."""
        return _shift(self._words(math.prod(shape)), 2).remainder_(high).reshape(-1, *shape)

    def permutation(self, n: int) -> Tensor:
        """Draw a permutation of range(n)."""
        return self._words(n).argsort(dim=1)

    def _halves(self, shape: tuple[int, ...], bits: int) -> Tensor:
        """Split each 64-bit word into two values of `bits` bits."""
        n = math.prod(shape)
        words = self._words((n + 1) // 2)
        high = _shift(words, 64 - bits)
        low = _shift(words.bitwise_and_(0xFFFFFFFF), 32 - bits)
        return torch.cat((high, low), dim=1)[:, :n].reshape(-1, *shape)

    def _words(self, n: int) -> Tensor:
        block = _mix(self._keys[self._rows] + self._draws[self._rows] * _GOLDEN)
        self._draws[self._rows] += 1
        counter = torch.arange(1, n * self._copies + 1, dtype=torch.int64, device=block.device) * _GOLDEN
        return _mix(block[:, None] + counter).view(-1, n)


@contextmanager
def seeded(seed: str, device: torch.device) -> Iterator[None]:
    """Seed the generators of torch, NumPy and Python inside the block; random models draw from them."""
    devices, number = [device] if device.type == "cuda" else [], _hash(seed)
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(number)
    np.random.seed(number % (1 << 32))
    try:
        with torch.random.fork_rng(devices):
            torch.manual_seed(number)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _key(seed: int, sample: str) -> int:
    return _hash(f"{seed}/{sample}")


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def _shift(words: Tensor, by: int) -> Tensor:
    """Shift right without copying the sign."""
    return (words >> by).bitwise_and_((1 << (64 - by)) - 1)


def _mix(words: Tensor) -> Tensor:
    words = (words ^ _shift(words, 30)).mul_(_MIX_1)
    words ^= _shift(words, 27)
    words *= _MIX_2
    words ^= _shift(words, 31)
    return words
