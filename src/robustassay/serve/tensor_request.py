"""Parses requests of the Open Inference Protocol; without torch, so that a process of its own starts fast."""

import json
import math
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from robustassay.serve.http_error import HttpError

INPUT: Final = "images"
DATATYPES: Final = ("UINT8", "FP32")
"""Integers from 0 to 255, or numbers from 0 to 1."""

Shape = tuple[int, int, int]


def parse(content: bytes, shape: Shape, max_images: int) -> tuple[NDArray[np.float32], str | None]:
    """Return the images `[n, channels, height, width]` of a request, in [0, 1], and its id."""
    try:
        request = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise HttpError(400, "The body is not JSON: send an inference request of protocol version 2.") from error
    inputs = request.get("inputs") if isinstance(request, dict) else None
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise HttpError(400, f'The request must hold one input: {{"inputs": [{{"name": "{INPUT}", ...}}]}}.')
    return _images(inputs[0], shape, max_images), _id(request.get("id"))


def _id(request_id: Any) -> str | None:
    if request_id is not None and not isinstance(request_id, str):
        raise HttpError(400, "The id of a request must be a string.")
    if request_id is not None and any("\ud800" <= letter <= "\udfff" for letter in request_id):
        raise HttpError(400, "The id of a request holds half a surrogate pair: send valid Unicode.")
    return request_id


def _images(tensor: dict[str, Any], expected: Shape, max_images: int) -> NDArray[np.float32]:
    name, datatype, shape = tensor.get("name"), tensor.get("datatype"), tensor.get("shape")
    sides = ", ".join(map(str, expected))
    if name != INPUT:
        raise HttpError(400, f"The only input is {INPUT!r}, not {str(name)[:40]!r}.")
    if datatype not in DATATYPES:
        raise HttpError(400, f"The datatype must be UINT8 (0 to 255) or FP32 (0 to 1), not {str(datatype)[:40]!r}.")
    if not isinstance(shape, list) or len(shape) != 4 or not all(type(side) is int for side in shape):
        raise HttpError(400, f"The shape must be [n, {sides}].")
    if shape[0] < 1 or tuple(shape[1:]) != expected:
        raise HttpError(422, f"The shape does not fit the model: send [n, {sides}] with n >= 1.")
    if shape[0] > max_images:
        raise HttpError(413, f"A request may hold {max_images} images: send fewer at once.")
    x = _flat(tensor.get("data"), math.prod(shape))
    high = 255 if datatype == "UINT8" else 1
    if not ((x >= 0) & (x <= high)).all() or (datatype == "UINT8" and (x != x.round()).any()):
        raise HttpError(400, f"Every value must be {'an integer ' if high == 255 else ''}from 0 to {high}.")
    pixels = x.astype(np.float32)
    return (pixels / np.float32(255) if datatype == "UINT8" else pixels).reshape(shape)


def _flat(data: Any, count: int) -> NDArray[np.float64]:
    """Return the numbers of a list, which may be nested up to four levels deep."""
    for _ in range(4):
        if isinstance(data, list) and data and set(map(type, data)) == {list}:
            data = list(chain.from_iterable(data))
    if not isinstance(data, list) or not set(map(type, data)) <= {int, float}:
        raise HttpError(400, "The data must be a list of numbers.")
    if len(data) != count:
        raise HttpError(400, f"The data has {len(data)} values but the shape needs {count}.")
    try:
        return np.array(data, dtype=np.float64)
    except OverflowError as error:
        raise HttpError(400, "The data holds a number too large for a pixel.") from error
