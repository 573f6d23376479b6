"""Liu et al. 2017, *Delving into Transferable Adversarial Examples and Black-box Attacks* (arXiv:1611.02770).

Examples crafted on one model, or on the ensemble of all models but one, are tested on every model: untargeted and
targeted, by optimisation, fast gradient and fast gradient sign at equal distortion. Further results are the minimal
transferable distance, random noise, the mistakes that models share, and the geometry around an image.
"""

from typing import Final

from robustassay.studies.liu2017.experiment import LiuExperiment
from robustassay.studies.liu2017.figures import figures
from robustassay.studies.liu2017.findings import findings
from robustassay.studies.liu2017.models import PAPER_MODELS
from robustassay.studies.liu2017.plan import plan
from robustassay.studies.liu2017.setup import setup
from robustassay.studies.liu2017.tables import tables
from robustassay.studies.study import Study

__all__ = ["STUDY"]

STUDY: Final = Study[LiuExperiment](
    name="liu2017",
    title="Liu et al. (2017), Delving into Transferable Adversarial Examples and Black-box Attacks",
    plan=plan,
    setup=setup,
    findings=findings,
    tables=tables,
    figures=figures,
    paper_models=PAPER_MODELS,
)
