"""Writes docs/defenses.md from what the cards say of defended models.

python -m tools.defenses_page
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robustassay import models
from robustassay.analysis.compare import mcnemar
from robustassay.eps import parse_eps

PAGE = Path(__file__).resolve().parent.parent / "docs" / "defenses.md"
NAIVE = {"own_gradient": "own gradient", "unaware": "unaware", "one_draw": "one draw"}
BROKEN, LEVEL = 0.1, 0.05

HEAD = """# What a defense is worth against who does not know of it, and against who does

Made by `python -m tools.measure_defenses` from the model cards: the first {images} images of cifar10-1k, `{attack}` at
its defaults, L-infinity, accuracy in %. Every success was verified; of a model that draws random numbers, by what most
of 64 fresh draws say. The command behind each number is in the card (`assay zoo show MODEL`).

The attackers differ in the gradient they follow, and in how often they look at a random model:

- **own gradient**: what automatic differentiation gives of the defended model. Rounding, and a JPEG file, let none
  through: it is zero, so the attack stays at its random start. assay refuses such a run unless it is told not to.
- **unaware**: that of the model without its defense (`--naive`). Every step is still tried on the defended model, and
  the first that breaks it counts, which is more than a transferred image would get.
- **one draw**: that of a single pass through a random model (`--eot 1`), drawn anew for each step, so that some of the
  noise averages out over the steps. It, and the unaware attacker of a random model, also look at one draw only to see
  whether they have won, and stop at a lucky one; most fresh draws may not agree, and after two more tries the image
  stands. So part of what they leave is their poor look, not their poor gradient.
- **adaptive**: what the defense declares: through the model at the changed image, the change taken for the identity
  (BPDA), or the mean over {draws} draws (EOT).

What a naive attacker leaves and the adaptive one breaks is false security. "Gap" says that, of the images that only one
of the two breaks, so many are the adaptive one's that chance alone does it at most once in 20 (McNemar's exact test).

"""


@dataclass(frozen=True)
class Row:
    """All that is known of one defended model at one radius."""

    defense: str
    model: str
    radius: str
    found: Mapping[str, Mapping[str, Any]]

    def part(self, attacker: str) -> float:
        """Part of the images that stand."""
        return float(self.found[attacker]["robust"] / self.found[attacker]["images"])

    def chance(self, attacker: str) -> float:
        """How often the adaptive attacker would be so far ahead of an equal one, on the same images."""
        cell = self.found[attacker]
        ahead = cell["only_adaptive_breaks"] > cell["only_this_breaks"]
        return mcnemar(cell["only_adaptive_breaks"], cell["only_this_breaks"]) if ahead else 1.0


def main() -> None:
    """Write the page, if it is not what it should be."""
    if not PAGE.exists() or PAGE.read_text() != page():
        PAGE.write_text(page())


def page() -> str:
    """Write all that the cards know."""
    known = list(rows())
    cells = [cell for row in known for cell in row.found.values()]
    images = " or ".join(f"{count:,}" for count in sorted({cell["images"] for cell in cells}))
    draws = " or ".join(str(count) for count in sorted({cell.get("draws", 1) for cell in cells} - {1}))
    attack = " or ".join(sorted({cell["attack"] for cell in cells}))
    heading = ["defense", "model", "radius", "clean", *NAIVE.values(), "adaptive"]
    lines = ["|".join(["", *heading, ""]), "|---" * len(heading) + "|", *map(line, known)]
    told = "".join(f"- {said}\n" for said in (*map(sentence, known), of_its_card("vgg16-rse")))
    return HEAD.format(images=images, draws=draws, attack=attack) + "\n".join(lines) + f"\n\n## What it shows\n\n{told}"


def rows() -> Iterator[Row]:
    """Read the cards, defenses in the order of their names, large radii first."""
    held = [(card.name, card.measurements.get("defended", {})) for card in map(models.card, models.names())]
    for defense in sorted({defense for _, defended in held for defense in defended}):
        for name, defended in held:
            for radius, found in sorted(defended.get(defense, {}).items(), key=size, reverse=True):
                if "adaptive" in found:  # else its case is still being measured
                    yield Row(defense, name, radius, found)


def size(radius_and_found: tuple[str, Any]) -> float:
    """Order radii by what they mean: 12/255 comes after 8/255."""
    return parse_eps(radius_and_found[0].removeprefix("Linf "))


def line(row: Row) -> str:
    """Write one line of the table."""
    clean = row.found["adaptive"]["clean"] / row.found["adaptive"]["images"]
    shown = [f"{row.part(one):.0%}" if one in row.found else "" for one in (*NAIVE, "adaptive")]
    return "|".join(["", f"`{row.defense}`", row.model, row.radius.removeprefix("Linf "), f"{clean:.0%}", *shown, ""])


def sentence(row: Row) -> str:
    """Say which naive attackers see more robustness than there is."""
    tried = {one: row.chance(one) for one in NAIVE if one in row.found}
    fooled = [f"{NAIVE[one]} {row.part(one):.0%} (p = {p:.1g})" for one, p in tried.items() if p < LEVEL]
    close = [f"{NAIVE[one]} {row.part(one):.0%} (p = {p:.1g})" for one, p in tried.items() if p >= LEVEL]
    left = f"{row.part('adaptive'):.0%}"
    adaptive = f"leaves {left}" if row.part("adaptive") < BROKEN else f"leaves {left}, which is not below {BROKEN:.0%}"
    text = f"`{row.defense}` on {row.model} at {row.radius}: the adaptive attack {adaptive}."
    text += f" Gap: {', '.join(fooled)}." if fooled else ""
    return text + (f" No gap: {', '.join(close)}." if close else "")


def of_its_card(name: str) -> str:
    """Say what a card's own two numbers tell of a model that draws random numbers: by one draw, and by many."""
    card = models.card(name)
    express = card.measurements["express"]
    many = f"{express['robust_accuracy']:.1%} of {express['images']}"
    return (
        f"{name} at Linf 8/255: {card.robust_attack.partition(',')[0]}, one answer a step and judged on one, leaves "
        f"{card.robust_accuracy:.1%} of {card.robust_images:,}, and express with EOT {many}: at this radius its noise "
        "does not even stop who does not average."
    )


if __name__ == "__main__":
    main()
