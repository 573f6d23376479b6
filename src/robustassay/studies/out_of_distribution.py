"""Out-of-distribution images made from a dataset's own images, for use where no other dataset is available."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import torch
from torch import Tensor

from robustassay.data import Dataset
from robustassay.data.dataset import Reader
from robustassay.rng import Streams

VERSION: Final = "assay-outsiders-1"
"""Raise this whenever the same name would give other images than before."""

Make = Callable[[Tensor, Streams], Tensor]


def noise(x: Tensor, rng: Streams) -> Tensor:
    """Replace every value by uniform noise."""
    return rng.uniform(*x.shape[1:])


def scrambled(x: Tensor, rng: Streams) -> Tensor:
    """Keep the amplitude of each frequency and draw its phase, the same in all channels: a texture without shape."""
    spectrum = torch.fft.fft2(rng.normal(1, *x.shape[2:]))
    phase = spectrum / spectrum.abs().clamp(min=1e-12)
    phase[..., 0, 0] = 1  # the mean colour stays
    texture: Tensor = torch.fft.ifft2(torch.fft.fft2(x) * phase).real.clamp(0, 1)
    return texture


def shuffled(x: Tensor, rng: Streams) -> Tensor:
    """Cut the image into sixteen tiles and permute them: the same details without shape."""
    n, channels, height, width = x.shape
    if height % 4 or width % 4:
        return scrambled(x, rng)
    tiles = x.reshape(n, channels, 4, height // 4, 4, width // 4).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    mixed = tiles[torch.arange(n)[:, None], rng.permutation(16)].reshape(n, 4, 4, *tiles.shape[2:])
    return mixed.permute(0, 3, 1, 4, 2, 5).reshape(x.shape)


KINDS: Final[dict[str, Make]] = {"noise": noise, "scrambled": scrambled, "shuffled": shuffled}


def out_of_distribution_images(dataset: Dataset, kind: str, seed: int = 0) -> Dataset:
    """Return the dataset with every image replaced as it is read; ids stay, labels lose their meaning."""
    identity = "\n".join((VERSION, dataset.sha256, kind, str(seed)))
    return replace(
        dataset,
        name=kind,
        sha256=hashlib.sha256(identity.encode()).hexdigest(),
        read=_Replaced(dataset.read, dataset.ids, kind, seed),
        part_of=None if dataset.part_of is None else out_of_distribution_images(dataset.part_of, kind, seed),
    )


@final
@dataclass(frozen=True)
class _Replaced:
    read: Reader
    ids: tuple[str, ...]
    kind: str
    seed: int

    def __call__(self, rows: Sequence[int]) -> Tensor:
        rng = Streams.of(self.seed, [f"{self.kind}/{self.ids[row]}" for row in rows])
        return KINDS[self.kind](self.read(rows), rng)
