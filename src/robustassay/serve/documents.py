"""What the API says about itself in /openapi.json; bodies are read by hand, so their schemas stand here."""

from typing import Any, Final

_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string"}},
}
_REFUSALS: Final = {
    400: "The body cannot be read.",
    401: "The API key is missing or wrong.",
    404: "There is no such model.",
    413: "The request is too large.",
    415: "The body is of a kind that is not read.",
    422: "The image has the wrong size or type.",
    429: "Too many requests.",
}
_FILE: Final = {"type": "string", "format": "binary"}
_TENSOR: Final = {
    "type": "object",
    "required": ["name", "shape", "datatype", "data"],
    "properties": {
        "name": {"type": "string", "enum": ["images"]},
        "shape": {"type": "array", "minItems": 4, "maxItems": 4, "items": {"type": "integer", "minimum": 1}},
        "datatype": {"type": "string", "enum": ["UINT8", "FP32"]},
        "data": {"type": "array", "items": {}},
    },
}
_INPUTS: Final = {"type": "array", "minItems": 1, "maxItems": 1, "items": _TENSOR}
_REQUEST: Final = {
    "type": "object",
    "required": ["inputs"],
    "properties": {"id": {"type": "string"}, "inputs": _INPUTS},
}


def _responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    content = {"application/json": {"schema": _ERROR}}
    return {status: {"description": _REFUSALS[status], "content": content} for status in statuses}


def _body(*kinds: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}


OPEN: Final[dict[str, Any]] = {}
NAMED: Final[dict[str, Any]] = {"responses": _responses(404)}
CLASSIFY: Final[dict[str, Any]] = {
    "responses": _responses(400, 401, 413, 415, 422, 429),
    "openapi_extra": _body("image/png", "image/jpeg", schema=_FILE),
}
INFER: Final[dict[str, Any]] = {
    "responses": _responses(400, 401, 404, 413, 415, 422, 429),
    "openapi_extra": _body("application/json", schema=_REQUEST),
}
