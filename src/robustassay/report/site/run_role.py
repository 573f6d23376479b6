"""What a run is: an attack on all samples, a remedy, or a second attack on samples in doubt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from robustassay.report import formatting
from robustassay.results.identity import ADAPTIVE
from robustassay.results.models import AttackSummary, ModelResult
from robustassay.results.runs import StoredRun


@final
@dataclass(frozen=True, eq=False)
class RunRole:
    """What the page of a run says about its place among the runs of its model."""

    text: str  # what a run on part of the samples is; empty for one on all samples
    why: str  # of a remedy: the reason and the means
    flags: Mapping[str, str]  # signs that the attack fails unnoticed
    avoided: tuple[str, ...]  # names of flags that the remedy goes around
    followed_by: tuple[AttackSummary, ...]  # runs on the samples that this one left


def own_flags(attack: AttackSummary) -> dict[str, str]:
    """Return the flags of a run; a remedy was chosen to go around those that were raised before it."""
    if not is_remedy(attack.run):
        return dict(attack.flags)
    before = attack.run.manifest.get("flags", {})
    return {name: text for name, text in attack.flags.items() if name not in before}


def is_remedy(run: StoredRun) -> bool:
    """Say whether a run applies a remedy of the doctor."""
    return "remedy" in run.manifest.get(ADAPTIVE, {})


def role(attack: AttackSummary, result: ModelResult | None) -> RunRole:
    """Describe a run among those of its model under its threat."""
    others = result.attacks if result is not None else ()
    flags = own_flags(attack)
    return RunRole(
        text=_text(attack, [one for one in others if one.key in attack.run.confirms]),
        why=_why(attack.run),
        flags=flags,
        avoided=tuple(formatting.flag(name) for name in attack.flags if name not in flags),
        followed_by=tuple(one for one in others if attack.key in one.run.confirms),
    )


def _text(attack: AttackSummary, before: Sequence[AttackSummary]) -> str:
    if not attack.run.confirms:
        return ""
    numbers, remedy = attack.numbers, attack.run.manifest.get(ADAPTIVE, {})
    others = formatting.listed([one.label for one in before]) or "other runs"
    reason = str(remedy.get("because", "")).partition(",")[0]
    kind = f"Remedy for {reason}" if is_remedy(attack.run) else "A second attack"
    left = "standing" if is_remedy(attack.run) else "in doubt"
    many = numbers.samples
    broken = "all of them" if attack.broken == many else f"{attack.broken:,}"
    return f"{kind}. It attacked the {formatting.count(many, 'sample')} that {others} left {left}, and broke {broken}."


def _why(run: StoredRun) -> str:
    entry = run.manifest.get(ADAPTIVE, {})
    return f"{entry['remedy']}: {entry['how']}; for {entry['because']}" if is_remedy(run) else ""
