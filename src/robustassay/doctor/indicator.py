"""What the doctor says: one finding an indicator, with its evidence, its limit and the remedies by name."""

import operator
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, final

REMEDIES: Final[Mapping[str, str]] = {
    "logits": "logit rescaling: attack the values before the last function, at a scale where losses have a slope",
    "reversal": "follow the gradient downhill: it points the wrong way",
    "bpda": "BPDA: differentiate around the part that stops or distorts gradients (arXiv:1802.00420)",
    "restarts": "start at random points, away from images that the model knows by heart",
    "loss": "another loss, which does not vanish where the model is sure: DLR or the logit margin",
    "eot": "EOT: average gradients over draws (arXiv:1707.07397)",
    "smoothing": "EOT over neighbours: average gradients over small changes of the image",
    "steps": "more steps",
    "square": "a search without gradients: Square (arXiv:1912.00049)",
    "transfer": "points made on another model: transfer",
}
"""Everything the doctor can prescribe, in the order in which it is tried."""


@final
@dataclass(frozen=True)
class Finding:
    """What one indicator measured.

    It is an alarm where the value lies above the limit. A note says what is known and harmless.
    """

    indicator: str
    value: float
    limit: float
    evidence: str
    remedies: tuple[str, ...] = ()
    note: str = ""

    @property
    def alarm(self) -> bool:
        """Whether an attack fails on this model in the way this indicator looks for."""
        return self.value > self.limit

    @property
    def verdict(self) -> str:
        """The finding in a word."""
        return "alarm" if self.alarm else "note" if self.note else "fine"


@final
@dataclass(frozen=True)
class Diagnosis:
    """All findings about one model."""

    model: str
    threat: str
    samples: int  # those of the images tried that are classified correctly
    findings: tuple[Finding, ...]
    flags: Mapping[str, str]
    seconds: float

    @property
    def alarms(self) -> tuple[Finding, ...]:
        """The findings that speak against believing a robust accuracy."""
        return tuple(finding for finding in self.findings if finding.alarm)

    @property
    def remedies(self) -> tuple[str, ...]:
        """What to do, in the order in which to try it."""
        named = {remedy for finding in self.alarms for remedy in finding.remedies}
        return tuple(remedy for remedy in REMEDIES if remedy in named)

    def because(self, remedy: str) -> str:
        """Name the indicators that call for a remedy."""
        return ", ".join(finding.indicator for finding in self.alarms if remedy in finding.remedies)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        findings = [asdict(finding) | {"verdict": finding.verdict} for finding in self.findings]
        return {
            "model": self.model,
            "threat": self.threat,
            "samples": self.samples,
            "healthy": not self.alarms,
            "findings": findings,
            "flags": dict(self.flags),
            "remedies": {name: REMEDIES[name] for name in self.remedies},
            "seconds": round(self.seconds, 2),
        }

    def __str__(self) -> str:
        if not self.alarms:
            return f"{self.model}: no alarm on {self.samples} images under {self.threat}"
        named = ", ".join(map(operator.attrgetter("indicator"), self.alarms))
        return f"{self.model}: {named}; remedies: {', '.join(self.remedies)}"
