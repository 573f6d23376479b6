"""The table of results: one line per run, with as many columns as the terminal has room for."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from robustassay.analysis.rates import percent
from robustassay.eps import format_eps, format_norm
from robustassay.printable import escape_lines

if TYPE_CHECKING:
    from robustassay.evaluation import Result

COLUMNS: Final = {
    "model": 1,
    "threat": 6,
    "attack": 2,
    "n": 3,
    "clean": 5,
    "robust": 0,
    "95 % interval": 4,
    "attack success": 8,
    "gradients/image": 10,
    "seconds": 9,
    "evidence": 7,
}
"""The columns in their order; those with the highest numbers are dropped first where the terminal is narrow."""

TEXTS: Final = ("model", "threat", "attack", "evidence")
FRAME: Final = 3
"""Characters between two columns."""

FOLDED: Final = 18
"""Before an essential column is dropped, a longer model name is folded to about this width."""

ESSENTIAL: Final = 5
"""Columns up to this number are essential."""


def result_table(results: "Sequence[Result]", width: int) -> Table:
    """Return a table that fits into a width; without room for the threat, a title says what all runs share."""
    lines = [dict(zip(COLUMNS, line(result), strict=True)) for result in results]
    table = fitted(lines, COLUMNS, width, TEXTS)
    if "threat" not in (column.header for column in table.columns):
        table.title = Text("; ".join(dict.fromkeys(row["threat"] for row in lines)))
    return table


def fitted(lines: Sequence[dict[str, str]], columns: dict[str, int], width: int, texts: Sequence[str]) -> Table:
    """Return a table without the columns for which there is no room; the two most important always stay."""
    widths = {name: max(cell_len(name), *(cell_len(row[name]) for row in lines)) + FRAME for name in columns}
    kept = sorted(columns, key=lambda name: columns[name])
    while len(kept) > 2 and sum(widths[name] for name in kept) + 1 > width:
        if columns[kept[-1]] <= ESSENTIAL:
            widths[kept[1]] = min(widths[kept[1]], FOLDED + FRAME)
            if sum(widths[name] for name in kept) + 1 <= width:
                break
        kept.pop()
    table = Table(box=box.SIMPLE_HEAD)
    for name in (name for name in columns if name in kept):
        table.add_column(name, justify="left" if name in texts else "right", overflow="fold", no_wrap=name != kept[1])
    for row in lines:
        table.add_row(*(Text(escape_lines(row[name])) for name in columns if name in kept))
    return table


def numbers(result: "Result") -> dict[str, Any]:
    """Return the numbers of a run, or of the worst case over several, as plain values."""
    spec = (next(iter(result.parts.values())) if result.parts else result).manifest["spec"]
    attack = {"name": "worst case", "of": list(result.parts)} if result.parts else spec["attack"]
    return {
        "model": spec["model"]["name"],
        "data": spec["data"]["name"],
        "threat": spec["threat"],
        "attack": attack,
        "samples": len(result.records),
        "clean_accuracy": _number(result.clean_accuracy),
        "robust_accuracy": _number(result.robust_accuracy),
        "interval": list(result.interval),
        "attack_success_rate": _number(result.attack_success_rate),
        "invalid_claims": result.invalid_claims,
        "doubtful": len(result.doubtful),
        "flags": result.flags,
        "notes": result.notes,
        "assessment": result.assessment,
        "stages": result.stages,
        "evidence": result.evidence.to_json(),
        "random_protocols": None if result.random_protocols is None else result.random_protocols.to_json(),
        "adaptive": result.manifest.get("adaptive"),
        "key": result.manifest.get("key"),
    }


def line(result: "Result") -> list[str]:
    """Return the cells of one run."""
    found = numbers(result)
    threat = found["threat"]
    goal = f" {threat['target']}" if threat["target"] else ""
    low, high = found["interval"]
    return [
        found["model"],
        f"{format_norm(threat['norm'])} {format_eps(threat['eps'])}{goal}",
        found["attack"]["name"],
        f"{found['samples']}",
        percent(result.clean_accuracy),
        percent(result.robust_accuracy),
        f"{percent(low)} - {percent(high)}" if found["samples"] else "–",
        percent(result.attack_success_rate),
        f"{result.records['backwards'].mean():.1f}" if found["samples"] else "–",
        f"{result.records['seconds'].sum():.1f}",
        _evidence(result),
    ]


def _number(rate: float) -> float | None:
    """Return a rate for JSON, which knows no NaN."""
    return None if rate != rate else rate


def _evidence(result: "Result") -> str:
    """Write the grade of a result and the share of its self-test in few words."""
    rate = result.self_test.rate
    return result.evidence.label + (f", self-test {rate.count}/{rate.total}" if rate.total else ", no self-test")
