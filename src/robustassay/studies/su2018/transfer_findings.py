"""Findings on transfer: Figures 3 to 5 (section 3.4)."""

import math
from itertools import combinations
from typing import Final

import numpy as np

from robustassay.analysis.compare import mcnemar
from robustassay.analysis.ranks import holm
from robustassay.studies.page import Finding, Verdict, combined
from robustassay.studies.su2018.measurements import SuMeasurements
from robustassay.studies.su2018.settings import GOAL_TEXTS, GoalName, SuAttack, fgsm_name
from robustassay.studies.su2018.transfers import Difference, Numbers, Transferred

VGG: Final = "vgg"
LEVEL: Final = 0.05


def transfer_findings(measured: SuMeasurements) -> list[Finding]:
    """Test the claims on VGG and on families first, then those on attacks."""
    settings = measured.settings
    largest = settings.transfer_eps[-1]
    fast = [fgsm_name(n) for n in settings.transfer_eps]
    iterated = [settings.iterated(steps, largest).name for steps in settings.iterations]
    elastic, carlini = (_named(settings.minimum_attacks(settings.kappas), name) for name in ("EAD", "C&W"))
    fixed = settings.iterated(settings.iterations[0], settings.fixed).name
    return [
        _vgg(measured, (fixed, fast[0], fast[-1], iterated[0], elastic[-1])),
        _families(measured, (fixed, *iterated)),
        _chain(
            *(measured, "Untargeted, FGSM transfers best, then I-FGSM, then EAD-L1, then C&W"),
            "FGSM ≽ I-FGSM ≽ EAD-L1 ≽ C&W",
            ((fast[-1], iterated[0]), (iterated[0], elastic[-1]), (elastic[-1], carlini[-1])),
        ),
        _chain(measured, "FGSM transfers better with a larger eps", "no number", ((fast[-1], fast[0]),)),
        _chain(
            *(measured, "I-FGSM transfers better with fewer iterations", "no number"),
            ((iterated[0], iterated[-1]),) if len(iterated) > 1 else (),
        ),
        _chain(
            *(measured, "EAD-L1 transfers better with a larger kappa, but far less than I-FGSM", "no number"),
            ((elastic[-1], elastic[0]), (iterated[-1], elastic[-1])) if len(elastic) > 1 else (),
        ),
        _untargeted(measured, iterated[0]),
        _asymmetry(measured, fixed),
    ]


def _named(attacks: tuple[SuAttack, ...], start: str) -> list[str]:
    return [attack.name for attack in attacks if attack.name.startswith(start)]


def _vgg(measured: SuMeasurements, names: tuple[str, ...]) -> Finding:
    """Compare VGG with other sources, to families that are not the source's."""
    claim = "VGG examples transfer better to other families than those of other models, for every attack and goal"
    published = "significantly better, untargeted and targeted, for all attacks; no number in the text"
    vgg = [model.name for model in measured.models if model.family == VGG]
    rest = [model.name for model in measured.models if model.family != VGG]
    if not vgg or not rest:
        why = "there is no VGG among the models" if rest else "all models are VGGs"
        return Finding(0, claim, "cannot be said", (f"{why[0].upper()}{why[1:]}.",), published, None, why)
    rows: list[tuple[str, Numbers, Numbers]] = []
    for goal in measured.settings.transfer_goals:
        for name in dict.fromkeys(names):
            if (goal, name) in measured.outcomes:
                held = Transferred.of(measured, goal, name)
                pair = held.mean(vgg, same_family=False), held.mean(rest, same_family=False)
                rows.append((f"{name}, {GOAL_TEXTS[goal]}", *pair))
    finding = _tested(claim, published, rows)
    return _with_sources(measured, finding, names[0])


def _with_sources(measured: SuMeasurements, finding: Finding, name: str) -> Finding:
    """Add how often the untargeted examples of each source fool other families."""
    if ("untargeted", name) not in measured.outcomes:
        return finding
    held = Transferred.of(measured, "untargeted", name)
    reach = {model.label: _mean(held.mean([model.name], same_family=False)) for model in measured.models}
    order = sorted((label for label in reach if not math.isnan(reach[label])), key=lambda label: -reach[label])
    line = f"{name}, untargeted, to other families by source: {', '.join(f'{n} {reach[n]:.0%}' for n in order)}."
    return Finding(
        *(0, finding.claim, finding.verdict, (*finding.reasons, line)),
        *(finding.published, finding.measured, finding.because),
    )


def _families(measured: SuMeasurements, names: tuple[str, ...]) -> Finding:
    """Compare transfer within families with transfer to others, for sources that are no VGG."""
    rest = [model.name for model in measured.models if model.family != VGG]
    rows: list[tuple[str, Numbers, Numbers]] = []
    for name in dict.fromkeys(names):
        if ("untargeted", name) in measured.outcomes:
            held = Transferred.of(measured, "untargeted", name)
            rows.append((f"{name}, untargeted", held.mean(rest, same_family=True), held.mean(rest, same_family=False)))
    claim = "Examples of other models transfer better within their family than to others"
    published = "I-FGSM within DenseNets, ResNets and VGGs: close to 100 %; to other families much less"
    return _tested(claim, published, rows)


def _chain(measured: SuMeasurements, claim: str, published: str, pairs: tuple[tuple[str, str], ...]) -> Finding:
    """Test that the untargeted examples of each first attack transfer more often than those of the second."""
    rows = [
        (f"{first} against {second}", _overall(measured, "untargeted", first), _overall(measured, "untargeted", second))
        for first, second in pairs
    ]
    return _tested(claim, published, rows)


def _untargeted(measured: SuMeasurements, name: str) -> Finding:
    claim, published = (
        "Untargeted examples transfer far more often than targeted ones",
        "significantly more; no number",
    )
    rows = [(name, _overall(measured, "untargeted", name), _overall(measured, "random", name))]
    return _tested(claim, published, rows)


def _asymmetry(measured: SuMeasurements, name: str) -> Finding:
    """Compare both directions of each pair, image by image."""
    claim = "Transfer is sometimes asymmetric"
    published = "one pair named: VGG 16 to Inception-v2 highly, back not very well"
    if ("untargeted", name) not in measured.outcomes:
        return Finding(0, claim, "cannot be said", (f"{name} was not run.",), published, None, "not run")
    pairs = Transferred.of(measured, "untargeted", name).pairs
    label = {model.name: model.label for model in measured.models}
    tests = []
    for one, two in combinations((model.name for model in measured.models), 2):
        there, back = pairs[one, two], pairs[two, one]
        known = np.isfinite(there) & np.isfinite(back)
        if known.any():
            gain = int((there > back)[known].sum()), int((there < back)[known].sum())
            rates = float(there[known].mean()), float(back[known].mean())
            tests.append((one, two, *rates, mcnemar(*gain), int(known.sum())))
    sure = [test for test, chance in zip(tests, holm([test[4] for test in tests]), strict=True) if chance < LEVEL]
    widest = sorted(tests, key=lambda test: -abs(test[2] - test[3]))[:5]
    reasons = [
        f"{label[one]} to {label[two]} {there:.0%}, back {back:.0%} (McNemar p = {chance:.2g}, uncorrected, n = {n})."
        for one, two, there, back, chance, n in widest
    ]
    ours = f"{name}: {len(sure)} of {len(tests)} pairs surely differ by direction; the widest: " + (
        reasons[0].partition(" (")[0] if reasons else "none"
    )
    because = "McNemar tests of both directions, Holm over pairs"
    return Finding(0, claim, "holds" if sure else "cannot be said", tuple(reasons), published, ours, because)


def _overall(measured: SuMeasurements, goal: GoalName, name: str) -> Numbers:
    if (goal, name) not in measured.outcomes:
        return np.full(1, np.nan)
    return Transferred.of(measured, goal, name).mean()


def _tested(claim: str, published: str, rows: list[tuple[str, Numbers, Numbers]]) -> Finding:
    """Test that the first rate of each row is larger than the second."""
    found = [Difference.of(first, second, len(rows)) for _, first, second in rows]
    verdicts: list[Verdict] = ["cannot be said" if one is None else one.verdict for one in found]
    reasons = [
        f"{what}: " + ("there is no such pair." if one is None else f"{one.text}.")
        for (what, *_), one in zip(rows, found, strict=True)
    ]
    if not rows:
        return Finding(0, claim, "cannot be said", ("Too few settings were run.",), published, None, "too few settings")
    held, failed = verdicts.count("holds"), verdicts.count("does not hold")
    decisive = reasons[verdicts.index("does not hold") if failed else 0]
    counts = f"of {len(rows)} comparisons {held} surely hold and {failed} surely do not; {decisive}"
    ours = reasons[0] if len(rows) == 1 else counts
    verdict = combined(verdicts)
    return Finding(0, claim, verdict, tuple(reasons), published, ours.rstrip("."), Difference.reason(verdict, found))


def _mean(values: Numbers) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan
