"""Finds Chromium, for tests and screenshots of pages."""

import os
import shutil
from typing import Final

FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
MISSING: Final = "No chromium: install it, or name it in ASSAY_CHROMIUM."


def find() -> str | None:
    """Return the path in ASSAY_CHROMIUM, or that of the installed browser."""
    return os.environ.get("ASSAY_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def required() -> bool:
    """Return whether tests must fail without it: with CI=true a skipped test would not be noticed."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")
