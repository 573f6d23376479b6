"""Replaces the last section of a page that several measurements write."""

from pathlib import Path


def replace_section(page: Path, heading: str, text: str) -> None:
    """Write a section to the end of a page, instead of the one with the same heading and of all that follows it."""
    before, _, _ = page.read_text().partition(f"\n## {heading}\n")
    page.write_text(f"{before.rstrip()}\n\n## {heading}\n\n{text.strip()}\n")
