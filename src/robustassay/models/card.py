"""Model cards: the origin and the measurements of weights."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, Self

from robustassay.errors import BadWeights


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """The origin and the measurements of one weights file; all accuracies were measured on that file.

    `measurements` holds what only some models have, such as a certified accuracy; `notes` holds remarks.
    """

    name: str
    title: str
    architecture: Mapping[str, Any]
    dataset: str
    classes: int
    recipe: str
    recipe_fields: Mapping[str, Any]
    command: str
    seed: int
    epochs: int
    seconds: float
    hardware: str
    training_data: str
    clean_accuracy: float
    clean_images: int
    robust_accuracy: float
    robust_images: int
    robust_attack: str
    parameters: int
    sha256: str
    licence: str
    measurements: Mapping[str, Any] = field(default_factory=dict)
    notes: str = ""

    def to_json(self) -> str:
        """Return the card as JSON."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse a card; missing and unknown fields are an error."""
        try:
            content = json.loads(text)
            known = {field.name for field in fields(cls)}
            optional = {field.name for field in fields(cls) if (field.default, field.default_factory) != (MISSING,) * 2}
            wrong = (known - optional - content.keys()) | (content.keys() - known)
        except (ValueError, AttributeError, RecursionError) as error:
            raise BadWeights("The model card is not a JSON object: reinstall it or fetch it again.") from error
        if wrong:
            raise BadWeights(
                f"The model card has missing or unknown fields, {', '.join(sorted(wrong))}: "
                "another version of assay wrote it; train or fetch the model again."
            )
        for own in fields(cls):
            value = content.get(own.name, MISSING)
            if not _fits(value, own.type):
                raise BadWeights(
                    f"The model card's {own.name} is {str(value)[:40]!r}, which is not valid: fetch it again."
                )
        return cls(**content)


def _fits(value: object, kind: object) -> bool:
    """Return whether a value from JSON has the type of a field; integers are valid floats."""
    if value is MISSING:
        return True
    allowed: dict[object, tuple[type, ...]] = {str: (str,), int: (int,), float: (int, float)}
    return isinstance(value, allowed.get(kind, (dict,))) and not isinstance(value, bool)
