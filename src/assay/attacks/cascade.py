"""Attacks in a row: each on the samples that survived those before it."""

from typing import Any

from torch import Tensor

from assay.attacks.attack import Attack
from assay.target import WhiteBox

Stages = tuple[tuple[str, Attack[Any]], ...]


def run_stages(view: WhiteBox, stages: Stages) -> Tensor:
    """Run attacks one after the other on one view, looking at the last point of each; claims name their stage."""
    x = view.ball.centre
    for number, (name, attack) in enumerate(stages):
        for restart in range(getattr(attack, "restarts", 1)):
            if number or restart:
                view.decisions(x)
                view.keep()
            view.stage(name)
            x = attack(view, view.ball.centre)
    return x
