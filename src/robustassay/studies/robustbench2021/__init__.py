"""Croce et al. 2021, *RobustBench* (arXiv:2010.09670), on this zoo.

A leaderboard from records, and the counterparts of Figures 2 to 7: accuracy against robustness and over time, accuracy
under shift, calibration, out-of-distribution detection, fairness, privacy leakage; and smoothness, from the appendix.
"""

from robustassay.studies.robustbench2021.findings import findings
from robustassay.studies.robustbench2021.plan import (
    FULL,
    IMAGENET,
    IMAGENET_QUICK,
    QUICK,
    Scale,
    choose,
    kinds,
    workbench,
)
from robustassay.studies.robustbench2021.writing import FIGURES, Report, write

__all__ = [
    "FIGURES",
    "FULL",
    "IMAGENET",
    "IMAGENET_QUICK",
    "QUICK",
    "Report",
    "Scale",
    "choose",
    "findings",
    "kinds",
    "workbench",
    "write",
]
