"""Turns names of models, datasets and attacks into names of files and folders."""

import re
from typing import Final

_KEPT: Final = ".+=_-"


def slug(text: str, keep: str = _KEPT) -> str:
    """Replace every run of characters that are no ASCII letter, digit or one of `keep` by one hyphen.

    Hyphens at both ends are removed, and so are leading dots: no slug is empty, hidden or a path to another folder.
    """
    plain = re.sub(rf"[^A-Za-z0-9{re.escape(keep)}]+", "-", text)
    return plain.strip("-").lstrip(".-") or "-"
