"""The models of a report: what to call each, and what is known of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from assay import models
from assay.errors import AssayError
from assay.models.card import ModelCard
from assay.report import words
from assay.report.runs import Run


@final
@dataclass(frozen=True)
class Subject:
    """One model, told from its namesakes."""

    label: str
    facts: tuple[str, ...]
    card: ModelCard | None  # of an embedded model


def subjects(runs: Sequence[Run]) -> dict[str, Subject]:
    """Describe each model once, by `Run.model_id`."""
    specs = {run.model_id: run.spec["model"] for run in runs}
    namesakes = Counter(spec["name"] for spec in specs.values())
    return {identity: _describe(spec, namesakes[spec["name"]] > 1) for identity, spec in specs.items()}


def _describe(spec: Mapping[str, Any], has_namesake: bool) -> Subject:
    name, weights = str(spec["name"]), str(spec.get("weights", "unknown"))[:12]
    card = embedded_card(spec)
    facts = _facts(card) if card else (f"weights {weights}",)
    return Subject(f"{name} ({weights})" if has_namesake else name, facts, card)


def embedded_card(spec: Mapping[str, Any]) -> ModelCard | None:
    """Return the card of an embedded model; None for another model, even of the same name."""
    name = spec["name"]
    if name not in models.names():
        return None
    from assay.models.weights import hash_state

    try:
        return models.card(name) if hash_state(models.load(name)) == spec.get("weights") else None
    except AssayError:  # A damaged zoo must not take the report of finished runs with it.
        return None


def _facts(card: ModelCard) -> tuple[str, ...]:
    shape = words.settings(card.architecture)
    return (
        card.title,
        f"{card.architecture['name']} ({shape})" if shape else str(card.architecture["name"]),
        f"{card.parameters:,} parameters",
        f"recipe {card.recipe}, {card.epochs} epochs",
    )
