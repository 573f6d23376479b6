"""The static site: `content` collects, `pages` renders, `writing` writes."""

from collections.abc import Sequence
from pathlib import Path

from robustassay.report.site.content import Watch, collect
from robustassay.report.site.pages import pages
from robustassay.report.site.writing import write

__all__ = ["build"]


def build(places: Sequence[Path], out: Path, watch: Watch = lambda done, total: None) -> Path:
    """Write a site about all runs, studies and analyses in these folders or below them; return its first page."""
    content = collect([Path(place) for place in places], watch)
    return write(Path(out), pages(content))
