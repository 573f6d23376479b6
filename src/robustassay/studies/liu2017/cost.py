"""What is left to do, and about how long that takes here."""

import time
from typing import Final

from robustassay.studies.liu2017.bench import Bench
from robustassay.studies.liu2017.plan import Kind
from robustassay.studies.liu2017.probes import DEVIATIONS, RAY_POINTS
from robustassay.threat import Untargeted

TIMED: Final = 32
OTHERS: Final = 8
"""Pieces of work beside the sets: clean images, noise, rays (2), cosines, planes (3), logits along a ray; the clean
images are looked at before anything is counted."""

FRACTION: Final = 0.15
"""Part of a ray that is searched until its image transfers, about."""


def pieces(bench: Bench) -> int:
    """Count the steps that progress is shown for, where nothing is done yet."""
    return sum(len(bench.members) for kind in bench.scale.kinds() if not _done(bench, kind)) + OTHERS


def estimate(bench: Bench) -> float:
    """Return about how many seconds are left: passes times what a pass takes here and now."""
    speeds = {name: _speed(bench, name) for name in bench.members} if not _all_done(bench) else {}
    if not speeds:
        return 0.0
    forward = sum(each[0] for each in speeds.values())
    gradient = sum(each[1] for each in speeds.values())
    images, scale = len(bench.images), bench.scale
    left = 0.0
    for kind in scale.kinds():
        if not _done(bench, kind):
            passes = scale.steps if kind.method.startswith("opt") else 2
            members = len(bench.members) - 1 if kind.ensemble else 1  # each model is in so many sources
            left += _missing(bench, kind) * images * passes * members * gradient
            left += images * len(bench.members) * forward
    searched = FRACTION * scale.ray_end / scale.ray_step
    left += images * forward * (len(DEVIATIONS) * scale.draws + 4 * searched + RAY_POINTS)
    return left + 3 * scale.grid**2 * forward


def _all_done(bench: Bench) -> bool:
    return all(_done(bench, kind) for kind in bench.scale.kinds())


def _done(bench: Bench, kind: Kind) -> bool:
    return bench.cache.holds(kind.name, bench.told(kind))


def _missing(bench: Bench, kind: Kind) -> float:
    """Return the part of a set's examples that is not made yet; a matched set depends on others, and is cheap."""
    if not kind.method.startswith("opt"):
        return 1.0
    craftings = [bench.crafting(kind, source) for source in bench.sources(kind)]
    missing = sum(len(crafting.missing(bench.folder(kind, crafting))) for crafting in craftings)
    return missing / (len(craftings) * len(bench.images))


def _speed(bench: Bench, name: str) -> tuple[float, float]:
    """Return the seconds that one image takes through a model, and through its gradient."""
    network, x = bench.networks[name], bench.x[:TIMED]
    goal = Untargeted(bench.goal(False).labels[: len(x)])
    network.logits(x[:1])
    seconds = []
    for ask in (network.logits, lambda x: network.gradient(x, lambda logits, goal: goal.loss(logits), goal)):
        start = time.perf_counter()
        ask(x)
        seconds.append((time.perf_counter() - start) / len(x))
    return seconds[0], seconds[1]
