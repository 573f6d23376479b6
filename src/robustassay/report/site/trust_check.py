"""What a check of all runs says: what was checked, what was found, and what to do about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

from robustassay.results.models import AttackSummary, ModelResult

CheckStatus = Literal["good", "note", "warning"]
"""No warning, something to know, or a warning."""


@final
@dataclass(frozen=True)
class CheckFinding:
    """A sentence about one run, and the key of that run."""

    text: str
    key: str


@final
@dataclass(frozen=True)
class TrustCheck:
    """What one check found; `advice` is empty where there is nothing to do."""

    title: str
    checked: str
    status: CheckStatus
    found: str
    advice: str = ""
    findings: tuple[CheckFinding, ...] = ()


@final
@dataclass(frozen=True, eq=False)
class CheckedRuns:
    """What the checks look at."""

    attacks: Sequence[AttackSummary]
    results: Sequence[ModelResult]
    labels: dict[str, str]  # of models, by `StoredRun.model_id`

    def name(self, one: AttackSummary) -> str:
        """Name a run by its model, threat and attack."""
        return f"{self.labels[one.run.model_id]}, {one.run.threat}, {one.label}"

    def about(self, result: ModelResult) -> str:
        """Name a result by its model and threat."""
        return f"{self.labels[result.model_id]}, {result.threat}"
