"""Cells of the tables with the plain commands that give the same counts."""

from collections.abc import Sequence
from itertools import product
from typing import Final, TypeVar

import pandas as pd

from robustassay.eps import format_eps
from robustassay.studies.dong2020.attacks import ATTACKS, QUERY_GROUPS, BenchmarkAttack
from robustassay.studies.dong2020.defenses import ADDED, BenchmarkDefense, substitute_for
from robustassay.studies.dong2020.measurements import DongMeasurements
from robustassay.studies.page import Table
from robustassay.threat import L2, Norm

T = TypeVar("T")

CELLS: Final = 5
"""Cells of each table, along its diagonal."""


def spot_checks(measured: DongMeasurements) -> Table:
    """List cells of each table, but none of rows that `--models` added: their models may need files."""
    rows = [row for row in measured.defenses if row.category != ADDED]
    entries = []
    for number, (targeted, norm) in enumerate(product((False, True), measured.norms)):
        for row, attack in _diagonal(measured, rows[number:] + rows[:number], norm, targeted):
            entries.append(_entry(measured, row, attack, norm, targeted))
    lines = tuple((entry["cell"], entry["clean"], entry["count"], f"`{entry['command']}`") for entry in entries)
    heading = ("cell", "clean", "not broken; targeted: target reached", "command")
    title = "Cells to recompute by themselves"
    notes = (
        "The commands give the same counts on the same device. On another one some images differ, as a search in "
        "float16 has other last digits and takes a few more steps, and random models draw other numbers.",
        *("DATA is what the command at the top of this page names.",) * measured.photographs,
    )
    return Table("spot-checks", title, heading, lines, pd.DataFrame(entries), notes, printed=False)


def _diagonal(
    measured: DongMeasurements, rows: list[BenchmarkDefense], norm: Norm, targeted: bool
) -> list[tuple[BenchmarkDefense, BenchmarkAttack]]:
    """Return cells of one table in different rows and of different attacks."""

    def exists(row: BenchmarkDefense, attack: BenchmarkAttack) -> bool:
        return measured.fixed(row.label, attack, norm, targeted) is not None

    attacks = [attack for attack in ATTACKS if any(exists(row, attack) for row in rows)]
    if not attacks:
        return []
    cells = dict.fromkeys(zip(_spread(rows), _spread(attacks), strict=True))
    return [cell for cell in cells if exists(*cell)]


def _spread(choices: Sequence[T]) -> list[T]:
    """Take some of the choices at equal distances, the first and the last among them."""
    return [choices[round(at * (len(choices) - 1) / (CELLS - 1))] for at in range(CELLS)]


def _entry(
    measured: DongMeasurements, row: BenchmarkDefense, attack: BenchmarkAttack, norm: Norm, targeted: bool
) -> dict[str, str]:
    """Write one cell with its count and command; normalised L2 is given to `assay eval` as plain L2."""
    settings, curve = measured.settings, measured.fixed(row.label, attack, norm, targeted)
    assert curve is not None  # only such cells are chosen
    rate, correct = curve.at(norm.eps), curve.clean_ok
    source = substitute_for(row.model, measured.photographs) if attack.group == "transfer" else ""
    words = [f'assay eval "{row.model}"'] + ["--data DATA"] * measured.photographs
    words += [f'--attack "{settings.fill(attack.specifications(norm)[-1], source)}"']
    radius = norm.eps * measured.units.get(row.label, 1.0)
    words += [f"--norm L2 --eps {radius!r}" if isinstance(norm, L2) else f"--eps {format_eps(norm.eps)}"]
    words += ["--targeted random"] * targeted + [f"--limit {rate.total} --eot {settings.eot}"]
    words += [f"--query-budget {settings.queries}"] * (attack.group in QUERY_GROUPS)
    words += ["--self-test 0"]  # as in studies; it changes no record
    goal = ", targeted" if targeted else ""
    return {
        "cell": f"{row.label}, {attack.group} {attack.name}, {norm.name.replace('inf', '∞')}{goal}",
        "clean": f"{int(correct.sum())} of {len(correct)}",
        "count": f"{rate.count} of {rate.total}",
        "command": " ".join(words),
    }
