"""The counterparts of Dong et al.'s Table 1 and Table 3."""

import math

import pandas as pd

from robustassay.eps import format_eps
from robustassay.studies.dong2020.attacks import ATTACKS, BenchmarkAttack
from robustassay.studies.dong2020.measurements import DongMeasurements
from robustassay.studies.page import MISSING, Table
from robustassay.threat import Norm


def tables(measured: DongMeasurements) -> list[Table]:
    """Return every table whose runs exist."""
    made = [clean(measured)]
    made += [pointwise(measured, norm, targeted) for targeted in (False, True) for norm in measured.norms]
    return [table for table in made if len(table.frame)]


def clean(measured: DongMeasurements) -> Table:
    """Return Table 1: the defenses and their accuracy on clean images."""
    entries = []
    for row in measured.defenses:
        found = measured.clean(row.label)
        if found is None:
            continue
        low, high = found[0].interval()
        entries.append(
            {
                "defense": row.label,
                "model": row.model + (f" ({row.note})" if row.note else ""),
                "category": row.category,
                "intended_threat": row.intended,
                "accuracy": found[0].value,
                "low": low,
                "high": high,
                "samples": found[0].total,
                "published": row.published,
            }
        )
    lines = tuple(
        (
            *(str(entry[key]) for key in ("defense", "model", "category", "intended_threat")),
            f"{entry['accuracy']:.1%} ({entry['low']:.1%} to {entry['high']:.1%}, n = {entry['samples']})",
            MISSING if entry["published"] is None else f"{entry['published']:.1%}",
        )
        for entry in entries
    )
    heading = ("defense", "model here", "category", "intended threat", "clean accuracy here", "the paper's own model")
    return Table("table1", "Table 1: the defenses and their accuracy on clean images", heading, lines, _frame(entries))


def pointwise(measured: DongMeasurements, norm: Norm, targeted: bool) -> Table:
    """Return Table 3 under one norm: median distance / accuracy at the fixed eps; success where targeted."""
    entries, lines = [], []
    for attack in ATTACKS:
        line = []
        for defense in measured.labels:
            entry = _entry(measured, defense, attack, norm, targeted)
            entries += [entry] if entry else []
            line.append(_pair(entry) if entry else MISSING)
        if set(line) != {MISSING}:
            lines.append((attack.group, attack.name, *line))
    rate = "success rate of targeted attacks" if targeted else "accuracy under untargeted attacks"
    eps, shown = format_eps(norm.eps), norm.name.replace("inf", "∞")
    title = f"median {shown} distance / {rate} at eps {eps}"
    name = "table3" + ("" if norm is measured.norms[0] else f"-{norm.name.lower()}") + ("-targeted" if targeted else "")
    number = "Table 3" if name == "table3" else "As Table 3"
    return Table(name, f"{number}: {title}", ("", "attack", *measured.labels), tuple(lines), _frame(entries))


def _entry(
    measured: DongMeasurements, defense: str, attack: BenchmarkAttack, norm: Norm, targeted: bool
) -> "dict[str, object] | None":
    over_eps = measured.over_eps(defense, attack, norm, targeted)
    fixed = measured.fixed(defense, attack, norm, targeted)
    if fixed is None:
        return None
    rate = fixed.at(norm.eps)
    low, high = rate.interval()
    return {
        "group": attack.group,
        "attack": attack.name,
        "defense": defense,
        "median_distance": math.nan if over_eps is None else over_eps.median,
        "median_samples": 0 if over_eps is None else len(over_eps.breaks_at),
        "success" if targeted else "accuracy": rate.value,
        "low": low,
        "high": high,
        "samples": rate.total,
    }


def _pair(entry: "dict[str, object]") -> str:
    median, rate = float(str(entry["median_distance"])), float(str(entry.get("accuracy", entry.get("success"))))
    distance = MISSING if math.isnan(median) else "∞" if math.isinf(median) else f"{median:.3f}"
    return f"{distance} / {rate:.1%}"


def _frame(entries: "list[dict[str, object]]") -> pd.DataFrame:
    return pd.DataFrame(entries)
