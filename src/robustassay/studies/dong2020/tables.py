"""The counterparts of Dong et al.'s Table 1 and Table 3."""

import math
from itertools import product

import pandas as pd

from robustassay.analysis.rates import Rate
from robustassay.eps import round_eps
from robustassay.studies.dong2020.attacks import ATTACKS, BenchmarkAttack
from robustassay.studies.dong2020.measurements import DongMeasurements
from robustassay.studies.dong2020.published import ROWS, TABLE3
from robustassay.studies.dong2020.spot_checks import spot_checks
from robustassay.studies.page import MISSING, Table, either
from robustassay.threat import L2, Norm


def tables(measured: DongMeasurements) -> list[Table]:
    """Return every table whose runs exist."""
    made, shown = [clean(measured)], measured.with_some_rows
    made += [pointwise(shown, norm, targeted) for targeted in (False, True) for norm in measured.norms]
    return [table for table in (*made, by_steps(measured), spot_checks(measured)) if len(table.frame)]


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
                "model": row.model,
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
    """Return Table 3 under one norm: median distance / accuracy at the fixed eps; success where targeted.

    Where the paper prints numbers, they stand below ours. Without any search of distances only rates are shown.
    """
    lines, printed = [], _is_printed(measured, norm, targeted)
    by_attack = {
        attack: [_entry(measured, row, attack, norm, targeted) for row in measured.labels] for attack in ATTACKS
    }
    entries = [entry for found in by_attack.values() for entry in found if entry]
    searched = printed or any(entry["median_samples"] for entry in entries)
    for attack, found in by_attack.items():
        if any(found):
            cells = (_cell(entry, searched, 3 + measured.photographs) if entry else MISSING for entry in found)
            lines.append((attack.group, attack.name, *cells))
        if any(found) and printed and (attack.group, attack.name, ROWS[0]) in TABLE3:
            published = [TABLE3.get((attack.group, attack.name, row)) for row in measured.labels]
            shown = [f"{pair[0]:.3f} / {pair[1]:.1%}" if pair else MISSING for pair in published]
            lines.append(("", f"{attack.name}, the paper", *shown))
    rate = "success rate of targeted attacks" if targeted else "accuracy under untargeted attacks"
    unit = "normalised " if measured.photographs and isinstance(norm, L2) else ""
    eps, shown_norm = round_eps(norm.eps), unit + norm.name.replace("inf", "∞")
    title = f"median {shown_norm} distance / {rate} at eps {eps}" if searched else f"{rate} at {shown_norm} {eps}"
    name = "table3" + ("" if norm is measured.norms[0] else f"-{norm.name.lower()}") + ("-targeted" if targeted else "")
    number = "Table 3" if printed else "As Table 3"
    heading = ("", "attack", *measured.labels)
    return Table(name, f"{number}: {title}", heading, tuple(lines), _frame(entries), _sizes(entries))


def _sizes(entries: "list[dict[str, object]]") -> tuple[str, ...]:
    """Say on how many images a table rests, and what a rate of so few can be."""
    sizes, medians = (sorted({int(str(entry[name])) for entry in entries}) for name in ("samples", "median_samples"))
    if not sizes:
        return ()
    low, high = Rate(sizes[0] // 2, sizes[0]).interval()
    n, searched = (either(size for size in found if size) for found in (sizes, medians))
    less = f", medians of {searched}" if searched not in ("", n) else ""
    return (
        f"n = {n} images{less}. The CSV has the 95 % interval of every rate; that of {sizes[0] // 2} of {sizes[0]} "
        f"images is {low:.0%} to {high:.0%}.",
    )


def by_steps(measured: DongMeasurements) -> Table:
    """Return the rates of transfer attacks by their iterations on the substitute model: the numbers of its figures."""
    entries = [
        {
            "attack": attack.name, "norm": norm.name, "targeted": targeted, "defense": row, "steps": steps,
            "success" if targeted else "accuracy": rate.value, "low": rate.interval()[0], "high": rate.interval()[1],
            "samples": rate.total,
        }
        for attack, norm, targeted, row in product(ATTACKS, measured.norms, (False, True), measured.labels)
        for steps, rate in measured.over_steps(row, attack, norm, targeted).items()
    ]  # fmt: skip
    title = "Transfer attacks by iterations on the substitute model, at the fixed eps"
    return Table("transfer-strength", title, (), (), _frame(entries), printed=False)


def _is_printed(measured: DongMeasurements, norm: Norm, targeted: bool) -> bool:
    return not (measured.photographs or targeted) and norm is measured.norms[0]


def _entry(
    measured: DongMeasurements, defense: str, attack: BenchmarkAttack, norm: Norm, targeted: bool
) -> "dict[str, object] | None":
    over_eps = measured.over_eps(defense, attack, norm, targeted)
    fixed = measured.fixed(defense, attack, norm, targeted)
    if fixed is None:
        return None
    rate = fixed.at(norm.eps)
    low, high = rate.interval()
    entry: dict[str, object] = {
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
    if _is_printed(measured, norm, targeted):
        published = TABLE3.get((attack.group, attack.name, defense), (math.nan, math.nan))
        entry |= {"published_median_distance": published[0], "published_accuracy": published[1]}
    return entry


def _cell(entry: "dict[str, object]", searched: bool, digits: int) -> str:
    median, rate = float(str(entry["median_distance"])), float(str(entry.get("accuracy", entry.get("success"))))
    distance = MISSING if math.isnan(median) else "∞" if math.isinf(median) else f"{median:.{digits}f}"
    return f"{distance} / {rate:.1%}" if searched else f"{rate:.1%}"


def _frame(entries: "list[dict[str, object]]") -> pd.DataFrame:
    return pd.DataFrame(entries)
