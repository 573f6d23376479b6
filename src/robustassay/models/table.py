"""The table of the zoo: one row per card, for the command line and the README."""

from typing import Final

from robustassay.models.card import ModelCard

COLUMNS: Final = ("model", "description", "parameters", "clean", "PGD-20", "express", "AutoAttack")

CAPTION: Final = (
    "Robust accuracy at L∞ 8/255 on the stated number of images: PGD-20 on the first of the test set, express and "
    "AutoAttack on the first of the embedded sample. These are different images."
)


def row(card: ModelCard) -> tuple[str, ...]:
    """Return the row of a card; robust accuracies are at L∞ 8/255 and say on how many images, empty if not measured."""
    return (
        card.name,
        card.title,
        f"{card.parameters:,}",
        f"{card.clean_accuracy:.1%}",
        f"{card.robust_accuracy:.1%} of {card.robust_images:,}",
        *(_accuracy(card, attack) for attack in ("express", "autoattack")),
    )


def _accuracy(card: ModelCard, attack: str) -> str:
    found = card.measurements.get(attack)
    return f"{found['robust_accuracy']:.1%} of {found['images']:,}" if found else ""
