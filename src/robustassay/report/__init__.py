"""A site of what the runs found; it draws what `robustassay.analysis` computed."""

from robustassay.report.website import build

__all__ = ["build"]
