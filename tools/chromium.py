"""The browser that pages are tested and photographed in."""

import os
import shutil
from typing import Final

FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
MISSING: Final = "No chromium: install it, or name it in ASSAY_CHROMIUM."


def find() -> str | None:
    """Return where it is: what ASSAY_CHROMIUM names, or the one that is installed."""
    return os.environ.get("ASSAY_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def required() -> bool:
    """Say whether tests must fail without it: with CI=true nobody reads which tests were skipped."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")
