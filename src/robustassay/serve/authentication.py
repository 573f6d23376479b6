"""Checks API keys."""

import hmac

from fastapi import Request

from robustassay.serve.http_error import HttpError


def key_of(request: Request) -> str:
    """Return the API key in the headers of a request, or an empty string."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return request.headers.get("x-api-key") or (token.strip() if scheme.lower() == "bearer" else "")


def check_key(expected: str | None, key: str) -> None:
    """Raise an error 401 if the service has an API key and the request holds another; in constant time."""
    if expected is not None and not hmac.compare_digest(expected.encode(), key.encode()):
        raise HttpError(401, "The API key is missing or wrong: send it in the header X-API-Key.")
