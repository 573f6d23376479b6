"""A result as notebooks show it."""

from html import escape
from typing import TYPE_CHECKING

from robustassay.analysis.rates import percent

if TYPE_CHECKING:
    from robustassay.evaluation.result import Result


def to_html(result: "Result") -> str:
    """Return a small table: one line per attack, the worst case of several, and the warnings below."""
    lines = [_line(name, part) for name, part in result.parts.items()]
    lines.append(_line("worst case" if result.parts else result.manifest["spec"]["attack"]["name"], result))
    headings = ("attack", "n", "clean", "robust", "95 % interval", "evidence")
    head = "".join(f"<th style='text-align:left'>{heading}</th>" for heading in headings)
    notes = "".join(f"<li><b>{escape(name)}</b>: {escape(text)}</li>" for name, text in result.flags.items())
    notes += "".join(f"<li>{escape(note)}</li>" for note in result.notes)
    warnings = f"<ul>{notes}</ul>" if notes else ""
    title, below = escape(result.title), escape(result.assessment)
    return f"<div><b>{title}</b><table><tr>{head}</tr>{''.join(lines)}</table>{warnings}<p>{below}</p></div>"


def _line(name: str, result: "Result") -> str:
    low, high = result.interval
    cells = (
        name,
        f"{len(result.records):,}",
        percent(result.clean_accuracy),
        percent(result.robust_accuracy),
        f"{percent(low)} to {percent(high)}",
        result.evidence.label,
    )
    return "<tr>" + "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in cells) + "</tr>"
