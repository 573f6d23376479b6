"""Finds out why an attack would fail unseen, and what to do about it.

To import this room makes the adviser "auto" known, which `evaluate(..., adaptive="auto")` asks.
"""

from assay.doctor.diagnosis import diagnose
from assay.doctor.finding import REMEDIES, Diagnosis, Finding
from assay.doctor.prescription import Doctor
from assay.evaluation import evaluate

__all__ = ["REMEDIES", "Diagnosis", "Doctor", "Finding", "diagnose", "evaluate"]
