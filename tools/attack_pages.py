"""Writes docs/attacks.md and the table of attacks in README.md.

    python -m tools.attack_pages

Facts come from the attack classes, numbers from the pages that `make crosscheck`, `make crosscheck-queries` and
`benchmarks/compare_autoattack.py` wrote.
"""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from robustassay import attacks
from robustassay.attacks.attack import Attack
from robustassay.eps import format_norm
from robustassay.registry import lookup, setting_texts, spell

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
PAGE: Final = DOCS / "attacks.md"
README: Final = DOCS.parent / "README.md"
SEES: Final = {"GradientAccess": "gradients", "ScoreAccess": "scores", "DecisionAccess": "labels"}
GROUPS: Final = {
    "gradients, within a radius": ("GradientAccess", False),
    "gradients, nearest point": ("GradientAccess", True),
    "scores, within a radius": ("ScoreAccess", False),
    "scores, nearest point": ("ScoreAccess", True),
    "labels, within a radius": ("DecisionAccess", False),
    "labels, nearest point": ("DecisionAccess", True),
}

FOLDERS: Final = {
    "gradient": "gradients, within a radius",
    "nearest": "gradients, nearest point",
    "score": "scores",
    "decision": "labels",
    "transfer": "another model",
    "baseline": "nothing",
}
"""Rows of README's table, by the folder of an attack's file."""

BEGIN: Final = "<!-- attacks: python -m tools.attack_pages -->"
END: Final = "<!-- /attacks -->"

NOTATION: Final = """
x0: the clean image; x: the present one; y: its label, or the target
z(x): logits; p(x) = softmax(z(x)); g: gradient of the loss at x, in the direction that helps the attacker
L: cross-entropy of the true label, or minus that of the target: the attacker increases it
m(x): margin, z_y minus the best other logit (targeted: best other minus z_y); the goal is reached below 0
P: the nearest point of the eps-ball inside the pixel box [0, 1]
step(g, a): the step of length a that increases L fastest: a * sign(g) under L∞, a * g / |g|_2 under L2,
            all of a on the steepest values, each up to its room, under L1
"""

HEAD: Final = """# Attacks

Made by `python -m tools.attack_pages` from the attack classes: {count} attacks. `assay list attacks` prints the same
names. Settings follow a name, as in `pgd:steps=100,restarts=5`, or are given to the class, as in
`robustassay.attacks.PGD(steps=100)`. The settings of an attack inside an attack are written in parentheses, as in
`"transfer:attack=mim(steps=5,decay=0.5)"`; put quotes around it in a shell.

An attack **within a radius** stops at its first success in the eps-ball. An attack that seeks the **nearest point**
goes on, and succeeds if the nearest point it found lies within eps. **Sees** is what it may ask the model for: labels;
scores, and so labels; or gradients, and so both. Every claimed success is [verified](verification.md).

Every attack that searches is tested against closed-form answers: on models whose exact distance is known it must
succeed at a stated factor above it and never below (`tests/attacks/test_attacks.py`). The numbers below compare it
with other libraries where they have it: [gradient attacks](crosscheck.md), [black-box attacks](queries.md),
[AutoAttack](autoattack.md).

## Notation

```text
{notation}
```
"""


def main() -> None:
    """Write the page and README's table, where they have changed."""
    for path, text in ((PAGE, page()), (README, renewed(README.read_text()))):
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def own_attacks() -> dict[str, type[Any]]:
    """Return the attacks of this package by name; those of plug-ins are documented by their authors."""
    known = {name: lookup("attack", name) for name in attacks.attack_names()}
    return {name: cls for name, cls in known.items() if cls.__module__.startswith("robustassay.")}


def renewed(readme: str) -> str:
    """Return README with a new table of attacks between its markers."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError("README.md lacks the markers of the table of attacks")
    return f"{before}{BEGIN}\n{table(own_attacks())}{END}{after}"


def table(ours: dict[str, type[Any]]) -> str:
    """List the attacks by what the attacker sees."""
    rows: dict[str, list[str]] = {title: [] for title in (*FOLDERS.values(), "same as the attack inside it")}
    for name, cls in ours.items():
        folder = cls.__module__.split(".")[2]
        wraps = folder != "transfer" and any(isinstance(field.default, Attack) for field in dataclasses.fields(cls))
        rows["same as the attack inside it" if wraps else FOLDERS[folder]].append(f"`{name}`")
    lines = [f"| {title} | {' '.join(names)} |" for title, names in rows.items() if names]
    return "\n".join(["| what the attacker sees | attacks |", "|---|---|", *lines]) + "\n"


def page() -> str:
    """Write the page: all attacks, group by group."""
    ours = own_attacks()
    parts = [HEAD.format(count=len(ours), notation=NOTATION.strip()), overview(ours)]
    for title, kind in GROUPS.items():
        members = {name: cls for name, cls in ours.items() if (cls.access.__name__, cls.seeks_minimum) == kind}
        if members:
            parts.append(f"\n## Sees {title}\n")
            parts += [section(name, cls) for name, cls in members.items()]
    return "\n".join(parts)


def overview(ours: dict[str, type[Any]]) -> str:
    """Write one line per attack."""
    lines = ["## Overview\n", "| attack | class | sees | norms | seeks | targets | source |", "|---" * 7 + "|"]
    for name, cls in ours.items():
        seeks = "nearest point" if cls.seeks_minimum else "within eps"
        goals = "yes" if cls.can_target else "no"
        source = ", ".join(sources(cls)) or "own"
        cells = [
            f"[`{name}`](#{name})",
            f"`{cls.__name__}`",
            SEES[cls.access.__name__],
            norms(cls),
            seeks,
            goals,
            source,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def section(name: str, cls: type[Any]) -> str:
    """Write the section of one attack."""
    goals = "targeted and untargeted" if cls.can_target else "untargeted only"
    facts = f"Sees {SEES[cls.access.__name__]}; {norms(cls)}; {goals}. Source: {', '.join(sources(cls)) or 'own'}."
    facts += f" Follows the details of: {cls.info.reference}." if cls.info.reference else ""
    text = linked(inspect.cleandoc(cls.__doc__ or ""))
    formula = f"```text\n{cls.info.formula}\n```"
    return f"### {name}\n\n{text}\n\n{formula}\n\n{facts}\n\n{settings(cls)}\n{crosschecks(name)}"


def settings(cls: type[Any]) -> str:
    """Write a table of the fields with their defaults and meanings."""
    fields = dataclasses.fields(cls)
    if not fields:
        return "It has no settings.\n"
    texts = setting_texts(cls)
    rows = [f"| `{field.name}` | {' | '.join(default(field.default))} | {texts[field.name]} |" for field in fields]
    return "\n".join(["| setting | type | default | meaning |", "|---|---|---|---|", *rows]) + "\n"


def default(value: Any) -> tuple[str, str]:
    """Return the type and the text of a default."""
    if isinstance(value, Attack):
        return "attack", f"`{spell('attack', value)}`"
    return type(value).__name__, f"`{value}`"


def norms(cls: type[Any]) -> str:
    """Name the norms an attack knows."""
    return " ".join(format_norm(norm.name) for norm in cls.norms)


def sources(cls: type[Any]) -> list[str]:
    """Link the papers of an attack."""
    return [f"[arXiv:{number}](https://arxiv.org/abs/{number})" for number in cls.info.papers]


def linked(text: str) -> str:
    """Make links of the papers that a text names."""
    return re.sub(r"arXiv:(\d{4}\.\d{4,5})", r"[arXiv:\1](https://arxiv.org/abs/\1)", text)


# ------------------------------------------------------------------------------- numbers of other pages


def crosschecks(name: str) -> str:
    """Show the rows that other pages have on an attack."""
    if name in ("autoattack", "express"):
        return against_reference(name)
    shown = ""
    for place, title, header, rows in tables():
        mine = [row for row in rows if belongs(name, row[0]) and at_most_queries(header, row, rows)]
        if mine:
            lines = [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *mine)]
            shown += f"[{title}]({place}.md):\n\n" + "\n".join(lines) + "\n\n"
    return f"Beside other libraries, on {shown}" if shown else "None of the libraries that we compare with has it.\n"


def tables() -> Iterator[tuple[str, str, list[str], list[list[str]]]]:
    """Yield every table that compares libraries, with its page, heading, columns and rows."""
    for place in ("crosscheck", "queries"):
        for part in (DOCS / f"{place}.md").read_text().split("\n## ")[1:]:
            lines = [line for line in part.splitlines() if line.startswith("|")]
            cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
            if cells and "ours" in cells[0]:
                yield place, part.splitlines()[0], cells[0], cells[2:]


def belongs(name: str, label: str) -> bool:
    """Return whether a row is about an attack: `apgd:loss=dlr` and `square Linf` are rows of `apgd` and `square`."""
    return re.split(r"[: ]", label)[0] == name


def at_most_queries(header: list[str], row: list[str], rows: list[list[str]]) -> bool:
    """Return whether a row has the most queries of its table."""
    if "queries" not in header:
        return True
    at = header.index("queries")
    return row[at] == max((other[at] for other in rows), key=lambda count: int(count.replace(",", "")))


def against_reference(name: str) -> str:
    """Write how often the verdicts of an attack are those of AutoAttack's authors, and what they cost."""
    lines = [line for line in (DOCS / "autoattack.md").read_text().splitlines() if line.startswith("| ")]
    header, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    at = header.index(name)
    agree = sorted(float(row[at + 1].rstrip("%")) for row in rows)
    cost = sorted(int(row[header.index(f"cost {name}")].replace(",", "")) for row in rows)
    return (
        f"On {len(rows)} models its verdict is that of the authors' own package on {agree[0]} % to {agree[-1]} % of "
        f"the samples, for {cost[0]:,} to {cost[-1]:,} forward-equivalents per image: [AutoAttack](autoattack.md).\n"
    )


if __name__ == "__main__":
    main()
