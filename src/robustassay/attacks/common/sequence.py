"""Attacks in sequence: each on the samples that survived those before it."""

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from robustassay.attacks.attack import Attack
from robustassay.target import GradientAccess, NoRowsLeft

Stages = tuple[tuple[str, Attack[Any]], ...]


def run_stages(view: GradientAccess, stages: Stages) -> Tensor:
    """Run attacks in sequence; claims name their stage."""
    for name, attack in stages:
        run_stage(view, name, attack)
    return view.ball.centre


def run_stage(view: GradientAccess, name: str, attack: Attack[Any], on: Tensor | None = None) -> None:
    """Run one attack on all rows or on some, query its last points, and drop the rows that finished."""
    everywhere = torch.ones(len(view.ball.centre), dtype=torch.bool, device=view.ball.centre.device)
    part = view.for_stage(everywhere if on is None else on)
    part.begin_stage(name)
    with suppress(NoRowsLeft):
        for _ in range(attack.repeats if len(part.ball.centre) else 0):
            part.decisions(attack(part, part.ball.centre))
            part.drop_finished()
    view.drop_finished()
