"""Cells of the tables with the plain commands that give the same counts."""

from typing import Final

import pandas as pd

from robustassay.eps import format_eps
from robustassay.studies.dong2020.attacks import ATTACKS, QUERY_GROUPS, AttackGroup
from robustassay.studies.dong2020.defenses import substitute_for
from robustassay.studies.dong2020.measurements import DongMeasurements
from robustassay.studies.page import Table
from robustassay.threat import L2

CELLS: Final[tuple[tuple[str, AttackGroup, str, int, bool], ...]] = (
    ("Res-56", "white-box", "FGSM", 0, False),
    ("PGD-AT", "white-box", "BIM", 0, False),
    ("TRADES", "transfer", "MIM", 0, False),
    ("ADP", "white-box", "MIM", 0, False),
    ("JPEG", "transfer", "DIM", 0, False),
    ("Convex", "white-box", "BIM", 1, False),
    ("ADP", "white-box", "DeepFool", 0, False),
    ("Convex", "white-box", "BIM", 1, True),
    ("JPEG", "score", "NES", 0, False),
)
"""Row, attack, number of the norm, and whether targeted: some of every kind."""


def spot_checks(measured: DongMeasurements) -> Table:
    """List these cells of networks for small images, where their runs exist."""
    entries = [] if measured.photographs else [entry for cell in CELLS for entry in _entry(measured, *cell)]
    lines = tuple((entry["cell"], entry["count"], f"`{entry['command']}`") for entry in entries)
    heading = ("cell", "images not broken, or target reached", "command")
    title = "Cells to recompute by themselves: these commands give the same counts"
    return Table("spot-checks", title, heading, lines, pd.DataFrame(entries), printed=False)


def _entry(
    measured: DongMeasurements, label: str, group: AttackGroup, name: str, norm_at: int, targeted: bool
) -> list[dict[str, str]]:
    row = next((row for row in measured.defenses if row.label == label), None)
    attack = next(attack for attack in ATTACKS if (attack.group, attack.name) == (group, name))
    norm, settings = measured.norms[norm_at], measured.settings
    curve = None if row is None else measured.fixed(label, attack, norm, targeted)
    if row is None or curve is None:
        return []
    rate = curve.at(norm.eps)
    source = substitute_for(row.model) if group == "transfer" else ""
    words = [f'assay eval "{row.model}" --attack "{settings.fill(attack.specifications(norm)[-1], source)}"']
    words += [f"--norm {norm.name} --eps {norm.eps:g}" if isinstance(norm, L2) else f"--eps {format_eps(norm.eps)}"]
    words += ["--targeted random"] * targeted + [f"--limit {len(curve.breaks_at)} --eot {settings.eot}"]
    words += [f"--query-budget {settings.queries}"] * (group in QUERY_GROUPS)
    goal = ", targeted" if targeted else ""
    return [
        {
            "cell": f"{label}, {group} {name}, {norm.name.replace('inf', '∞')}{goal}",
            "count": f"{rate.count} of {rate.total}",
            "command": " ".join(words),
        }
    ]
