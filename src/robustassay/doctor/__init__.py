"""Diagnoses why an attack may fail on a model without notice, and what to do about it.

`evaluate(..., search=Search(adaptive="auto"))` imports this package through the registry.
"""

from robustassay.doctor.diagnosis import diagnose
from robustassay.doctor.indicator import REMEDIES, Diagnosis, IndicatorResult
from robustassay.doctor.remedies import DiagnosisAdviser

__all__ = ["REMEDIES", "Diagnosis", "DiagnosisAdviser", "IndicatorResult", "diagnose"]
