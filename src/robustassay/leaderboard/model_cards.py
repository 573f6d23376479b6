"""The leaderboard card of a model that was measured here without one."""

from collections.abc import Mapping
from typing import Any

from robustassay.leaderboard.card import EntryCard, card_of_zoo
from robustassay.results.cards import embedded_card


def card_of_model(model: Mapping[str, Any]) -> EntryCard:
    """Return the card of an embedded model, if the weights are its own; else a card with the name only."""
    if (card := embedded_card(model)) is not None:
        return card_of_zoo(card)
    name = str(model["name"])
    return EntryCard(name="".join(letter if letter.isalnum() or letter in "_.+=|:-" else "-" for letter in name))
