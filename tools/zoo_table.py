"""Writes the table of embedded models in the README, from their cards.

python -m tools.zoo_table
"""

import re
from pathlib import Path

from robustassay import models
from robustassay.models import table

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- zoo: python -m tools.zoo_table -->", "<!-- /zoo -->"


def main() -> None:
    """Replace the text between the markers."""
    text = README.read_text()
    if renewed(text) != text:
        README.write_text(renewed(text))


def renewed(text: str) -> str:
    """Return the text with the current table between its markers."""
    between = re.compile(f"(?<={re.escape(BEGIN)}\n).*?(?={re.escape(END)})", re.DOTALL)
    if not between.search(text):
        raise SystemExit(f"{README.name} lacks the marks {BEGIN} and {END}: put them where the table belongs.")
    return between.sub(lambda _: zoo_table(), text, count=1)


def zoo_table() -> str:
    """Return one line per card."""
    rows = [table.row(models.card(name)) for name in models.names()]
    lines = [table.COLUMNS, ("---",) * len(table.COLUMNS), *((f"`{name}`", *rest) for name, *rest in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main()
