"""How addresses and JSON texts appear in manifests, transcripts and messages: without the secrets written in them."""

import hashlib
import json
import re
from itertools import pairwise
from typing import Any, Final
from urllib.parse import unquote, urlsplit

HIDDEN: Final = "***"

SECRET_NAMES: Final = re.compile(
    "apikey|auth|authorization|cookie|credentials?|jwt|key|pass|passwd|password|pwd|sas|secret|session|sessionid|sig|"
    "signature|token"
)
"""Words that make a query parameter, a header or a field of JSON a secret."""

RANDOM_LENGTH: Final = 20
"""Shorter texts are never taken for a random token."""


def is_secret_name(name: str) -> bool:
    """Say whether a name such as `x-api-key` or `accessToken` holds a word for a secret."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", unquote(name))
    return name.lower() == "code" or any(SECRET_NAMES.fullmatch(word.lower()) for word in (*words, "".join(words)))


def is_random(text: str) -> bool:
    """Say whether a text looks like a token: long, with letters and digits, which alternate often."""
    kinds = ["0" if one.isdigit() else "A" if one.isupper() else "a" for one in text if one.isalnum()]
    alternations = sum(one != other for one, other in pairwise(kinds))
    return len(kinds) >= RANDOM_LENGTH and "0" in kinds and len({*kinds}) > 1 and alternations >= len(kinds) / 4


def public_address(url: str) -> str:
    """Hide the secrets of an address; `$NAME` stands for itself.

    Two addresses that differ in a random part stay two: a hash of eight digits takes its place.
    """
    try:
        whole = urlsplit(url)
    except ValueError:
        return HIDDEN
    path = "/".join(_public_part(part) for part in whole.path.split("/"))
    query = "&".join(_public_parameter(one) for one in whole.query.split("&"))
    netloc = whole.netloc.rpartition("@")[2]
    return whole._replace(netloc=netloc, path=path, query=query, fragment=_public_part(whole.fragment)).geturl()


def secrets_of_address(url: str) -> list[str]:
    """Return the secrets that are written in an address, as they are written."""
    try:
        whole = urlsplit(url)
    except ValueError:
        return []
    parts = [part for part in (*whole.path.split("/"), whole.fragment) if _public_part(part) != part]
    parameters = [one for one in whole.query.split("&") if _public_parameter(one) != one]
    return [*parts, *(one.partition("=")[2] or one for one in parameters)]


def public_json(text: str) -> str:
    """Hide the values of a JSON text whose fields have secret names; without any, return the text itself."""
    try:
        written = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return json.dumps(_public_fields(written), ensure_ascii=False) if secrets_of_json(text) else text


def secrets_of_json(text: str) -> list[str]:
    """Return the values of a JSON text whose fields have secret names."""
    try:
        return [*_secret_values(json.loads(text))]
    except (ValueError, RecursionError):
        return []


def _public_part(part: str) -> str:
    if not is_random(re.sub(r"\$[A-Za-z_][A-Za-z0-9_]*", "", part)):
        return part
    return HIDDEN + hashlib.sha256(part.encode()).hexdigest()[:8]


def _public_parameter(parameter: str) -> str:
    name, equals, value = parameter.partition("=")
    if not equals:
        return _public_part(parameter)
    if is_secret_name(name) and value and not re.fullmatch(r"\$[A-Za-z_][A-Za-z0-9_]*", value):
        return f"{name}={HIDDEN}"
    return f"{name}={_public_part(value)}"


def _public_fields(value: Any, secret: bool = False) -> Any:
    if isinstance(value, dict):
        return {name: _public_fields(inner, secret or is_secret_name(name)) for name, inner in value.items()}
    if isinstance(value, list):
        return [_public_fields(inner, secret) for inner in value]
    return HIDDEN if secret and _can_be_secret(value) else value


def _secret_values(value: Any, secret: bool = False) -> "list[str]":
    if isinstance(value, dict):
        return [one for name, inner in value.items() for one in _secret_values(inner, secret or is_secret_name(name))]
    if isinstance(value, list):
        return [one for inner in value for one in _secret_values(inner, secret)]
    return [str(value)] if secret and _can_be_secret(value) else []


def _can_be_secret(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool) and "{image}" not in str(value)
