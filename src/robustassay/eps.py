"""Parses and formats radii of perturbations, such as 0.5 or 8/255, and the names of norms."""

import math
from fractions import Fraction
from typing import Any

from robustassay.errors import BadRequest


def parse_eps(eps: Any) -> float:
    """Parse a radius such as 0.5, "0.5", "8/255" or "0.5/255"."""
    try:
        value = float(_fraction(eps)) if isinstance(eps, str) else float(eps)
    except (ValueError, TypeError, ZeroDivisionError, OverflowError):
        raise BadRequest(f"eps must be a number or a fraction such as 8/255, not {eps!r}.") from None
    if not (value > 0 and math.isfinite(value)):
        raise BadRequest(f"eps must be a positive number on the [0, 1] pixel scale, such as 8/255, not {eps!r}.")
    return value


def format_eps(eps: float) -> str:
    """Format a radius so that it parses back to the same number: as 0.5, or as 8/255 if that is shorter."""
    short, levels = f"{eps:.4g}", round(eps * 255)
    if float(short) == eps:
        return short
    return f"{levels}/255" if levels / 255 == eps else repr(eps)


def round_eps(eps: float) -> str:
    """Format a radius for people: as 8/255, or with four digits."""
    text = format_eps(eps)
    return text if "/" in text else f"{eps:.4g}"


def format_norm(name: str) -> str:
    """Write the name of a norm for people: L∞ for Linf."""
    return name.replace("Linf", "L∞")


def _fraction(text: str) -> Fraction:
    above, _, below = text.partition("/")
    over, under = float(above), float(below or 1)  # Fraction("1e999999999") would never finish
    if not (math.isfinite(over) and math.isfinite(under) and under):
        raise ValueError
    if not over:
        return Fraction(0)
    return Fraction(above.strip()) / Fraction(below.strip() or 1)
