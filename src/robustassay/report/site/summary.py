"""Sentences and numbers of the overview: what was measured, and what it cost."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from robustassay.report import formatting
from robustassay.report.site.content import Content
from robustassay.results.identity import hardware_name
from robustassay.results.models import AttackSummary


@final
@dataclass(frozen=True)
class Cost:
    """The cost of the runs on one kind of hardware."""

    hardware: str
    runs: int
    samples: int
    forwards: float
    backwards: float
    seconds: float


def title(content: Content) -> str:
    """Return the title: the model, the number of models, or the study."""
    names = [reported.label for reported in content.models.values()]
    if not names:
        return content.studies[0].title if len(content.studies) == 1 else "Studies of robustness"
    return f"Robustness of {names[0] if len(names) == 1 else formatting.count(len(names), 'model')}"


def summary(content: Content) -> str:
    """Write in one sentence what was measured."""
    runs = [attack.run for attack in content.attacks]
    if not runs:
        return f"{formatting.count(len(content.studies), 'study').replace('studys', 'studies')}, without runs."
    attacks = len({(run.attack, run.settings) for run in runs})
    threats = list(dict.fromkeys(run.threat for run in runs))
    samples: dict[str, set[str]] = {}
    for attack in content.attacks:
        samples.setdefault(attack.run.data, set())
    for result in content.results:
        samples[result.first.data].update(result.robust_samples.index)
    measured = formatting.listed([f"{formatting.count(len(ids), 'sample')} of {data}" for data, ids in samples.items()])
    days = sorted({run.date for run in runs})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    named = (
        formatting.listed(threats)
        if len(threats) <= 6
        else f"{formatting.listed(threats[:5])} and {len(threats) - 5} more"
    )
    return (
        f"{formatting.count(len(content.models), 'model')} evaluated with {formatting.count(attacks, 'attack')} under "
        f"{formatting.count(len(threats), 'threat')} ({named}) on {measured}, measured {when}."
    )


def costs(attacks: Sequence[AttackSummary]) -> list[Cost]:
    """Sum up the cost of the runs, by hardware."""
    by_hardware: dict[str, list[AttackSummary]] = defaultdict(list)
    for attack in attacks:
        by_hardware[hardware_name(attack.run.manifest)].append(attack)
    return [
        Cost(
            hardware=name,
            runs=len(some),
            samples=sum(one.numbers.samples for one in some),
            forwards=sum(one.numbers.forwards * one.numbers.samples for one in some if one.numbers.samples),
            backwards=sum(one.numbers.backwards * one.numbers.samples for one in some if one.numbers.samples),
            seconds=sum(one.numbers.seconds for one in some),
        )
        for name, some in by_hardware.items()
    ]
