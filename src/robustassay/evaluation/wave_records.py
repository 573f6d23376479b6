"""The columns of the records of one wave."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from robustassay.evaluation.verify import Verdict
from robustassay.target import Ledger
from robustassay.threat import Targeted, labels_of


def outcome_columns(
    ids: Sequence[str], labels: Tensor, ledger: Ledger, clean_logits: Tensor, rows: Tensor, verdict: Verdict
) -> dict[str, Any]:
    """Return the columns that describe what was found; `rows` are those with a claim, which `verdict` is about."""
    n, goal = len(ids), ledger.goal
    redrawn = [None] * n if verdict.redrawn is None else _scatter(rows, verdict.redrawn, n)
    success = verdict.valid & verdict.within_eps
    margin = ledger.lowest_margin.double().index_copy(0, rows, torch.from_numpy(verdict.margin).to(rows.device))
    uint8_ok = [ok if won else None for ok, won in zip(verdict.uint8_ok, success, strict=True)]
    clean_label = labels_of(clean_logits)
    claimed = to_numpy(ledger.claimed)
    valid, problem = _scatter(rows, verdict.valid, n), _scatter(rows, verdict.problem, n)
    for row, why in ledger.rejected.items():
        if valid[row] is None:  # not valid, attacked again, and nothing better was found
            claimed[row], valid[row], problem[row] = True, False, why
    return {
        "sample_id": list(ids),
        "label": to_numpy(labels),
        "target": to_numpy(goal.labels) if isinstance(goal, Targeted) else [None] * n,
        "clean_label": to_numpy(clean_label),
        "clean_confidence": to_numpy(clean_logits.double().softmax(1).amax(1)),
        "clean_ok": to_numpy(clean_label == labels),
        "claimed": claimed,
        "valid": valid,
        "problem": problem,
        "success": [bool(found) for found in _scatter(rows, success, n)],
        "distance": _scatter(rows, verdict.distance, n),
        "adv_label": _scatter(rows, verdict.label, n),
        "adv_confidence": _scatter(rows, verdict.confidence, n),
        "redrawn": redrawn,
        "margin": to_numpy(margin),
        "clean_margin": to_numpy(ledger.clean_margin.double()),
        "uint8_ok": _scatter(rows, uint8_ok, n),
        "claimed_at_iteration": _scatter(rows, to_numpy(ledger.claims.iteration[rows]), n),
        "claimed_at_query": _scatter(rows, to_numpy(ledger.claims.query[rows]), n),
        "improvements": ledger.claims.improvements(ledger.ball.eps),
        "claimed_by": ledger.claimed_by,
    }


def cost_columns(ledger: Ledger, seconds: float) -> dict[str, Any]:
    """Return the cost of each row; time is divided by model passes, with a backward as two forwards."""
    passes = 1.0 + ledger.forwards + 2 * ledger.backwards
    counts = {name: to_numpy(getattr(ledger, name)) for name in ("iterations", "forwards", "backwards", "queries")}
    return {**counts, "seconds": to_numpy(passes.double() / passes.sum() * seconds)}


def to_numpy(values: Tensor) -> Any:
    """Return a tensor as an array."""
    return values.cpu().numpy()


def _scatter(rows: Tensor, values: Sequence[Any] | Any, n: int) -> list[Any]:
    """Return a column with values at their rows and None elsewhere."""
    column: list[Any] = [None] * n
    for row, value in zip(rows.tolist(), values, strict=True):
        column[row] = value
    return column
