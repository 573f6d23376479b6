"""The zoo at a glance: one row a card, as the command line and the README print it."""

from typing import Final

from robustassay.models.card import ModelCard

COLUMNS: Final = ("model", "what it is", "parameters", "clean", "PGD-20", "express")


def row(card: ModelCard) -> tuple[str, ...]:
    """Write the numbers of a card; robust ones are at Linf 8/255, and empty where nobody measured."""
    express = card.measurements.get("express")
    return (
        card.name,
        card.title,
        f"{card.parameters:,}",
        f"{card.clean_accuracy:.1%}",
        f"{card.robust_accuracy:.1%}",
        f"{express['robust_accuracy']:.1%} of {express['images']}" if express else "",
    )
