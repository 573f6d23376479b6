"""Croce et al. 2021, *RobustBench* (arXiv:2010.09670).

The paper's statements about its leaderboards are tested on the entries it published. Those about models are tested on
the models measured here: Figures 2 to 7 and 10, transfer, smoothness, seeds, and leaderboards with both kinds of
entries.
"""

from typing import Final

from robustassay.studies.robustbench2021.findings import findings
from robustassay.studies.robustbench2021.measurements import RobustBenchMeasurements, attach, figures, tables
from robustassay.studies.robustbench2021.models import PAPER_MODELS
from robustassay.studies.robustbench2021.plan import plan
from robustassay.studies.robustbench2021.setup import setup
from robustassay.studies.study import Study

__all__ = ["STUDY"]

STUDY: Final = Study[RobustBenchMeasurements](
    name="robustbench2021",
    title="Croce et al. (2021), RobustBench",
    plan=plan,
    setup=setup,
    findings=findings,
    tables=tables,
    figures=figures,
    attach=attach,
    paper_models=PAPER_MODELS,
)
