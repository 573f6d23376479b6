"""Su et al. 2018, *Is Robustness the Cost of Accuracy?* (arXiv:1808.01688), on this zoo.

All models meet FGSM, I-FGSM, C&W and EAD-L1, with random, least-likely and no targets; CLEVER estimates how far they
last; the examples of each are shown to all others. Then accuracy is set against robustness.
"""

from robustassay.studies.su2018.bench import Bench
from robustassay.studies.su2018.findings import findings
from robustassay.studies.su2018.plan import FULL, IMAGENET, IMAGENET_QUICK, QUICK, Model, Scale, cells, choose
from robustassay.studies.su2018.tables import tables
from robustassay.studies.su2018.work import Work
from robustassay.studies.su2018.writing import Figure, figures, write

__all__ = [
    "FULL",
    "IMAGENET",
    "IMAGENET_QUICK",
    "QUICK",
    "Bench",
    "Figure",
    "Model",
    "Scale",
    "Work",
    "cells",
    "choose",
    "figures",
    "findings",
    "tables",
    "write",
]
