"""What the first page says in words: what was measured, and what it took."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from robustassay.report import formatting
from robustassay.report.ranking import Outcome
from robustassay.report.website.content import Content


@final
@dataclass(frozen=True)
class Cost:
    """What the runs on one kind of hardware took."""

    hardware: str
    runs: int
    samples: int
    forwards: float
    backwards: float
    seconds: float


def title(content: Content) -> str:
    """Name the site after its model, or its models, or its study."""
    names = [reported.label for reported in content.models.values()]
    if not names:
        return content.studies[0].title if len(content.studies) == 1 else "Studies of robustness"
    return f"Robustness of {names[0] if len(names) == 1 else formatting.count(len(names), 'model')}"


def summary(content: Content) -> str:
    """Say in one sentence what was measured."""
    runs = [outcome.run for outcome in content.outcomes]
    if not runs:
        return (
            f"{formatting.count(len(content.studies), 'study').replace('studys', 'studies')}, without the runs behind."
        )
    attacks = len({(run.attack, run.settings) for run in runs})
    threats = list(dict.fromkeys(run.threat for run in runs))
    samples: dict[str, set[str]] = {}
    for outcome in content.outcomes:
        samples.setdefault(outcome.run.data, set())
    for standing in content.standings:
        samples[standing.first.data].update(standing.stands.index)
    measured = formatting.listed([f"{formatting.count(len(ids), 'sample')} of {data}" for data, ids in samples.items()])
    days = sorted({run.date for run in runs})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    named = (
        formatting.listed(threats)
        if len(threats) <= 6
        else f"{formatting.listed(threats[:5])} and {len(threats) - 5} more"
    )
    return (
        f"{formatting.count(len(content.models), 'model')} met {formatting.count(attacks, 'attack')} under "
        f"{formatting.count(len(threats), 'threat')} ({named}) on {measured}, measured {when}."
    )


def costs(outcomes: Sequence[Outcome]) -> list[Cost]:
    """Add up what the runs took, by the hardware they ran on."""
    by_hardware: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        told = outcome.run.manifest.get("hardware", {})
        by_hardware[f"{told.get('device', 'unknown')} ({told.get('machine', 'unknown')})"].append(outcome)
    return [
        Cost(
            hardware=name,
            runs=len(some),
            samples=sum(one.summary.samples for one in some),
            forwards=sum(one.summary.forwards * one.summary.samples for one in some if one.summary.samples),
            backwards=sum(one.summary.backwards * one.summary.samples for one in some if one.summary.samples),
            seconds=sum(one.summary.seconds for one in some),
        )
        for name, some in by_hardware.items()
    ]
