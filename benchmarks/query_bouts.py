"""What docs/queries.md compares: our attacks, the same attacks of others, and what running them gives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from torch import nn

from benchmarks import peers
from robustassay.registry import lookup

MODELS = ("resnet20-natural", "resnet20-pgd")
LIBRARIES = ("ours", "foolbox", "ART")
EPS = {"L2": 1.0, "Linf": 8 / 255}

Theirs = Mapping[str, Callable[[int], peers.Peer]]
"""From a library to its attack with a budget of queries."""


@final
@dataclass(frozen=True)
class Bout:
    """One of our attacks under one norm, and the same attack of others."""

    attack: str
    norm: str
    theirs: Theirs
    settings: str = ""

    @property
    def eps(self) -> float:
        """The radius that counts as a success."""
        return EPS[self.norm]

    @property
    def seeks_minimum(self) -> bool:
        """Whether distances are compared, or only successes within eps."""
        return bool(lookup("attack", self.attack).seeks_minimum)


def _art(name: str, **settings: Any) -> peers.Peer:
    return peers.by_art(lambda model, batch_size: getattr(peers.art, name)(model, **settings))


def _art_on_probabilities(name: str, **settings: Any) -> peers.Peer:
    run = _art(name, **settings)
    return lambda model, x, y: run(nn.Sequential(model, nn.Softmax(1)), x, y)


def bouts() -> list[Bout]:
    """List what is compared."""
    foolbox, quiet = peers.foolbox, {"verbose": False}

    def hop(norm: str, order: float) -> Theirs:
        return {
            "foolbox": lambda q: peers.by_foolbox(foolbox.HopSkipJumpAttack(constraint=norm)),
            "ART": lambda q: _art("HopSkipJump", norm=order, max_iter=q, **quiet),
        }

    return [
        Bout("boundary", "L2", {"foolbox": lambda q: peers.by_foolbox(foolbox.BoundaryAttack(steps=q))}),
        Bout("hopskipjump", "L2", hop("l2", 2)),
        Bout("hopskipjump", "Linf", hop("linf", np.inf)),
        Bout("geoda", "L2", {"ART": lambda q: _art("GeoDA", norm=2, max_iter=q, **quiet)}),
        Bout("sign-opt", "L2", {"ART": lambda q: _art("SignOPTAttack", targeted=False, query_limit=q, **quiet)}),
        Bout(
            "simba",
            "L2",
            {"ART": lambda q: _art_on_probabilities("SimBA", max_iter=q, epsilon=0.2 * EPS["L2"], **quiet)},
            "steps={queries}",
        ),
        Bout(
            "square",
            "Linf",
            {"ART": lambda q: _art("SquareAttack", eps=EPS["Linf"], max_iter=q, p_init=0.8, **quiet)},
            "steps={queries},rescale_schedule=true",
        ),
    ]


@final
@dataclass(frozen=True)
class Task:
    """One library's attack on every image of one model; names only, because it is sent between processes."""

    model: str
    attack: str
    norm: str
    library: str
    images: int
    seeds: int
    marks: tuple[int, ...]

    @property
    def bout(self) -> Bout:
        """What is compared."""
        return next(bout for bout in bouts() if (bout.attack, bout.norm) == (self.attack, self.norm))


@final
@dataclass(frozen=True)
class Outcome:
    """Distances `[images, seeds, marks]`, that of the farthest corner where nothing was found, and what checks showed.

    Of `points` behind them `edge` verify only a little further out, and `refused` not even there; of `entries` in our
    records `astray` differ from what the recorder saw; `raised` runs ended in an error.
    """

    distance: np.ndarray
    points: int
    edge: int
    refused: int
    entries: int
    astray: int
    raised: int
