"""Makes the text of a stranger safe to print: no escape sequence, no change of direction, no endless line."""

from typing import Final

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
