"""Threat models: the perturbations an attacker may use, and the goal."""

from robustassay.threat.ball import Ball
from robustassay.threat.goals import Goal, Targeted, Untargeted, labels_of
from robustassay.threat.model import LabelList, LeastLikely, RandomTarget, TargetRule, ThreatModel
from robustassay.threat.norms import L0, L1, L2, LInf, Norm
from robustassay.threat.presets import PRESETS, preset
from robustassay.threat.shapes import per_row, where_rows

__all__ = [
    "L0",
    "L1",
    "L2",
    "PRESETS",
    "Ball",
    "Goal",
    "LInf",
    "LabelList",
    "LeastLikely",
    "Norm",
    "RandomTarget",
    "TargetRule",
    "Targeted",
    "ThreatModel",
    "Untargeted",
    "labels_of",
    "per_row",
    "preset",
    "where_rows",
]
