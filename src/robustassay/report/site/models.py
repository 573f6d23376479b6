"""The models of a report: their labels, facts, cards and pages."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from robustassay.models.card import ModelCard
from robustassay.names import slug
from robustassay.results.cards import embedded_card
from robustassay.results.labels import settings_label
from robustassay.results.runs import StoredRun


@final
@dataclass(frozen=True)
class ReportedModel:
    """One model, with a label that no other model has."""

    name: str
    label: str
    facts: tuple[str, ...]
    card: ModelCard | None  # of an embedded model
    page: str  # its path in the site

    @property
    def parameters(self) -> int | None:
        """The number of parameters on its card; None where there is no card."""
        return self.card.parameters if self.card else None

    @property
    def family(self) -> str:
        """The architecture named on its card, else other."""
        return str(self.card.architecture["name"]) if self.card else "other"


def reported_models(runs: Sequence[StoredRun]) -> dict[str, ReportedModel]:
    """Describe each model, by `StoredRun.model_id`."""
    specs = {run.model_id: json.loads(run.model_id) for run in runs}
    labels = {identity: str(spec["name"]) for identity, spec in specs.items()}
    for suffix in (_weights, _digest):  # two structures may have the same weights
        shared = Counter(labels.values())
        labels = {
            identity: f"{specs[identity]['name']} ({suffix(specs[identity])})" if shared[label] > 1 else label
            for identity, label in labels.items()
        }
    return {identity: _describe(spec, labels[identity]) for identity, spec in specs.items()}


def _describe(spec: Mapping[str, Any], label: str) -> ReportedModel:
    card = embedded_card(spec)
    facts = _facts(card) if card else (f"weights {_weights(spec)}",)
    return ReportedModel(str(spec["name"]), label, facts, card, _page(spec))


def _weights(spec: Mapping[str, Any]) -> str:
    return str(spec.get("weights", "unknown"))[:12]


def _digest(spec: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:8]


def _page(spec: Mapping[str, Any]) -> str:
    """Name a file after a model; the hash makes the name unique."""
    plain = slug(str(spec["name"]).lower(), keep="")[:48].lstrip("-")
    return f"models/{plain}-{_digest(spec)}.html" if plain else f"models/{_digest(spec)}.html"


def _facts(card: ModelCard) -> tuple[str, ...]:
    shape = settings_label(card.architecture)
    return (
        card.title,
        f"{card.architecture['name']} ({shape})" if shape else str(card.architecture["name"]),
        f"{card.parameters:,} parameters",
        f"recipe {card.recipe}, {card.epochs} epochs",
    )
