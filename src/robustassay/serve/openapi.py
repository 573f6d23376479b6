"""The routes as /openapi.json describes them; the handlers parse bodies themselves, so the schemas are here."""

from typing import Any, Final

_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string"}},
}
_ERRORS: Final = {
    400: "The body cannot be read.",
    401: "The API key is missing or wrong.",
    404: "There is no such model.",
    408: "The body came too slowly.",
    413: "The request is too large.",
    415: "The type of the body is not supported.",
    422: "The image has the wrong size or type.",
    429: "Too many images per second.",
    503: "The service is busy.",
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
    return {status: {"description": _ERRORS[status], "content": content} for status in statuses}


def _body(*media_types: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "requestBody": {"required": True, "content": {media_type: {"schema": schema} for media_type in media_types}}
    }


NO_PARAMETERS: Final[dict[str, Any]] = {}
METRICS: Final[dict[str, Any]] = {"responses": _responses(401)}
NAMED_MODEL: Final[dict[str, Any]] = {"responses": _responses(404)}
CLASSIFY: Final[dict[str, Any]] = {
    "responses": _responses(400, 401, 408, 413, 415, 422, 429, 503),
    "openapi_extra": _body("image/png", "image/jpeg", schema=_FILE),
}
INFER: Final[dict[str, Any]] = {
    "responses": _responses(400, 401, 404, 408, 413, 415, 422, 429, 503),
    "openapi_extra": _body("application/json", schema=_REQUEST),
}
