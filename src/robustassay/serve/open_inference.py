"""The Open Inference Protocol, version 2 (https://github.com/kserve/open-inference-protocol), in JSON."""

import json
import math
from typing import Any, Final

import torch
from torch import Tensor

from robustassay.serve.config import ServiceConfig
from robustassay.serve.http_error import HttpError

INPUT: Final = "images"
DATATYPES: Final = ("UINT8", "FP32")
"""Integers from 0 to 255, or numbers from 0 to 1."""


def metadata(config: ServiceConfig) -> dict[str, Any]:
    """Return the model metadata of the protocol."""
    batch = [-1, *config.shape]
    return {
        "name": config.name,
        "versions": ["1"],
        "platform": "pytorch",
        "inputs": [{"name": INPUT, "datatype": "UINT8", "shape": batch}],
        "outputs": [{"name": name, "datatype": kind, "shape": shape} for name, kind, shape in _outputs(config, -1)],
    }


def _outputs(config: ServiceConfig, n: int) -> list[tuple[str, str, list[int]]]:
    if config.shows_logits:
        return [("logits", "FP32", [n, len(config.labels)])]
    k = 1 if config.label_only else config.top_k or len(config.labels)
    labels = [("labels", "BYTES", [n, k])]
    return labels if config.label_only else [*labels, ("confidences", "FP32", [n, k])]


def read_request(content: bytes, config: ServiceConfig) -> tuple[Tensor, str | None]:
    """Return the images `[n, channels, height, width]` of a request, and its id."""
    try:
        request = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise HttpError(400, "The body is not JSON: send an inference request of protocol version 2.") from error
    inputs = request.get("inputs") if isinstance(request, dict) else None
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise HttpError(400, f'The request must hold one input: {{"inputs": [{{"name": "{INPUT}", ...}}]}}.')
    request_id = request.get("id")
    if request_id is not None and not isinstance(request_id, str):
        raise HttpError(400, "The id of a request must be a string.")
    return _images(inputs[0], config), request_id


def _images(tensor: dict[str, Any], config: ServiceConfig) -> Tensor:
    name, datatype, shape = (tensor.get(key) for key in ("name", "datatype", "shape"))
    if name != INPUT:
        raise HttpError(400, f"The only input is {INPUT!r}, not {str(name)[:40]!r}.")
    if datatype not in DATATYPES:
        raise HttpError(400, f"The datatype must be UINT8 (0 to 255) or FP32 (0 to 1), not {str(datatype)[:40]!r}.")
    if not isinstance(shape, list) or len(shape) != 4 or not all(type(side) is int for side in shape):
        raise HttpError(400, f"The shape must be [n, {', '.join(map(str, config.shape))}].")
    if shape[0] < 1 or tuple(shape[1:]) != config.shape:
        raise HttpError(422, f"The shape is {shape}: send [n, {', '.join(map(str, config.shape))}] with n >= 1.")
    values = _flat(tensor.get("data"), math.prod(shape))
    high = 255 if datatype == "UINT8" else 1
    x = torch.tensor(values, dtype=torch.float64)
    if not bool((x >= 0).all() & (x <= high).all()) or (datatype == "UINT8" and bool((x != x.round()).any())):
        raise HttpError(400, f"Every value must be {'an integer ' if high == 255 else ''}from 0 to {high}.")
    pixels = x.float().div(255) if datatype == "UINT8" else x.float()
    return pixels.view(shape)


def _flat(data: Any, count: int) -> list[float]:
    """Return the numbers of a list, which may be nested up to four levels deep."""
    for _ in range(4):
        if isinstance(data, list) and data and all(isinstance(part, list) for part in data):
            data = [value for part in data for value in part]
    if not isinstance(data, list) or not all(type(value) in (int, float) for value in data):
        raise HttpError(400, "The data must be a list of numbers.")
    if len(data) != count:
        raise HttpError(400, f"The data has {len(data)} values but the shape needs {count}.")
    try:
        return [float(value) for value in data]
    except OverflowError as error:
        raise HttpError(400, "The data holds a number too large for a pixel.") from error


def write_response(
    config: ServiceConfig, request_id: str | None, logits: Tensor, predictions: list[list[tuple[str, float]]]
) -> Any:
    """Return the response: all logits, or the labels and confidences that the config reveals."""
    columns: dict[str, list[Any]] = {
        "logits": logits.flatten().tolist() if config.shows_logits else [],
        "labels": [label for row in predictions for label, _ in row],
        "confidences": [confidence for row in predictions for _, confidence in row],
    }
    outputs = [
        {"name": name, "datatype": kind, "shape": shape, "data": columns[name]}
        for name, kind, shape in _outputs(config, len(logits))
    ]
    answer = {"model_name": config.name, "model_version": "1", "outputs": outputs}
    return answer if request_id is None else {**answer, "id": request_id}
