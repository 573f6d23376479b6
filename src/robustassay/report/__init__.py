"""Reports of finished runs: `charts` draws pictures with matplotlib, `site` writes a static website."""

from robustassay.report.site import build

__all__ = ["build"]
