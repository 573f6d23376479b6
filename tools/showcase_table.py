"""Writes the table of the showcase into the README and the first page of the documentation.

assay run && python -m tools.showcase_table runs/showcase
"""

import sys
from pathlib import Path
from typing import Final

from robustassay.studies.showcase import Showcase, read_showcase

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = (ROOT / "README.md", ROOT / "docs" / "index.md")
BEGIN: Final = "<!-- showcase: python -m tools.showcase_table -->\n"
END: Final = "<!-- /showcase -->"


def table(found: Showcase) -> str:
    """Return the five lines with what they were measured on."""
    lines = [
        "| model | clean | PGD says | assay says (95 % interval) | why |",
        "|---|---|---|---|---|",
    ]
    for row in found.rows:
        pgd = "–" if row.pgd is None else f"{row.pgd:.1%}"
        measured = f"{row.assay:.1%} ({row.low:.1%} to {row.high:.1%})"
        lines.append(f"| {row.label} | {row.clean:.1%} | {pgd} | **{measured}** | {row.why} |")
    lines.append(f"\n{found.images} images of {found.data}, {found.threat}.\n")
    return "\n".join(lines)


def renewed(text: str, found: Showcase) -> str:
    """Return a page with the table between its two marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"The page lacks {BEGIN.strip()} or {END}.")
    return f"{before}{begin}{table(found)}{end}{after}"


def main() -> None:
    """Write the pages."""
    found = read_showcase(Path(sys.argv[1]))
    if found is None:
        raise SystemExit(f"{sys.argv[1]} holds no showcase.json: run `assay run` first.")
    for page in PAGES:
        page.write_text(renewed(page.read_text(), found))


if __name__ == "__main__":
    main()
