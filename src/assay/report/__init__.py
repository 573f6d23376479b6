"""A page of what the runs found; it draws what `assay.analysis` computed."""

from assay.report.site import build

__all__ = ["build"]
