"""The findings of Su et al.: their abstract, sections 3.1 to 3.4, tested on the models, each part by itself."""

from dataclasses import replace

from robustassay.studies.page import Finding
from robustassay.studies.su2018.distortion_findings import distortion_findings
from robustassay.studies.su2018.measurements import SuMeasurements
from robustassay.studies.su2018.success_findings import success_findings
from robustassay.studies.su2018.transfer_findings import transfer_findings


def findings(measured: SuMeasurements) -> list[Finding]:
    """Test all findings, those of the abstract first."""
    found = [*distortion_findings(measured), *transfer_findings(measured), *success_findings(measured)]
    return [replace(one, number=at) for at, one in enumerate(found, 1)]
