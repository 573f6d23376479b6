"""Finds the endpoint of a service that is named by its host alone."""

import json
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import quote, urlsplit

from robustassay.errors import BadRequest
from robustassay.remote.public_form import public_address

SECONDS: Final = 5.0
MAX_BYTES: Final = 1 << 16


def find_endpoint(address: str) -> str:
    """Return the address of a model of the Open Inference Protocol, else that of `/classify`; a path stays as it is."""
    parts = urlsplit(address)
    if parts.path.strip("/") or parts.query:
        return address
    base = address.rstrip("/")
    about = _get(f"{base}/v2")
    names = about.get("models") if isinstance(about, dict) else None
    if isinstance(names, list) and names and isinstance(names[0], str):
        return f"{base}/v2/models/{quote(names[0], safe='')}"
    return f"{base}/classify"


def _get(url: str) -> Any:
    """Return a JSON answer; None where the service has none at this address."""
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as response:
            return json.loads(response.read(MAX_BYTES))
    except urllib.error.HTTPError:
        return None
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError):
            return None
        shown = public_address(url.removesuffix("/v2"))
        reason = getattr(error, "reason", error)
        raise BadRequest(f"No service answers at {shown} ({reason}): start it, or check host and port.") from error
