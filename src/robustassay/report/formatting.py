"""Numbers as pages and tables write them."""

import math
import re
from collections.abc import Sequence
from typing import Final

from robustassay.eps import format_eps

MISSING: Final = "–"
FEW: Final = 2
"""Flags that are named where there is little room."""
_NARROW_SPACE: Final = "\u202f"


def percent(value: float) -> str:
    """Write a rate as 43.8 %."""
    return MISSING if math.isnan(value) else f"{100 * value:.1f}{_NARROW_SPACE}%"


def bare_percent(value: float) -> str:
    """Write a rate as 43.8, for columns with the unit in the heading."""
    return MISSING if math.isnan(value) else f"{100 * value:.1f}"


def span(interval: tuple[float, float]) -> str:
    """Write an interval of rates as 34.2–53.9."""
    low, high = interval
    return f"{100 * low:.1f}–{100 * high:.1f}"


def points(interval: tuple[float, float]) -> str:
    """Write the width of an interval of rates in percentage points."""
    low, high = interval
    return f"{100 * (high - low):.1f}"


def fixed(value: float) -> str:
    """Write a number with two decimals, so that columns align."""
    return MISSING if math.isnan(value) else f"{value:,.2f}"


def short(value: float) -> str:
    """Write a large number in three digits: 1.24 million."""
    if math.isnan(value):
        return MISSING
    for size, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{value / size:.3g}{_NARROW_SPACE}{name}"
    return f"{value:,.0f}"


def brief(value: float) -> str:
    """Write a number that a table sorts by, with five significant digits."""
    return f"{value:.5g}"


def signed(value: float) -> str:
    """Write a margin with its sign and two decimals; a small one with one significant digit."""
    return f"{value:+.2f}".replace("-", "−") if abs(value) >= 0.1 else f"{value:+.1g}".replace("-", "−")


def count(many: int, noun: str) -> str:
    """Write 1 sample, 2 samples."""
    return f"{many:,} {noun}" if many == 1 else f"{many:,} {noun}s"


def listed(parts: Sequence[str]) -> str:
    """Write a, b and c; a name with a comma in it is quoted."""
    parts = [f"“{part}”" if ", " in part and len(parts) > 1 else part for part in parts]
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def unit(eps: float) -> int:
    """Return what distances are multiplied by when they are written in the unit of their eps: 255 or 1."""
    return 255 if format_eps(eps).endswith("/255") else 1


def is_hash(value: object) -> bool:
    """Say whether a value is a hash, of which a page shows eight digits."""
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{16,}", value) is not None


def distance(value: float, eps: float) -> str:
    """Write a distance in the unit of its eps."""
    if math.isnan(value):
        return MISSING
    return f"{255 * value:.2f}/255" if unit(eps) > 1 else f"{value:,.3g}"


def few_flags(names: Sequence[str]) -> str:
    """Name a few of many flags in words."""
    shown = [flag(name) for name in names[:FEW]]
    return ", ".join(shown) + (f" and {len(names) - FEW} more" if len(names) > FEW else "")


def flag(name: str) -> str:
    """Write the name of a flag in words: doctor-vanishing-loss as doctor: vanishing loss."""
    if name == "self-test" or re.fullmatch(r"[a-z]+(-[a-z]+)+", name) is None:
        return name
    first, _, rest = name.partition("-")
    return f"doctor: {rest.replace('-', ' ')}" if first == "doctor" else name.replace("-", " ")
