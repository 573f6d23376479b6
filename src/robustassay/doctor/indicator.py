"""The diagnosis: one result per indicator, with its limit, its evidence and the remedies by name."""

import operator
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, final

REMEDIES: Final[Mapping[str, str]] = {
    "logits": "logit rescaling: attack the values before the last function, at a scale where losses have a gradient",
    "inactive": "inactive values: move values inside that have no effect at the image, such as a closed gate",
    "reversal": "reversed gradient: it points the wrong way",
    "bpda": "BPDA: differentiate around the part that stops or distorts gradients (arXiv:1802.00420)",
    "restarts": "random starts, away from the clean images, where the gradient is zero",
    "loss": "another loss, which does not vanish where the model is confident: DLR or the logit margin",
    "targets": "targeted attacks, towards one class after the other",
    "eot": "EOT: average gradients over draws (arXiv:1707.07397)",
    "smoothing": "smoothed gradients: average gradients over noisy copies of the image",
    "steps": "more steps",
    "square": "a score-based attack without gradients: Square (arXiv:1912.00049)",
    "transfer": "transfer: adversarial examples crafted on another model",
}
"""All remedies, in the order in which they are applied."""


WEAK_SIGNS: Final = 2
"""Weak signs of different kinds that together raise an alarm."""


@final
@dataclass(frozen=True)
class IndicatorResult:
    """The value of one indicator: a strong sign above its limit, a weak sign above its lower limit.

    `unexamined` is the reason why the indicator could not be evaluated. A note states a property of the model that is
    known and harmless. Signs of one kind have one cause, so only one of them counts where weak signs are counted.
    """

    indicator: str
    value: float
    limit: float
    evidence: str
    remedies: tuple[str, ...] = ()
    note: str = ""
    weak_limit: float | None = None
    kind: str = ""
    unexamined: str = ""

    @classmethod
    def not_examined(cls, indicator: str, limit: float, reason: str) -> "IndicatorResult":
        """Return the result of an indicator that could not be evaluated."""
        return cls(indicator, 0.0, limit, f"not examined: {reason}", unexamined=reason)

    @property
    def strong(self) -> bool:
        """Whether the value lies above the limit: an alarm by itself."""
        return not self.unexamined and self.value > self.limit

    @property
    def weak(self) -> bool:
        """Whether the value lies between the two limits."""
        return not (self.unexamined or self.strong or self.weak_limit is None) and self.value > self.weak_limit


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
        """Strong signs, and weak ones if something else confirms them: attacks may overestimate the robust accuracy.

        A weak sign is confirmed by a strong sign, or by a weak sign of another kind.
        """
        kinds = {result.kind or result.indicator for result in self.results if result.weak}
        confirmed = len(kinds) >= WEAK_SIGNS or any(result.strong for result in self.results)
        return tuple(result for result in self.results if result.strong or (result.weak and confirmed))

    @property
    def unexamined(self) -> tuple[IndicatorResult, ...]:
        """The indicators that could not be evaluated."""
        return tuple(result for result in self.results if result.unexamined)

    def verdict(self, result: IndicatorResult) -> str:
        """Return the outcome of one indicator: alarm, fine or not examined."""
        return "not examined" if result.unexamined else "alarm" if result in self.alarms else "fine"

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
        results = [asdict(result) | {"verdict": self.verdict(result)} for result in self.results]
        return {
            "model": self.model,
            "threat": self.threat,
            "samples": self.samples,
            "alarms": [result.indicator for result in self.alarms],
            "not_examined": {result.indicator: result.unexamined for result in self.unexamined},
            "indicators": results,
            "flags": dict(self.flags),
            "remedies": {name: REMEDIES[name] for name in self.remedies},
            "seconds": round(self.seconds, 2),
        }

    def __str__(self) -> str:
        missing = ", ".join(f"{result.indicator} ({result.unexamined})" for result in self.unexamined)
        ending = f"; not examined: {missing}" if missing else ""
        if not self.alarms:
            return f"{self.model}: no alarm on {self.samples} images under {self.threat}{ending}"
        named = ", ".join(map(operator.attrgetter("indicator"), self.alarms))
        return f"{self.model}: {named}; remedies: {', '.join(self.remedies)}{ending}"
