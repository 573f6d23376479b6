"""Removes secrets from what a service says, before it is kept, written or printed."""

import base64
import html
import json
import re
from collections.abc import Iterable
from typing import Final, final
from urllib.parse import quote

from robustassay.remote.public_form import HIDDEN

SHORTEST: Final = 4
"""A secret of fewer characters is not searched for: it stands in too many texts by chance."""


@final
class Redactor:
    """Replaces every secret by ***, also in other spellings: percent-encoded, base64, escaped for JSON or HTML."""

    def __init__(self, secrets: Iterable[str]) -> None:
        searched = {secret for secret in secrets if len(secret) >= SHORTEST}
        spelt = {one for secret in searched for one in _spellings(secret)}
        longest_first = sorted(searched | spelt, key=lambda one: (-len(one), one))
        patterns = [_in_an_address(one) if one in searched else re.escape(one) for one in longest_first]
        self._pattern = re.compile("|".join(patterns), re.IGNORECASE)
        self._hints = tuple({one.lower() for one in spelt} | {_longest_word(secret).lower() for secret in searched})

    def text(self, text: str) -> str:
        """Remove the secrets from a text."""
        return self._pattern.sub(HIDDEN, text) if self._is_in(text) else text

    def texts(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """Remove the secrets from many texts; a thousand labels without one are searched as fast as one text."""
        return tuple(map(self.text, texts)) if self._is_in("\0".join(texts)) else texts

    def _is_in(self, text: str) -> bool:
        """Say whether a secret may be in a text; much faster than the pattern."""
        lowered = text.lower()
        return any(hint in lowered for hint in self._hints)


def _spellings(secret: str) -> set[str]:
    raw = secret.encode("utf-8", "surrogateescape")
    in_json = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    in_base64 = {encode(raw).decode().rstrip("=") for encode in (base64.b64encode, base64.urlsafe_b64encode)}
    return {html.escape(secret), repr(secret)[1:-1], *in_json, *in_base64} - {secret}


def _in_an_address(secret: str) -> str:
    """Return a pattern for a secret in which any character may be percent-encoded, and a space may be a plus."""
    return "".join(re.escape(one) if one.isalnum() and one.isascii() else _encoded(one) for one in secret)


def _encoded(one: str) -> str:
    spelt = [re.escape(one), quote(one.encode("utf-8", "surrogateescape"), safe="")]
    if spelt[1] == one:
        spelt[1] = f"%{ord(one):02X}"
    return f"(?:{'|'.join([*spelt, *([re.escape('+')] if one == ' ' else [])])})"


def _longest_word(secret: str) -> str:
    return max(re.split(r"[^A-Za-z0-9]+", secret), key=len)
