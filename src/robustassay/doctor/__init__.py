"""Finds out why an attack would fail unseen, and what to do about it.

`evaluate(..., search=Search(adaptive="auto"))` imports this package through the registry.
"""

from robustassay.doctor.diagnosis import diagnose
from robustassay.doctor.indicator import REMEDIES, Diagnosis, Finding
from robustassay.doctor.remedies import Doctor

__all__ = ["REMEDIES", "Diagnosis", "Doctor", "Finding", "diagnose"]
