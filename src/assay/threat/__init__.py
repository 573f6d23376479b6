"""Who attacks, how far they may go, and what they want."""

from assay.threat.ball import Ball
from assay.threat.goals import Goal, Targeted, Untargeted, labels_of
from assay.threat.model import LabelList, LeastLikely, RandomTarget, TargetRule, ThreatModel
from assay.threat.norms import L0, L1, L2, LInf, Norm
from assay.threat.presets import PRESETS, preset
from assay.threat.shapes import per_row, where_rows

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
