"""Liu et al. 2017, *Delving into Transferable Adversarial Examples and Black-box Attacks* (arXiv:1611.02770).

Examples made on one model, or on all models but one, are shown to every model: untargeted and targeted, by
optimisation, fast gradient and fast gradient sign at equal distortion; with the least distance at which they transfer,
random noise, the mistakes that models share, and the geometry around an image.
"""

from robustassay.studies.liu2017.bench import Bench
from robustassay.studies.liu2017.cost import estimate, pieces
from robustassay.studies.liu2017.figures import SHOWN, Figure, figures
from robustassay.studies.liu2017.findings import findings
from robustassay.studies.liu2017.plan import FULL, IMAGENET, IMAGENET_QUICK, QUICK, Scale, choose
from robustassay.studies.liu2017.tables import tables
from robustassay.studies.liu2017.writing import write

__all__ = [
    "FULL",
    "IMAGENET",
    "IMAGENET_QUICK",
    "QUICK",
    "SHOWN",
    "Bench",
    "Figure",
    "Scale",
    "choose",
    "estimate",
    "figures",
    "findings",
    "pieces",
    "tables",
    "write",
]
