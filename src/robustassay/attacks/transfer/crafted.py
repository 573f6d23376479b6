"""Images crafted on a substitute, kept for the next model that is shown the same ones."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, final

import torch
from torch import Tensor

from robustassay.rng import Streams
from robustassay.threat import Ball, Goal

MEMORY_BYTES: Final = 256 << 20

Craft = Callable[[Ball, Goal, Streams], Tensor]


@final
class CraftedImages:
    """Crafted images by everything that they depend on; the least recently used ones are forgotten first."""

    def __init__(self, limit: int = MEMORY_BYTES) -> None:
        self._limit, self._held = limit, 0
        self._known: OrderedDict[bytes, tuple[Tensor, Tensor]] = OrderedDict()  # image, and draws made for it

    def get(self, how: str, ball: Ball, goal: Goal, rng: Streams, craft: Craft) -> Tensor:
        """Return one image per row: known ones, and the others as `craft` makes them; `how` says what it does."""
        keys = _keys(how, ball, goal, rng)
        missing = [row for row, key in enumerate(keys) if key not in self._known]
        found = {row: self._known[key] for row, key in enumerate(keys) if key in self._known}
        if missing:
            rows = torch.tensor(missing, device=ball.centre.device)
            own = rng.among(rows)
            before = own.draws.clone()
            made = craft(ball.among(rows), goal.among(rows), own).detach()
            for row, image, draws in zip(missing, made, own.draws - before, strict=True):
                found[row] = image.clone(), draws
        for row, (image, draws) in found.items():
            self._keep(keys[row], image, draws)
        if len(missing) < len(keys):  # as if every image had been made now
            rng.skip(torch.stack([found[row][1] * (row not in missing) for row in range(len(keys))]))
        return torch.stack([found[row][0] for row in range(len(keys))])

    def _keep(self, key: bytes, image: Tensor, draws: Tensor) -> None:
        if key not in self._known:
            self._held += image.nbytes
        self._known[key] = image, draws
        self._known.move_to_end(key)
        while self._held > self._limit:
            self._held -= self._known.popitem(last=False)[1][0].nbytes


def _keys(how: str, ball: Ball, goal: Goal, rng: Streams) -> list[bytes]:
    """Hash what an image depends on, row by row."""
    common = f"{how} {ball.norm} {type(goal).__name__} {ball.centre.device} {ball.centre.dtype}".encode()
    parts = [ball.eps, goal.labels, rng.keys, rng.draws]
    columns = [part.cpu().numpy() for part in (ball.centre.flatten(1), *parts)]
    return [
        hashlib.blake2b(common + b"".join(column[row].tobytes() for column in columns), digest_size=16).digest()
        for row in range(len(ball.centre))
    ]
