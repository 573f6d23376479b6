"""The browser that pages are tested and photographed in."""

import os
import shutil
from typing import Final

FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def find() -> str | None:
    """Return where it is: what ASSAY_CHROMIUM names, or the one that is installed."""
    return os.environ.get("ASSAY_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
