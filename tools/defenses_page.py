"""Writes docs/defenses.md from the measurements of defended models in the cards.

python -m tools.defenses_page
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robustassay import models
from robustassay.analysis.compare import mcnemar
from robustassay.eps import format_norm, parse_eps

PAGE = Path(__file__).resolve().parent.parent / "docs" / "defenses.md"
NON_ADAPTIVE = {"own_gradient": "own gradient", "unaware": "non-adaptive", "one_draw": "one draw"}
BROKEN, LEVEL = 0.1, 0.05

HEAD = """# Defenses under adaptive and non-adaptive attacks

Written by `python -m benchmarks.measure_defenses` from the model cards: the first {images} images of cifar10-1k,
`{attack}` with its default settings, L∞, accuracy in %. Every success was verified; for a random model, by the
majority of 64 fresh draws. The card holds the command behind each number (`assay zoo show MODEL`).

The attacks differ in the gradient that they use, and in the number of draws per gradient of a random model:

- **own gradient**: automatic differentiation of the defended model. Rounding and JPEG have a gradient of zero, so the
  attack stays at its random start. assay refuses such a run by default.
- **non-adaptive**: the gradient of the model without its defense (`--naive`). Each iterate is tested on the defended
  model, and the first adversarial one counts. This is stronger than transferring the final image.
- **one draw**: the gradient of a single pass through a random model (`--eot 1`), drawn anew per step, so that some of
  the noise averages out over the steps. This attack, and the non-adaptive one on a random model, also test each iterate
  with one draw only. They stop at the first draw that is misclassified, which most fresh draws may not confirm; after
  two more attempts the image counts as robust. So part of the gap comes from testing with one draw, not from the
  gradient.
- **adaptive**: what the defense declares: the gradient of the model at the transformed image, with the transform
  replaced by the identity (BPDA), or the mean over {draws} draws (EOT).

Images that only the adaptive attack breaks count as robust under the non-adaptive attack, although they are not. "Gap"
means: among the images that only one of the two attacks breaks, the adaptive attack breaks significantly more
(McNemar's exact test, p < 0.05). A defense counts as broken if the adaptive attack leaves less than 10 %.

"""


@dataclass(frozen=True)
class Row:
    """The measurements of one defended model at one radius."""

    defense: str
    model: str
    radius: str
    found: Mapping[str, Mapping[str, Any]]

    def part(self, attacker: str) -> float:
        """Return the robust accuracy."""
        return float(self.found[attacker]["robust"] / self.found[attacker]["images"])

    def p_value(self, attacker: str) -> float:
        """Return the p-value of the adaptive attack's lead over this attack on the same images."""
        cell = self.found[attacker]
        ahead = cell["only_adaptive_breaks"] > cell["only_this_breaks"]
        return mcnemar(cell["only_adaptive_breaks"], cell["only_this_breaks"]) if ahead else 1.0


def main() -> None:
    """Write the page if it changed."""
    if not PAGE.exists() or PAGE.read_text() != page():
        PAGE.write_text(page())


def page() -> str:
    """Return the text of the page."""
    known = list(rows())
    cells = [cell for row in known for cell in row.found.values()]
    images = " or ".join(f"{count:,}" for count in sorted({cell["images"] for cell in cells}))
    draws = " or ".join(str(count) for count in sorted({cell.get("draws", 1) for cell in cells} - {1}))
    attack = " or ".join(sorted({cell["attack"] for cell in cells}))
    heading = ["defense", "model", "radius", "clean", *NON_ADAPTIVE.values(), "adaptive"]
    lines = ["|".join(["", *heading, ""]), "|---" * len(heading) + "|", *map(line, known)]
    sentences = "".join(f"- {text}\n" for text in (*map(sentence, known), of_its_card("vgg16-rse")))
    head = HEAD.format(images=images, draws=draws, attack=attack)
    return head + "\n".join(lines) + f"\n\n## Results\n\n{sentences}"


def rows() -> Iterator[Row]:
    """Read the cards: defenses by name, large radii first."""
    held = [(card.name, card.measurements.get("defended", {})) for card in map(models.card, models.names())]
    for defense in sorted({defense for _, defended in held for defense in defended}):
        for name, defended in held:
            for radius, found in sorted(defended.get(defense, {}).items(), key=size, reverse=True):
                if "adaptive" in found:  # otherwise it is still being measured
                    yield Row(defense, name, radius, found)


def size(radius_and_found: tuple[str, Any]) -> float:
    """Return a radius as a number, to sort by."""
    return parse_eps(radius_and_found[0].removeprefix("Linf "))


def line(row: Row) -> str:
    """Return one line of the table."""
    clean = row.found["adaptive"]["clean"] / row.found["adaptive"]["images"]
    shown = [f"{row.part(one):.0%}" if one in row.found else "" for one in (*NON_ADAPTIVE, "adaptive")]
    return "|".join(["", f"`{row.defense}`", row.model, row.radius.removeprefix("Linf "), f"{clean:.0%}", *shown, ""])


def sentence(row: Row) -> str:
    """Say which non-adaptive attacks overestimate the robustness."""
    tried = {one: row.p_value(one) for one in NON_ADAPTIVE if one in row.found}
    gaps = [f"{NON_ADAPTIVE[one]} {row.part(one):.0%} (p = {p:.1g})" for one, p in tried.items() if p < LEVEL]
    close = [f"{NON_ADAPTIVE[one]} {row.part(one):.0%} (p = {p:.1g})" for one, p in tried.items() if p >= LEVEL]
    left = f"{row.part('adaptive'):.0%}"
    adaptive = f"leaves {left} ({'broken' if row.part('adaptive') < BROKEN else 'not broken'})"
    text = f"`{row.defense}` on {row.model} at {format_norm(row.radius)}: the adaptive attack {adaptive}."
    text += f" Gap: {', '.join(gaps)}." if gaps else ""
    return text + (f" No gap: {', '.join(close)}." if close else "")


def of_its_card(name: str) -> str:
    """Compare the two numbers of a random model's card: with one draw and with many."""
    card = models.card(name)
    express = card.measurements["express"]
    many = f"{express['robust_accuracy']:.1%} of {express['images']}"
    return (
        f"{name} at L∞ 8/255: {card.robust_attack.partition(',')[0]} with one draw per step and per decision leaves "
        f"{card.robust_accuracy:.1%} of {card.robust_images:,}, and express with EOT {many}: at this radius an attack "
        "needs no averaging."
    )


if __name__ == "__main__":
    main()
