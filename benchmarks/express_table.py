"""The table of express against AutoAttack, and its summary."""

from collections.abc import Sequence
from typing import Any, Final

COLUMNS: Final = (
    "network",
    "threat",
    "images",
    "clean",
    "autoattack",
    "express",
    "equal",
    "misses",
    "not in doubt",
    "in doubt",
    "cost ratio",
    "holds",
)

SUMMARY: Final = """{held} of {count} rows hold. Over all rows, {misses} of {verdicts:,} verdicts are misses, {silent}
of them not in doubt; {more} samples were broken by express alone."""


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Count the rows that hold, the misses, and what express alone broke."""
    differences = sum(round((1 - row["equal"]) * row["images"]) for row in rows)
    misses = sum(row["misses"] for row in rows)
    return SUMMARY.format(
        held=sum(row["holds"] for row in rows),
        count=len(rows),
        misses=misses,
        verdicts=sum(row["images"] for row in rows),
        silent=sum(row["not in doubt"] for row in rows),
        more=differences - misses,
    )


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Write the rows as a Markdown table."""
    cells = []
    for row in rows:
        shares = {key: f"{row[key]:.1%}" for key in ("clean", "autoattack", "express", "equal")}
        known = {**row, **shares, "cost ratio": f"{row['cost ratio']:.0f}x", "holds": "yes" if row["holds"] else "no"}
        cells.append(known)
    return markdown(cells, COLUMNS)


def markdown(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> str:
    """Write these columns as a Markdown table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(row[column]) for column in columns) + " |" for row in rows]
    return "\n".join(lines)
