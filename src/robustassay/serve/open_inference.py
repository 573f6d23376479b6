"""The Open Inference Protocol, version 2 (https://github.com/kserve/open-inference-protocol), in JSON."""

import json
import math
from typing import Any, Final

import torch
from torch import Tensor

from robustassay.serve.config import Offer
from robustassay.serve.refusal import Refusal

INPUT: Final = "images"
DATATYPES: Final = ("UINT8", "FP32")
"""Whole values from 0 to 255, or values from 0 to 1."""


def metadata(offer: Offer) -> dict[str, Any]:
    """Describe the model as the protocol wants it."""
    batch = [-1, *offer.shape]
    return {
        "name": offer.name,
        "versions": ["1"],
        "platform": "pytorch",
        "inputs": [{"name": INPUT, "datatype": "UINT8", "shape": batch}],
        "outputs": [{"name": name, "datatype": kind, "shape": shape} for name, kind, shape in _outputs(offer, -1)],
    }


def _outputs(offer: Offer, n: int) -> list[tuple[str, str, list[int]]]:
    if offer.shows_logits:
        return [("logits", "FP32", [n, len(offer.labels)])]
    shown = 1 if offer.label_only else offer.top_k or len(offer.labels)
    labels = [("labels", "BYTES", [n, shown])]
    return labels if offer.label_only else [*labels, ("confidences", "FP32", [n, shown])]


def read_request(content: bytes, offer: Offer) -> tuple[Tensor, str | None]:
    """Return the images `[n, channels, height, width]` of a request, and its id."""
    try:
        request = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "The body is no JSON: send an inference request of the protocol's version 2.") from error
    inputs = request.get("inputs") if isinstance(request, dict) else None
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise Refusal(400, f'The request must hold one input: {{"inputs": [{{"name": "{INPUT}", ...}}]}}.')
    number = request.get("id")
    if number is not None and not isinstance(number, str):
        raise Refusal(400, "The id of a request must be a string.")
    return _images(inputs[0], offer), number


def _images(tensor: dict[str, Any], offer: Offer) -> Tensor:
    name, datatype, shape = (tensor.get(key) for key in ("name", "datatype", "shape"))
    if name != INPUT:
        raise Refusal(400, f"The model has one input, {INPUT!r}, and none called {str(name)[:40]!r}.")
    if datatype not in DATATYPES:
        raise Refusal(400, f"The datatype must be UINT8 (0 to 255) or FP32 (0 to 1), not {str(datatype)[:40]!r}.")
    if not isinstance(shape, list) or len(shape) != 4 or not all(type(side) is int for side in shape):
        raise Refusal(400, f"The shape must be [n, {', '.join(map(str, offer.shape))}].")
    if shape[0] < 1 or tuple(shape[1:]) != offer.shape:
        raise Refusal(422, f"The shape is {shape}: send [n, {', '.join(map(str, offer.shape))}] with n of 1 or more.")
    values = _flat(tensor.get("data"), math.prod(shape))
    high = 255 if datatype == "UINT8" else 1
    x = torch.tensor(values, dtype=torch.float64)
    if not bool((x >= 0).all() & (x <= high).all()) or (datatype == "UINT8" and bool((x != x.round()).any())):
        raise Refusal(400, f"Every value must be {'a whole number ' if high == 255 else ''}from 0 to {high}.")
    pixels = x.float().div(255) if datatype == "UINT8" else x.float()
    return pixels.view(shape)


def _flat(data: Any, count: int) -> list[float]:
    """Return the numbers of a list, which may be nested as deep as an image is."""
    for _ in range(4):
        if isinstance(data, list) and data and all(isinstance(part, list) for part in data):
            data = [value for part in data for value in part]
    if not isinstance(data, list) or not all(type(value) in (int, float) for value in data):
        raise Refusal(400, "The data must be a list of numbers.")
    if len(data) != count:
        raise Refusal(400, f"The data has {len(data)} values where the shape asks for {count}.")
    try:
        return [float(value) for value in data]
    except OverflowError as error:
        raise Refusal(400, "The data holds a number too large for a pixel.") from error


def write_response(offer: Offer, number: str | None, logits: Tensor, shown: list[list[tuple[str, float]]]) -> Any:
    """Answer a request: logits where nothing is hidden, else labels with what is shown of their confidences."""
    columns: dict[str, list[Any]] = {
        "logits": logits.flatten().tolist() if offer.shows_logits else [],
        "labels": [label for row in shown for label, _ in row],
        "confidences": [confidence for row in shown for _, confidence in row],
    }
    outputs = [
        {"name": name, "datatype": kind, "shape": shape, "data": columns[name]}
        for name, kind, shape in _outputs(offer, len(logits))
    ]
    answer = {"model_name": offer.name, "model_version": "1", "outputs": outputs}
    return answer if number is None else {**answer, "id": number}
