"""What a service said about an image, read from its response."""

import json
import math
from dataclasses import dataclass
from typing import Any, final

from robustassay.remote.adapter import Adapter


class Unreadable(Exception):
    """A response that does not hold what the adapter says it holds."""


@final
@dataclass(frozen=True)
class Answer:
    """Labels, the service's own first, and their scores where it shows any; no label means the class's number."""

    labels: tuple[str, ...]
    scores: tuple[float, ...] | None

    def is_like(self, other: "Answer") -> bool:
        """Say whether one model may have given both: the same labels, and scores that agree but for rounding."""
        if self.scores is None or other.scores is None:
            return self == other
        mine, theirs = (dict(zip(one.labels, one.scores, strict=True)) for one in (self, other) if one.scores)
        return mine.keys() == theirs.keys() and all(
            math.isclose(score, theirs[label], rel_tol=1e-3, abs_tol=1e-9) for label, score in mine.items()
        )

    def to_json(self) -> str:
        """Write it down."""
        return json.dumps({"labels": self.labels, "scores": self.scores})

    @classmethod
    def from_json(cls, text: str) -> "Answer":
        """Read it back."""
        found = json.loads(text)
        return cls(tuple(found["labels"]), None if found["scores"] is None else tuple(found["scores"]))


def read_answers(content: bytes, count: int, adapter: Adapter) -> list[Answer]:
    """Return the answers to the images of one request, or raise what is missing."""
    try:
        response = json.loads(content)
        answers = _of_protocol(response, count) if adapter.body == "oip" else [_of_paths(response, adapter)]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise Unreadable(f"the response does not hold what the adapter looks for ({error!r})") from error
    for answer in answers:
        if not answer.labels or (answer.scores is not None and len(answer.scores) != len(answer.labels)):
            raise Unreadable("the response holds no label, or not one score for each")
        if answer.scores is not None and not all(map(math.isfinite, answer.scores)):
            raise Unreadable("the response holds a score that is no finite number")
    return answers


def _of_paths(response: Any, adapter: Adapter) -> Answer:
    labels = [str(label) for label in follow(response, adapter.labels)]
    if adapter.scores is None:
        return Answer(tuple(labels), None)
    try:
        scores = [float(score) for score in follow(response, adapter.scores)]
    except KeyError:
        return Answer(tuple(labels), None)  # a service that may hide its scores, and does
    return _ranked(labels, scores) if len(scores) == len(labels) else Answer(tuple(labels), tuple(scores))


def _of_protocol(response: Any, count: int) -> list[Answer]:
    outputs = {output["name"]: output["data"] for output in response["outputs"]}
    if "labels" not in outputs:
        (values,) = outputs.values()
        rows = _rows(values, count)
        return [_ranked([str(index) for index in range(len(row))], [float(value) for value in row]) for row in rows]
    labels = _rows(outputs["labels"], count)
    if "confidences" not in outputs:
        return [Answer(tuple(map(str, row)), None) for row in labels]
    return [
        _ranked(list(map(str, names)), list(map(float, scores)))
        for names, scores in zip(labels, _rows(outputs["confidences"], count), strict=True)
    ]


def _ranked(labels: list[str], scores: list[float]) -> Answer:
    """Put the highest score first; among equals the service's own order decides."""
    order = sorted(range(len(labels)), key=lambda index: -scores[index])
    return Answer(tuple(labels[index] for index in order), tuple(scores[index] for index in order))


def _rows(values: list[Any], count: int) -> list[list[Any]]:
    width, rest = divmod(len(values), count)
    if rest or not width:
        raise ValueError(f"{len(values)} values for {count} images")
    return [values[start : start + width] for start in range(0, len(values), width)]


def follow(value: Any, path: str) -> list[Any]:
    """Return everything a path such as `predictions.*.label` leads to."""
    found = [value]
    for step in path.split("."):
        if step == "*":
            found = [item for whole in found for item in (whole.values() if isinstance(whole, dict) else whole)]
        else:
            found = [whole[int(step)] if isinstance(whole, list) else whole[step] for whole in found]
    return found
