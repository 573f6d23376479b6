"""Finds out why an attack would fail unseen, and what to do about it.

To import this room makes the adviser "auto" known, which `evaluate(..., adaptive="auto")` asks.
"""

from robustassay.doctor.diagnosis import diagnose
from robustassay.doctor.indicator import REMEDIES, Diagnosis, Finding
from robustassay.doctor.remedies import Doctor
from robustassay.evaluation import evaluate

__all__ = ["REMEDIES", "Diagnosis", "Doctor", "Finding", "diagnose", "evaluate"]
