"""Croce et al. 2021, *RobustBench* (arXiv:2010.09670).

A leaderboard from records, and the counterparts of Figures 2 to 7: accuracy and robustness, progress over time,
accuracy under shift, calibration, out-of-distribution detection, fairness, privacy leakage; and smoothness, from the
appendix.
"""

from typing import Final

from robustassay.studies.robustbench2021.measurements import (
    RobustBenchMeasurements,
    attach,
    figures,
    findings,
    setup,
    tables,
)
from robustassay.studies.robustbench2021.plan import plan
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
)
