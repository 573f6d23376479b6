"""Dong et al. 2020, *Benchmarking Adversarial Robustness on Image Classification* (arXiv:1912.11852), on this zoo.

Fifteen attacks meet the eight CIFAR-10 defenses, untargeted and targeted, under L-inf and L2; white-box attacks know
of input transformations (BPDA) and of random draws (EOT). Settings are those of the released scripts; where these
differ between curves, the run over eps has 10 steps of 0.15 eps and the one at the fixed eps 100 steps of 1/255. The
search of a sample's smallest eps repeats whole attacks, with their full budget each.
"""

from robustassay.studies.dong2020.bench import Bench
from robustassay.studies.dong2020.columns import FULL, IMAGENET, IMAGENET_QUICK, QUICK, Scale, cells
from robustassay.studies.dong2020.figures import Figure, Panel, figures
from robustassay.studies.dong2020.findings import findings
from robustassay.studies.dong2020.rows import NATURAL, PADDED, ROWS, Row, choose, on_photographs, preferred
from robustassay.studies.dong2020.tables import tables
from robustassay.studies.dong2020.writing import write
from robustassay.studies.page import Finding, Table

__all__ = [
    "FULL",
    "IMAGENET",
    "IMAGENET_QUICK",
    "NATURAL",
    "PADDED",
    "QUICK",
    "ROWS",
    "Bench",
    "Figure",
    "Finding",
    "Panel",
    "Row",
    "Scale",
    "Table",
    "cells",
    "choose",
    "figures",
    "findings",
    "on_photographs",
    "preferred",
    "tables",
    "write",
]
