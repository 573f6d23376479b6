"""The static site: gathered from records, rendered page by page, written so that a reader never sees half of one."""

from collections.abc import Sequence
from pathlib import Path

from robustassay.report.website.content import Watch, gather
from robustassay.report.website.pages import pages
from robustassay.report.website.writing import write

__all__ = ["build"]


def build(places: Sequence[Path], out: Path, watch: Watch = lambda done, total: None) -> Path:
    """Write a site about all runs, studies and analyses in these folders or below them; return its first page."""
    content = gather([Path(place) for place in places], watch)
    return write(Path(out), pages(content))
