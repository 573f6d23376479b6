"""Replaces one section of a page that several measurements write."""

from pathlib import Path


def replace_section(page: Path, heading: str, text: str) -> None:
    """Write a section instead of the one with the same heading, or to the end of a page that has none."""
    before, _, after = page.read_text().partition(f"\n## {heading}\n")
    _, mark, following = after.partition("\n## ")
    page.write_text(f"{before.rstrip()}\n\n## {heading}\n\n{text.strip()}\n{mark}{following}")
