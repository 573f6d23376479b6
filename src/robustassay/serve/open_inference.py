"""Answers in the Open Inference Protocol, version 2 (https://github.com/kserve/open-inference-protocol), in JSON."""

from typing import Any

from torch import Tensor

from robustassay.serve.config import ServiceConfig
from robustassay.serve.tensor_request import INPUT


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
