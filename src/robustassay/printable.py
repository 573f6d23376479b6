"""Makes the text of a stranger safe to show: no escape sequence, no other direction, no endless line, no formula."""

from typing import Any, Final

MOST_CHARACTERS: Final = 200
"""Characters of a service's text in a message or in the transcript."""


def escape(text: str) -> str:
    """Write every character that is not printable as an escape such as \\x1b or \\u202e."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def escape_lines(text: str) -> str:
    """Escape a text, and keep its line breaks."""
    return "\n".join(map(escape, text.split("\n")))


def shorten(text: str, most: int = MOST_CHARACTERS) -> str:
    """Escape a text, and cut it."""
    escaped = escape(text[: most + 1])
    return escaped if len(escaped) <= most else f"{escaped[:most]}..."


def cell(value: Any) -> Any:
    """Return a value as a cell of a CSV file that no spreadsheet takes for a formula; numbers stay numbers."""
    if not isinstance(value, str) or value.lstrip()[:1] not in tuple("=+-@") or _is_number(value):
        return value
    return f"'{value}"


def _is_number(text: str) -> bool:
    try:
        float(text.rstrip(" %"))
    except ValueError:
        return False
    return True
