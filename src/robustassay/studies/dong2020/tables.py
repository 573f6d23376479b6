"""The counterparts of Dong et al.'s Table 1 and Table 3."""

import math

import pandas as pd

from robustassay.eps import format_eps
from robustassay.studies.dong2020.bench import Bench
from robustassay.studies.dong2020.columns import COLUMNS, Column
from robustassay.studies.page import MISSING, Table
from robustassay.threat import Norm


def tables(bench: Bench) -> list[Table]:
    """Make every table whose runs exist."""
    made = [clean(bench)]
    made += [pointwise(bench, norm, targeted) for targeted in (False, True) for norm in bench.norms]
    return [table for table in made if len(table.frame)]


def clean(bench: Bench) -> Table:
    """Make Table 1: the defenses and their accuracy on clean images."""
    entries = []
    for row in bench.rows:
        found = bench.clean(row.label)
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


def pointwise(bench: Bench, norm: Norm, targeted: bool) -> Table:
    """Make Table 3 under one norm: median distance / accuracy at the fixed eps; success where targeted."""
    entries, lines = [], []
    for column in COLUMNS:
        line = []
        for row in bench.labels:
            entry = _entry(bench, row, column, norm, targeted)
            entries += [entry] if entry else []
            line.append(_pair(entry) if entry else MISSING)
        if set(line) != {MISSING}:
            lines.append((column.group, column.name, *line))
    rate = "success rate of targeted attacks" if targeted else "accuracy under untargeted attacks"
    eps, shown = format_eps(norm.eps), norm.name.replace("inf", "∞")
    title = f"median {shown} distance / {rate} at eps {eps}"
    name = "table3" + ("" if norm is bench.norms[0] else f"-{norm.name.lower()}") + ("-targeted" if targeted else "")
    number = "Table 3" if name == "table3" else "As Table 3"
    return Table(name, f"{number}: {title}", ("", "attack", *bench.labels), tuple(lines), _frame(entries))


def _entry(bench: Bench, row: str, column: Column, norm: Norm, targeted: bool) -> "dict[str, object] | None":
    over_eps = bench.over_eps(row, column, norm, targeted)
    fixed = bench.fixed(row, column, norm, targeted)
    if fixed is None:
        return None
    rate = fixed.at(norm.eps)
    low, high = rate.interval()
    return {
        "group": column.group,
        "attack": column.name,
        "defense": row,
        "median_distance": math.nan if over_eps is None else over_eps.median,
        "median_samples": 0 if over_eps is None else len(over_eps.falls_at),
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
