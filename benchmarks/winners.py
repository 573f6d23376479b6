"""Names the best library of a row; results within 1 % of each other are a tie."""

from collections.abc import Mapping
from typing import Final

TIE: Final = 0.01
"""Relative difference up to which two results are equal."""


def winner(results: Mapping[str, float], higher_is_better: bool = False) -> str:
    """Return "ours", "tie" if another library is as good as ours, or the better library in bold."""
    sign = -1.0 if higher_is_better else 1.0
    best = min(results, key=lambda library: sign * results[library])
    margin = TIE * abs(results[best]) + 1e-9
    tied = {library for library, value in results.items() if abs(value - results[best]) <= margin}
    if "ours" not in tied:
        return f"**{best}**"
    return "ours" if tied == {"ours"} else "tie"
