"""The table of the zoo: one row per card, for the command line and the README."""

from typing import Final

from robustassay.models.card import ModelCard

COLUMNS: Final = ("model", "description", "parameters", "clean", "PGD-20", "express")

CAPTION: Final = (
    "Robust accuracy at L∞ 8/255 on the stated number of images: PGD-20 on the first of the test set, express on the "
    "first of the embedded sample. These are different images."
)


def row(card: ModelCard) -> tuple[str, ...]:
    """Return the row of a card; robust accuracies are at L∞ 8/255 and say on how many images, empty if not measured."""
    express = card.measurements.get("express")
    return (
        card.name,
        card.title,
        f"{card.parameters:,}",
        f"{card.clean_accuracy:.1%}",
        f"{card.robust_accuracy:.1%} of {card.robust_images:,}",
        f"{express['robust_accuracy']:.1%} of {express['images']:,}" if express else "",
    )
