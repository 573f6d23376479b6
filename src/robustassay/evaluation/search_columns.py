"""The columns about the search itself: the lowest margin over the queries, and the highest logits before and after."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from robustassay.evaluation.verify import Verdict
from robustassay.records import SCHEMA
from robustassay.target import Ledger

TOP: Final = 5
"""Classes whose logits are recorded."""

BITS: Final = 13
"""Precision of these numbers, four digits: the rest would only make the files larger."""

Numbers = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]


def search_columns(
    ledger: Ledger, clean_logits: Tensor, rows: Tensor, verdict: Verdict, gives_scores: bool
) -> dict[str, Any]:
    """Return the trace of margins and the highest logits; `rows` are those with a claim, which `verdict` is about.

    Where the model gives labels only, margins and logits say nothing, and all lists are empty.
    """
    end_logits = clean_logits.double() if ledger.lowest_margin_logits is None else ledger.lowest_margin_logits.double()
    if len(rows):
        end_logits = end_logits.index_copy(0, rows, torch.from_numpy(verdict.logits).to(rows.device))
    columns = top_logits("clean", clean_logits) | top_logits("adv", end_logits) | _trace(ledger, rows, verdict)
    return columns if gives_scores else {name: [[]] * len(clean_logits) for name in columns}


def top_logits(which: str, logits: Tensor) -> dict[str, Any]:
    """Return the classes with the highest logits, and these logits; of equal ones, the lower class comes first."""
    values, labels = logits.double().sort(dim=1, descending=True, stable=True)
    kept = np.ones((len(logits), min(TOP, logits.shape[1])), dtype=bool)
    return {
        f"{which}_top_labels": _lists(f"{which}_top_labels", labels[:, :TOP].cpu().numpy(), kept),
        f"{which}_top_logits": _lists(f"{which}_top_logits", rounded(values[:, :TOP].cpu().numpy()), kept),
    }


def _trace(ledger: Ledger, rows: Tensor, verdict: Verdict) -> dict[str, Any]:
    """Return the queries after which the lowest margin so far was lower than before, and that margin.

    The trace of a sample with a verified claim ends there. A minimum-norm attack lowers the distance of its claims, not
    the margin: the trace of a sample with a claim is empty, as `improvements` hold the distances.
    """
    queries, found = ledger.trace.lowest_so_far(ledger.queries)
    margin, claimed = rounded(found), rows.cpu().numpy()
    kept = margin < np.column_stack((np.full(len(margin), np.inf), margin[:, :-1]))
    if ledger.seeks_minimum:
        kept[claimed] = False
        return _trace_lists(queries, margin, kept)
    held, end = claimed[verdict.valid], rounded(verdict.margin[verdict.valid])
    claimed_at = ledger.claims.query.cpu().numpy()[held]
    kept[held] &= (queries[held] < claimed_at[:, None]) & (margin[held] > end[:, None])
    one_more = ((0, 0), (0, 1))
    queries, margin, kept = np.pad(queries, one_more), np.pad(margin, one_more), np.pad(kept, one_more)
    queries[held, -1], margin[held, -1], kept[held, -1] = claimed_at, end, True
    return _trace_lists(queries, margin, kept)


def _trace_lists(queries: Numbers, margin: Numbers, kept: Booleans) -> dict[str, Any]:
    return {
        "trace_queries": _lists("trace_queries", queries, kept),
        "trace_margins": _lists("trace_margins", margin, kept),
    }


def _lists(column: str, values: npt.NDArray[Any], kept: Booleans) -> pa.ListArray:
    """Return one list per row, of the values that are kept."""
    offsets = np.concatenate(([0], kept.sum(1).cumsum())).astype(np.int32)
    kind = SCHEMA.field(column).type
    return pa.ListArray.from_arrays(offsets, pa.array(values[kept]).cast(kind.value_type), type=kind)


def rounded(values: Numbers) -> Numbers:
    """Round to `BITS` binary digits."""
    mantissa, exponent = np.frexp(values)
    nearest: Numbers = np.ldexp(np.rint(mantissa * 2**BITS) / 2**BITS, exponent)
    return nearest
