"""Builds the straight-through fixes that the functions of a model need."""

from typing import Final

from torch import Tensor

from robustassay.defenses.defended import adaptive
from robustassay.doctor.checkpoints import repeated_layers
from robustassay.doctor.gradient_fixes import StraightThrough
from robustassay.doctor.probe_set import ProbeSet
from robustassay.target.batching import LANES

UNSUITABLE: Final = (RuntimeError, TypeError, AttributeError, ValueError, LookupError, AssertionError, ArithmeticError)
"""Errors of a model that cannot run under other rules."""


def straight_through(probes: ProbeSet) -> list[tuple[StraightThrough, str]]:
    """Build the straight-through fixes whose rules this model's functions need."""
    few = probes.x0[:LANES].to(probes.target.dtype)
    repeated = repeated_layers(probes.target, few)
    plain = _rules_of(StraightThrough(), probes, few)
    soft = _rules_of(StraightThrough(soft=True), probes, few)
    found = [(StraightThrough(repeated=repeated), plain)] if plain else []
    if soft:
        found.append((StraightThrough(soft=True, repeated=repeated), soft))
    if "inner gradient" in plain:
        found.append((StraightThrough(unroll=True), plain))
    return found


def _rules_of(fix: StraightThrough, probes: ProbeSet, x: Tensor) -> str:
    """Name the rules that a pass applies; empty where none is, or where the model cannot run under them."""
    try:
        used = fix.rules_used(adaptive(probes.target.module), x)
    except UNSUITABLE:
        return ""
    return ", ".join(f"{name} ({count} times)" if count > 1 else name for name, count in used.items())
