"""Prints the part of CHANGELOG.md that belongs to a tag, as the notes of its release.

python -m tools.release_notes v0.2.0
"""

import re
import sys
from pathlib import Path

from robustassay import __version__

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"


def notes(tag: str, changelog: str) -> str:
    """Return the section of the version in the tag; refuse a tag of another version than the package's."""
    version = tag.removeprefix("v")
    if version != __version__:
        raise SystemExit(f"The tag is {tag} and the package is {__version__}: change one of them.")
    found = re.search(rf"^## {re.escape(version)} .*?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None or not found[1].strip():
        raise SystemExit(f"CHANGELOG.md has no section for {version}: write it first.")
    return found[1].strip() + "\n"


if __name__ == "__main__":
    print(notes(sys.argv[1], CHANGELOG.read_text()), end="")
