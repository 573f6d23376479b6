"""Writes docs/attacks.md: every registered attack with what it does, its source, settings, norms and cross-checks.

    python -m tools.attack_pages

Facts come from the registry, numbers from the pages that `make crosscheck`, `make crosscheck-queries` and
`tools/compare_autoattack.py` wrote.
"""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from robustassay import attacks
from robustassay.registry import lookup
from tools.attack_formulas import FORMULAS, NOTATION

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
PAGE: Final = DOCS / "attacks.md"
SEES: Final = {"GradientAccess": "gradients", "ScoreAccess": "scores", "DecisionAccess": "labels"}
GROUPS: Final = {
    "gradients, within a radius": ("GradientAccess", False),
    "gradients, nearest point": ("GradientAccess", True),
    "scores, within a radius": ("ScoreAccess", False),
    "scores, nearest point": ("ScoreAccess", True),
    "labels, within a radius": ("DecisionAccess", False),
    "labels, nearest point": ("DecisionAccess", True),
}

HEAD: Final = """# Attacks

Made by `python -m tools.attack_pages` from the registry: {count} attacks. `assay list attacks` prints the same names;
settings are written behind a name, as in `pgd:steps=100,restarts=5`, or given to the class, as in
`robustassay.attacks.PGD(steps=100)`.

An attack **within a radius** stops at its first success in the eps-ball; one that seeks the **nearest point** goes on
and succeeds where that lies within eps. **Sees** is what it may ask the model for: labels, scores (and so labels), or
gradients (and so both). Whatever it claims is [judged again](verification.md).

Every attack that searches is held to closed-form answers: on models whose exact distance is known it must succeed at a
stated factor above it and never below (`tests/attacks/test_attacks.py`). Beside that, the numbers below compare it with
other libraries where they have it: [gradient attacks](crosscheck.md), [black-box attacks](queries.md),
[AutoAttack](autoattack.md).

## Notation

```text
{notation}
```
"""


def main() -> None:
    """Write the page, if it is not what it should be."""
    if not PAGE.exists() or PAGE.read_text() != page():
        PAGE.write_text(page())


def page() -> str:
    """Write all attacks, group by group."""
    known = {name: lookup("attack", name) for name in attacks.attack_names()}
    ours = {name: cls for name, cls in known.items() if cls.__module__.startswith("robustassay.")}
    parts = [HEAD.format(count=len(ours), notation=NOTATION.strip()), overview(ours)]
    for title, kind in GROUPS.items():
        members = {name: cls for name, cls in ours.items() if (cls.access.__name__, cls.seeks_minimum) == kind}
        if members:
            parts.append(f"\n## Sees {title}\n")
            parts += [section(name, cls) for name, cls in members.items()]
    return "\n".join(parts)


def overview(ours: dict[str, type[Any]]) -> str:
    """One line an attack."""
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
    """Everything about one attack."""
    goals = "targeted and untargeted" if cls.can_target else "untargeted only"
    facts = f"Sees {SEES[cls.access.__name__]}; {norms(cls)}; {goals}. Source: {', '.join(sources(cls)) or 'own'}."
    text = (
        f"### {name}\n\n{linked(inspect.cleandoc(cls.__doc__ or ''))}\n\n```text\n{FORMULAS[name]}\n```\n\n{facts}\n\n"
    )
    return text + settings(cls) + "\n" + crosschecks(name)


def settings(cls: type[Any]) -> str:
    """Write a table of the fields with their defaults."""
    fields = dataclasses.fields(cls)
    if not fields:
        return "It has no settings.\n"
    rows = [f"| `{field.name}` | {type(field.default).__name__} | `{field.default}` |" for field in fields]
    return "\n".join(["| setting | type | default |", "|---|---|---|", *rows]) + "\n"


def norms(cls: type[Any]) -> str:
    """Name the norms an attack knows."""
    return " ".join(norm.name for norm in cls.norms)


def sources(cls: type[Any]) -> list[str]:
    """Find the papers that a docstring names."""
    found = dict.fromkeys(re.findall(r"arXiv:(\d{4}\.\d{5})", cls.__doc__ or ""))
    return [f"[arXiv:{number}](https://arxiv.org/abs/{number})" for number in found]


def linked(text: str) -> str:
    """Make links of the papers that a text names."""
    return re.sub(r"arXiv:(\d{4}\.\d{5})", r"[arXiv:\1](https://arxiv.org/abs/\1)", text)


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
    return f"Beside other libraries, on {shown}" if shown else "No library that we compare with has it.\n"


def tables() -> Iterator[tuple[str, str, list[str], list[list[str]]]]:
    """Yield every table that compares libraries, with its page, heading, columns and rows."""
    for place in ("crosscheck", "queries"):
        for part in (DOCS / f"{place}.md").read_text().split("\n## ")[1:]:
            lines = [line for line in part.splitlines() if line.startswith("|")]
            cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
            if cells and "ours" in cells[0]:
                yield place, part.splitlines()[0], cells[0], cells[2:]


def belongs(name: str, label: str) -> bool:
    """Say whether a row is about an attack: `apgd:loss=dlr` and `square Linf` are rows of `apgd` and `square`."""
    return re.split(r"[: ]", label)[0] == name


def at_most_queries(header: list[str], row: list[str], rows: list[list[str]]) -> bool:
    """Of a row for each number of queries, keep the one with most."""
    if "queries" not in header:
        return True
    at = header.index("queries")
    return row[at] == max((other[at] for other in rows), key=lambda count: int(count.replace(",", "")))


def against_reference(name: str) -> str:
    """Say how often AutoAttack's verdicts are those of its authors, and what they cost."""
    lines = [line for line in (DOCS / "autoattack.md").read_text().splitlines() if line.startswith("| ")]
    header, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    at = header.index(name)
    agree = sorted(float(row[at + 1].rstrip("%")) for row in rows)
    cost = sorted(int(row[header.index(f"cost {name}")].replace(",", "")) for row in rows)
    return (
        f"On {len(rows)} models its verdict is that of the authors' own package on {agree[0]} % to {agree[-1]} % of "
        f"the samples, for {cost[0]:,} to {cost[-1]:,} forward-equivalents an image: [AutoAttack](autoattack.md).\n"
    )


if __name__ == "__main__":
    main()
