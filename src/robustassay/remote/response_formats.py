"""The answers of a service, parsed from its responses."""

import json
import math
from dataclasses import dataclass
from typing import Any, Final, final

from robustassay.remote.adapter import Adapter

LONGEST_LABEL: Final = 500
"""Characters of a label."""


class MalformedResponse(Exception):
    """A response without the fields that the adapter describes."""


@final
@dataclass(frozen=True)
class Answer:
    """The labels of one image, the predicted one first, and their scores where the service shows any."""

    labels: tuple[str, ...]
    scores: tuple[float, ...] | None

    def is_like(self, other: "Answer") -> bool:
        """Say whether one model may have given both: equal labels, and scores that agree up to rounding."""
        if self.scores is None or other.scores is None:
            return self == other
        mine, theirs = (dict(zip(one.labels, one.scores, strict=True)) for one in (self, other) if one.scores)
        return mine.keys() == theirs.keys() and all(
            math.isclose(score, theirs[label], rel_tol=1e-3, abs_tol=1e-9) for label, score in mine.items()
        )

    def to_json(self) -> str:
        """Return the answer as JSON."""
        return json.dumps({"labels": self.labels, "scores": self.scores})

    @classmethod
    def from_json(cls, text: str) -> "Answer":
        """Read an answer from JSON."""
        found = json.loads(text)
        return cls(tuple(found["labels"]), None if found["scores"] is None else tuple(found["scores"]))


def read_answers(content: bytes, count: int, adapter: Adapter) -> list[Answer]:
    """Return the answers to the images of one request; raise `MalformedResponse` where one is missing."""
    try:
        response = json.loads(content)
        answers = _parse_oip(response, count) if adapter.body == "oip" else [_parse_paths(response, adapter)]
    except RecursionError as error:
        raise MalformedResponse("the response is nested too deeply") from error
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise MalformedResponse(f"the response does not hold what the adapter looks for ({error!r})") from error
    for answer in answers:
        if not answer.labels or (answer.scores is not None and len(answer.scores) != len(answer.labels)):
            raise MalformedResponse("the response holds no label, or not one score for each")
        if answer.scores is not None and not all(map(math.isfinite, answer.scores)):
            raise MalformedResponse("the response holds a score that is no finite number")
    return answers


def _parse_paths(response: Any, adapter: Adapter) -> Answer:
    labels = [_label(label) for label in follow(response, adapter.labels)]
    if adapter.scores is None:
        return Answer(tuple(labels), None)
    try:
        scores = [float(score) for score in follow(response, adapter.scores)]
    except KeyError:
        return Answer(tuple(labels), None)  # scores are optional in the response
    return _by_score(labels, scores) if len(scores) == len(labels) else Answer(tuple(labels), tuple(scores))


def _parse_oip(response: Any, count: int) -> list[Answer]:
    outputs = {output["name"]: output["data"] for output in response["outputs"]}
    if "labels" not in outputs:
        (values,) = outputs.values()
        rows = _rows(values, count)
        return [_by_score([str(index) for index in range(len(row))], [float(value) for value in row]) for row in rows]
    labels = _rows(outputs["labels"], count)
    if "confidences" not in outputs:
        return [Answer(tuple(map(_label, row)), None) for row in labels]
    return [
        _by_score(list(map(_label, names)), list(map(float, scores)))
        for names, scores in zip(labels, _rows(outputs["confidences"], count), strict=True)
    ]


def _label(value: Any) -> str:
    if not isinstance(value, str | int | float):
        raise TypeError("a label that is neither text nor a number")
    text = str(value)
    if len(text) > LONGEST_LABEL:
        raise ValueError(f"a label of more than {LONGEST_LABEL} characters")
    return text


def _by_score(labels: list[str], scores: list[float]) -> Answer:
    """Put the highest score first; among equals the service's own order decides."""
    order = sorted(range(len(labels)), key=lambda index: -scores[index])
    return Answer(tuple(labels[index] for index in order), tuple(scores[index] for index in order))


def _rows(values: list[Any], count: int) -> list[list[Any]]:
    width, rest = divmod(len(values), count)
    if rest or not width:
        raise ValueError(f"{len(values)} values for {count} images")
    return [values[start : start + width] for start in range(0, len(values), width)]


def follow(value: Any, path: str) -> list[Any]:
    """Return all values at a path such as `predictions.*.label`."""
    found = [value]
    for step in path.split("."):
        if step == "*":
            found = [item for whole in found for item in (whole.values() if isinstance(whole, dict) else whole)]
        else:
            found = [whole[int(step)] if isinstance(whole, list) else whole[step] for whole in found]
    return found
