"""Dong et al. 2020, *Benchmarking Adversarial Robustness on Image Classification* (arXiv:1912.11852).

Fifteen attacks meet the eight CIFAR-10 defenses, untargeted and targeted, under L∞ and L2. White-box attacks adapt
to input transformations (BPDA) and to randomness (EOT). Settings are those of the released scripts; where these differ
between curves, the run over eps has 10 steps of 0.15 eps and the run at the fixed eps 100 steps of 1/255. The search
of a sample's smallest eps repeats whole attacks, each with its full budget.
"""

from typing import Final

from robustassay.studies.dong2020.figures import figures
from robustassay.studies.dong2020.findings import findings
from robustassay.studies.dong2020.measurements import DongMeasurements
from robustassay.studies.dong2020.paper_models import PAPER_MODELS
from robustassay.studies.dong2020.plan import plan
from robustassay.studies.dong2020.setup import setup
from robustassay.studies.dong2020.tables import tables
from robustassay.studies.study import Study

__all__ = ["STUDY"]

STUDY: Final = Study[DongMeasurements](
    name="dong2020",
    title="Dong et al. (2020), Benchmarking Adversarial Robustness on Image Classification",
    plan=plan,
    setup=setup,
    findings=findings,
    tables=tables,
    figures=figures,
    paper_models=PAPER_MODELS,
)
