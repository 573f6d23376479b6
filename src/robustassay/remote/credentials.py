"""The secrets of an adapter: read from the environment, written in headers, in the address or in the body."""

import base64
import os
import re
from dataclasses import dataclass, field
from typing import Final, final
from urllib.parse import unquote, unquote_plus

from robustassay.errors import BadRequest
from robustassay.remote.adapter import Adapter
from robustassay.remote.public_form import is_secret_name, secrets_of_address, secrets_of_json
from robustassay.remote.redaction import Redactor

HARMLESS: Final = frozenset(
    ["accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "content-type", "user-agent"]
)
"""Headers whose literal values are no secrets."""

SCHEMES: Final = frozenset(["apikey", "basic", "bearer", "digest", "key", "token"])
"""Words before a secret in a header."""

LONG: Final = 8
"""Under a name that is no word for a secret, shorter literal values are none: they may well be labels."""


@final
@dataclass(frozen=True)
class Credentials:
    """The address and the headers as they are sent, and what removes their secrets from texts."""

    url: str = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    redactor: Redactor = field(repr=False)

    @classmethod
    def of(cls, adapter: Adapter) -> "Credentials":
        """Read the environment variables that an adapter names."""
        secrets: list[str] = secrets_of_json(adapter.template)
        url = _expand(adapter.url, secrets)
        secrets += [*secrets_of_address(adapter.url), *secrets_of_address(url)]
        headers = {}
        for name, value in adapter.headers.items():
            headers[name] = _expand(value, secrets)
            _check_header(name, headers[name])
            secrets += _secrets_of_header(name, headers[name])
        return cls(
            url, headers, Redactor({spelt for one in secrets for spelt in (one, unquote(one), unquote_plus(one))})
        )


def _expand(text: str, secrets: list[str]) -> str:
    """Replace each `$NAME` by its environment variable, and add its value to the secrets."""

    def look_up(match: "re.Match[str]") -> str:
        value = os.environ.get(match[1])
        if not value:
            raise BadRequest(f"The adapter reads ${match[1]} from the environment, where it is not set.")
        secrets.extend(_parts(value))
        return value

    return re.sub(r"\$([A-Za-z_][A-Za-z0-9_]*)", look_up, text)


def _check_header(name: str, value: str) -> None:
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
        raise BadRequest("A header of the adapter has a name with characters that no header may have: correct it.")
    if not (value.isascii() and value.isprintable()):
        raise BadRequest(
            f"The value of the header {name} has a line break or another character that no header may have: correct "
            "the adapter file or the environment variable."
        )


def _secrets_of_header(name: str, value: str) -> list[str]:
    if is_secret_name(name):
        return _parts(value)
    return [value] if name.lower() not in HARMLESS and len(value) >= LONG else []


def _parts(value: str) -> list[str]:
    """Return a value, the words in it, and what a word of Basic authentication encodes."""
    words = [word.strip("\"'") for word in re.split(r"[\s;,]+", value) if word.lower() not in SCHEMES]
    assigned = [word.partition("=")[2].strip("\"'") for word in words]
    decoded = [_decode_basic(word) for word in words]
    passwords = [text.partition(":")[2] for text in decoded]
    return [value, *words, *assigned, *decoded, *passwords]


def _decode_basic(word: str) -> str:
    """Return the `user:password` that a word encodes, or nothing."""
    try:
        text = base64.b64decode(word + "=" * (-len(word) % 4), validate=True).decode()
    except ValueError:
        return ""
    return text if ":" in text and text.isprintable() else ""
