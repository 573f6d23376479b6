"""The diagnosis: one result per indicator, with its limit, its evidence and the remedies by name."""

import operator
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, final

REMEDIES: Final[Mapping[str, str]] = {
    "logits": "logit rescaling: attack the values before the last function, at a scale where losses have a gradient",
    "reversal": "reversed gradient: it points the wrong way",
    "bpda": "BPDA: differentiate around the part that stops or distorts gradients (arXiv:1802.00420)",
    "restarts": "random starts, away from the clean images, where the gradient is zero",
    "loss": "another loss, which does not vanish where the model is confident: DLR or the logit margin",
    "eot": "EOT: average gradients over draws (arXiv:1707.07397)",
    "smoothing": "smoothed gradients: average gradients over noisy copies of the image",
    "steps": "more steps",
    "square": "a score-based attack without gradients: Square (arXiv:1912.00049)",
    "transfer": "transfer: adversarial examples crafted on another model",
}
"""All remedies, in the order in which they are applied."""


@final
@dataclass(frozen=True)
class IndicatorResult:
    """The value of one indicator: an alarm where it lies above the limit.

    A note states a property of the model that is known and harmless.
    """

    indicator: str
    value: float
    limit: float
    evidence: str
    remedies: tuple[str, ...] = ()
    note: str = ""

    @property
    def alarm(self) -> bool:
        """Whether the value lies above the limit."""
        return self.value > self.limit

    @property
    def verdict(self) -> str:
        """The result in one word: alarm, note or fine."""
        return "alarm" if self.alarm else "note" if self.note else "fine"


@final
@dataclass(frozen=True)
class Diagnosis:
    """The results of all indicators for one model."""

    model: str
    threat: str
    samples: int  # images tried that are classified correctly
    results: tuple[IndicatorResult, ...]
    flags: Mapping[str, str]
    seconds: float

    @property
    def alarms(self) -> tuple[IndicatorResult, ...]:
        """The indicators above their limit: attacks may overestimate the robust accuracy."""
        return tuple(result for result in self.results if result.alarm)

    @property
    def remedies(self) -> tuple[str, ...]:
        """The remedies for all alarms, in the order in which they are applied."""
        named = {remedy for result in self.alarms for remedy in result.remedies}
        return tuple(remedy for remedy in REMEDIES if remedy in named)

    def because(self, remedy: str) -> str:
        """Name the alarms that a remedy is for."""
        return ", ".join(result.indicator for result in self.alarms if remedy in result.remedies)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        results = [asdict(result) | {"verdict": result.verdict} for result in self.results]
        return {
            "model": self.model,
            "threat": self.threat,
            "samples": self.samples,
            "alarms": [result.indicator for result in self.alarms],
            "indicators": results,
            "flags": dict(self.flags),
            "remedies": {name: REMEDIES[name] for name in self.remedies},
            "seconds": round(self.seconds, 2),
        }

    def __str__(self) -> str:
        if not self.alarms:
            return f"{self.model}: no alarm on {self.samples} images under {self.threat}"
        named = ", ".join(map(operator.attrgetter("indicator"), self.alarms))
        return f"{self.model}: {named}; remedies: {', '.join(self.remedies)}"
