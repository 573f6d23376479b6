"""The table of the first page as a CSV file: one row per model and threat."""

import csv
import io
from typing import Final

from robustassay.report.site.content import Content
from robustassay.results.models import ModelResult, ThreatRanking

HEADING: Final = (
    *("model", "parameters", "data", "threat", "clean", "robust", "robust_low", "robust_high", "samples"),
    *(
        "rank_best",
        "rank_worst",
        "group",
        "evidence",
        "self_test",
        "in_doubt",
        "warnings",
        "attacks",
        "weights",
        "name",
    ),
)
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")


def table_file(content: Content) -> str:
    """Write every result of a report; rates are fractions of all samples."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(HEADING)
    writer.writerows(_row(content, ranking, one) for ranking in content.rankings for one in ranking.models)
    return file.getvalue()


def _row(content: Content, ranking: ThreatRanking, one: ModelResult) -> list[str | int | float]:
    model, first = content.models[one.model_id], one.first
    low, high = one.robust.interval()
    best, worst = ranking.rank_ranges.get(one.model_id, ("", ""))
    row = [
        *(model.label, model.parameters or "", first.data, one.threat),
        *(round(value, 6) for value in (one.clean.value, one.robust.value, low, high)),
        *(one.robust.total, best, worst, ranking.letters.get(one.model_id, "")),
        *(one.evidence.label, one.evidence.self_test.summary, one.in_doubt, "; ".join(one.warnings)),
        *("; ".join(attack.label for attack in one.counted), str(first.spec["model"].get("weights", "")), model.name),
    ]
    return [_safe(cell) for cell in row]


def _safe(cell: str | int | float) -> str | int | float:
    """A spreadsheet would run a text that begins like a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA_STARTS) else cell
