"""Removes secrets from what a service says, before it is kept, written or printed."""

import base64
import html
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, final
from urllib.parse import quote, quote_plus

from robustassay.remote.public_form import HIDDEN

SHORTEST: Final = 4
"""A secret of fewer characters is not searched for: it stands in too many texts by chance."""

RESERVED: Final = "!$&'()*+,;=:/?@[]~"
"""Characters that httpx leaves as they are in an address."""


@final
class Redactor:
    """Replaces every secret by ***, also in other spellings: percent-encoded, base64, escaped for JSON or HTML."""

    def __init__(self, secrets: Iterable[str]) -> None:
        spellings = {spelt for secret in secrets if len(secret) >= SHORTEST for spelt in _spellings(secret)}
        longest_first = sorted(spellings, key=lambda spelt: (-len(spelt), spelt))
        self._lowered = tuple({spelt.lower() for spelt in spellings})
        self._pattern = re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE)

    def text(self, text: str) -> str:
        """Remove the secrets from a text."""
        return self._pattern.sub(HIDDEN, text) if self._is_in(text) else text

    def texts(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """Remove the secrets from many texts; a thousand labels without one are searched as fast as one text."""
        return tuple(map(self.text, texts)) if self._is_in("\0".join(texts)) else texts

    def value(self, value: Any) -> Any:
        """Remove the secrets from every text in a value of JSON, the names of fields included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(name)): self.value(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(inner) for inner in value]
        return value

    def _is_in(self, text: str) -> bool:
        lowered = text.lower()
        return any(spelt in lowered for spelt in self._lowered)


def _spellings(secret: str) -> set[str]:
    raw = secret.encode("utf-8", "surrogateescape")
    in_json = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    in_base64 = {encode(raw).decode().rstrip("=") for encode in (base64.b64encode, base64.urlsafe_b64encode)}
    in_addresses = {quote(raw, safe=""), quote(raw), quote(raw, safe=RESERVED), quote_plus(raw)}
    return {secret, html.escape(secret), repr(secret)[1:-1], *in_json, *in_base64, *in_addresses}
