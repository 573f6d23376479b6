"""The table of the zoo: one row per card, for the command line and the README."""

from typing import Final

from robustassay.models.card import ModelCard

COLUMNS: Final = ("model", "description", "parameters", "clean", "PGD-20", "express")


def row(card: ModelCard) -> tuple[str, ...]:
    """Return the row of a card; robust accuracies are at Linf 8/255, and empty if not measured."""
    express = card.measurements.get("express")
    return (
        card.name,
        card.title,
        f"{card.parameters:,}",
        f"{card.clean_accuracy:.1%}",
        f"{card.robust_accuracy:.1%}",
        f"{express['robust_accuracy']:.1%} of {express['images']}" if express else "",
    )
