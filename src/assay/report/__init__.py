"""A site of what the runs found; it draws what `assay.analysis` computed."""

from assay.report.website import build

__all__ = ["build"]
