"""When and with which commit the rows of a page were measured."""

from collections.abc import Iterable, Mapping
from typing import Any

from robustassay.studies.provenance import commit, today


def stamp() -> dict[str, str]:
    """Return the day and the commit, as fields of a row."""
    return {"day": today().isoformat(), "commit": commit()}


def sentence(rows: Iterable[Mapping[str, Any]]) -> str:
    """State the days and commits of some rows for readers."""
    known = [row for row in rows if "commit" in row]
    if not known:
        return "Nobody kept when and with which commit the rows were measured."
    days = sorted({row["day"] for row in known})
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    commits = ", ".join(f"`{name}`" for name in dict.fromkeys(row["commit"] for row in known))
    return f"Measured on {span} with commit {commits}."
