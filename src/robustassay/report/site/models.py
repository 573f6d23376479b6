"""The models of a report: their labels, facts, cards and pages."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from robustassay import models as embedded
from robustassay.models.card import ModelCard
from robustassay.names import slug
from robustassay.report.site.command import is_loadable
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
    parameters: int | None  # None where it is neither an embedded model nor a defended one
    family: str  # the architecture of the embedded model, else other


def reported_models(runs: Sequence[StoredRun], chosen: Mapping[str, str]) -> dict[str, ReportedModel]:
    """Describe each model, by `StoredRun.model_id`; `chosen` holds labels that people gave to names."""
    specs = {run.model_id: json.loads(run.model_id) for run in runs}
    names = {identity: str(spec["name"]) for identity, spec in specs.items()}
    plain = {identity: chosen.get(name, name) for identity, name in names.items()}
    labels = plain
    for suffix in (_weights, _digest):  # two structures may have the same weights
        shared = Counter(labels.values())
        labels = {
            identity: f"{plain[identity]} ({suffix(specs[identity])})" if shared[label] > 1 else label
            for identity, label in labels.items()
        }
    return {identity: _describe(spec, labels[identity]) for identity, spec in specs.items()}


def _describe(spec: Mapping[str, Any], label: str) -> ReportedModel:
    name, card, page = str(spec["name"]), embedded_card(spec), _page(spec)
    if card is not None:
        return ReportedModel(name, label, _facts(card), card, page, card.parameters, _family(card))
    defenses, _, inner = (part.strip() for part in name.rpartition("|"))
    if defenses and inner in embedded.names() and is_loadable(spec):
        from robustassay.leaderboard import whitelist

        behind = embedded.card(inner)
        parameters = sum(one.numel() for one in whitelist.model(name).parameters())
        facts = (f"{behind.title}, defended: {defenses.replace('|', ', ')}", f"{parameters:,} parameters")
        return ReportedModel(name, label, facts, None, page, parameters, _family(behind))
    return ReportedModel(name, label, (f"weights {_weights(spec)}",), None, page, None, "other")


def _weights(spec: Mapping[str, Any]) -> str:
    return str(spec.get("weights", "unknown"))[:8]


def _family(card: ModelCard) -> str:
    return str(card.architecture["name"])


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
