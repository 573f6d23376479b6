"""Su et al. 2018, *Is Robustness the Cost of Accuracy?* (arXiv:1808.01688).

Every model meets FGSM, I-FGSM, C&W and EAD-L1, untargeted, with random and with least-likely targets. CLEVER estimates
its smallest adversarial distance, and its examples are tested on all other models. Then robustness is compared with
accuracy.
"""

from typing import Final

from robustassay.studies.study import Study
from robustassay.studies.su2018.figures import figures
from robustassay.studies.su2018.findings import findings
from robustassay.studies.su2018.measurements import SuMeasurements
from robustassay.studies.su2018.models import PAPER_MODELS
from robustassay.studies.su2018.plan import plan
from robustassay.studies.su2018.setup import setup
from robustassay.studies.su2018.tables import tables

__all__ = ["STUDY"]

STUDY: Final = Study[SuMeasurements](
    name="su2018",
    title="Su et al. (2018), Is Robustness the Cost of Accuracy?",
    plan=plan,
    setup=setup,
    findings=findings,
    tables=tables,
    figures=figures,
    paper_models=PAPER_MODELS,
)
