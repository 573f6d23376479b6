"""The card of an embedded model, found by its weights."""

from collections.abc import Mapping
from typing import Any

from robustassay import models
from robustassay.errors import AssayError
from robustassay.models.card import ModelCard


def embedded_card(model: Mapping[str, Any]) -> ModelCard | None:
    """Return the card of an embedded model; None for another model, even of the same name."""
    from robustassay.models.weights import hash_state

    name = str(model["name"])
    try:
        same = name in models.names() and hash_state(models.load(name)) == model.get("weights")
        return models.card(name) if same else None
    except AssayError:  # A damaged zoo must not stop the report of finished runs.
        return None
