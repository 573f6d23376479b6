"""Findings on transfer: Figures 3 to 5 (section 3.4)."""

import math
from collections.abc import Collection
from dataclasses import replace
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
    fixed, small = settings.iterated(settings.iterations[0], settings.fixed).name, fgsm_name(settings.fixed)
    return [
        _vgg(measured, (fixed, fast[0], fast[-1], iterated[0], elastic[-1])),
        _families(measured, (fixed, *iterated)),
        _chain(
            *(measured, "Untargeted, FGSM transfers best, then I-FGSM, then EAD-L1, then C&W"),
            "FGSM ≽ I-FGSM ≽ EAD-L1 ≽ C&W",
            (
                *(((small, fixed),) if ("untargeted", small) in measured.outcomes else ()),
                *((fast[-1], iterated[0]), (iterated[0], elastic[-1]), (elastic[-1], carlini[-1])),
            ),
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
    """Compare VGG with other sources, to the same targets: all but VGGs, and none of the source's family."""
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
                if held.sources < {model.name for model in measured.models}:
                    continue  # the means of some sources are not those of all
                pair = held.mean_by_target(vgg, rest), held.mean_by_target(rest, rest)
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
    """Compare transfer within families with transfer to others, for sources that are no VGG.

    Once from the same sources and once to the same targets: a family may craft better examples, or be fooled by all.
    """
    rest = [model for model in measured.models if model.family != VGG]
    families = [model.family for model in rest]
    several = [model.name for model in rest if families.count(model.family) > 1]
    rows: list[tuple[str, Numbers, Numbers]] = []
    for name in dict.fromkeys(names) if several else ():
        if ("untargeted", name) in measured.outcomes:
            held = Transferred.of(measured, "untargeted", name)
            within = held.mean(several, same_family=True)
            others = held.mean([model.name for model in rest], same_family=False, targets=several)
            rows.append((f"{name}, untargeted, from the same sources", within, held.mean(several, same_family=False)))
            rows.append((f"{name}, untargeted, to the same targets", within, others))
    claim = "Examples of other models transfer better within their family than to others"
    published = "I-FGSM within DenseNets, ResNets and VGGs: close to 100 %; to other families much less"
    finding = _tested(claim, published, rows)
    pairs = [pair for pair in combinations(rest, 2) if pair[0].family == pair[1].family]
    if finding.verdict != "does not hold" or any(measured.same_size(*pair) for pair in pairs):
        return finding
    because = "no two networks of a family take images of one size, and cropping or a border lowers transfer"
    return replace(finding, verdict="cannot be said", because=because)


def _chain(measured: SuMeasurements, claim: str, published: str, pairs: tuple[tuple[str, str], ...]) -> Finding:
    """Test that the untargeted examples of each first attack transfer more often than those of the second.

    C&W and EAD take fewer steps here than in the paper, so it must hold for their successes on the source alone, too.
    """
    may_fail = {attack.name for attack in measured.settings.minimum_attacks(measured.settings.kappas)}
    rows: list[tuple[str, Numbers, Numbers]] = []
    few: set[int] = set()
    for first, second in pairs:
        before = len(rows)
        rows.append(_against(measured, ("untargeted", first), ("untargeted", second)))
        if may_fail & {first, second}:
            rows.append(_where_successful(measured, first, second, may_fail))
        if _from_few(measured, first, second):
            few |= {*range(before, len(rows))}
    return _tested(claim, published, rows, few)


def _from_few(measured: SuMeasurements, first: str, second: str) -> bool:
    """Say whether two attacks share examples of fewer than half of the models, which is too few for a verdict."""
    found = [
        table for (goal, name), table in measured.outcomes.items() if goal == "untargeted" and name in (first, second)
    ]
    if len(found) < 2:
        return False
    one, two = (set(table["source"]) for table in found)
    return 2 * len(one & two) < len(measured.models)


def _untargeted(measured: SuMeasurements, name: str) -> Finding:
    claim, published = (
        "Untargeted examples transfer far more often than targeted ones",
        "significantly more; no number",
    )
    _, untargeted, targeted = _against(measured, ("untargeted", name), ("random", name))
    return _tested(claim, published, [(name, untargeted, targeted)])


def _asymmetry(measured: SuMeasurements, name: str) -> Finding:
    """Compare both directions of each pair, image by image.

    One direction crops and the other adds a border where inputs differ in size; such pairs get no verdict.
    """
    claim = "Transfer is sometimes asymmetric"
    published = "one pair named: VGG 16 to Inception-v2 highly, back not very well"
    if ("untargeted", name) not in measured.outcomes:
        return Finding(0, claim, "cannot be said", (f"{name} was not run.",), published, None, "not run")
    pairs = Transferred.of(measured, "untargeted", name).pairs
    tests = []
    for one, two in combinations(measured.models, 2):
        there, back = pairs[one.name, two.name], pairs[two.name, one.name]
        known = np.isfinite(there) & np.isfinite(back)
        if known.any():
            gain = int((there > back)[known].sum()), int((there < back)[known].sum())
            rates = float(there[known].mean()), float(back[known].mean())
            tests.append((one, two, *rates, mcnemar(*gain), int(known.sum())))
    alike = [test for test in tests if measured.same_size(test[0], test[1])]
    sure = [test for test, chance in zip(alike, holm([test[4] for test in alike]), strict=True) if chance < LEVEL]
    widest = sorted(tests, key=lambda test: (not measured.same_size(test[0], test[1]), -abs(test[2] - test[3])))[:5]
    reasons = [
        f"{one.label} to {two.label} {there:.0%}, back {back:.0%} (McNemar p = {chance:.2g}, uncorrected, n = {n})"
        + ("." if measured.same_size(one, two) else "; inputs differ in size.")
        for one, two, there, back, chance, n in widest
    ]
    if not alike:
        why = "no two models take images of one size, and cropping or a border lowers transfer in one direction"
        return Finding(0, claim, "cannot be said", tuple(reasons), published, None, why)
    ours = f"{name}: {len(sure)} of {len(alike)} pairs{' of one input size' if measured.sizes_differ else ''} "
    ours += f"surely differ by direction; the widest: {reasons[0].partition(' (')[0]}"
    because = "McNemar tests of both directions, Holm over pairs"
    return Finding(0, claim, "holds" if sure else "cannot be said", tuple(reasons), published, ours, because)


def _against(
    measured: SuMeasurements, first: tuple[GoalName, str], second: tuple[GoalName, str]
) -> tuple[str, Numbers, Numbers]:
    """Return how often the examples of two attacks transfer, from the sources that both attack.

    Where C&W and EAD attack some models only, the rates of other attacks over all sources would be those of others.
    """
    what = f"{first[1]} against {second[1]}"
    if first not in measured.outcomes or second not in measured.outcomes:
        return what, np.full(1, np.nan), np.full(1, np.nan)
    one, two = Transferred.of(measured, *first), Transferred.of(measured, *second)
    both = one.sources & two.sources
    what += f" from {len(both)} sources" if len(both) < len(measured.models) else ""
    return what, one.mean(both), two.mean(both)


def _where_successful(
    measured: SuMeasurements, first: str, second: str, may_fail: set[str]
) -> tuple[str, Numbers, Numbers]:
    """Return the same for the images on which those of two attacks that may fail on the source succeed."""
    failing = [name for name in (first, second) if name in may_fail]
    what = f"{first} against {second}, where {' and '.join(failing)} {'succeed' if failing[1:] else 'succeeds'}"
    if any(("untargeted", name) not in measured.outcomes for name in (first, second)):
        return what, np.full(1, np.nan), np.full(1, np.nan)
    one, two = (Transferred.of(measured, "untargeted", name) for name in (first, second))
    kept = [held.pairs for name, held in ((first, one), (second, two)) if name in may_fail]
    both = {
        source: np.minimum.reduce([pairs[source, source] for pairs in kept]) for source in one.sources & two.sources
    }
    return what, one.where(both).mean(), two.where(both).mean()


def _tested(
    claim: str, published: str, rows: list[tuple[str, Numbers, Numbers]], refused: Collection[int] = ()
) -> Finding:
    """Test that the first rate of each row is larger than the second; rows of few sources get no verdict."""
    found = [Difference.of(first, second, len(rows)) for _, first, second in rows]
    verdicts: list[Verdict] = [
        "cannot be said" if one is None or at in refused else one.verdict for at, one in enumerate(found)
    ]
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
    because, lacking = Difference.reason(verdict, found), found.count(None)
    if verdict == "cannot be said" and lacking:
        because = f"{lacking} of {len(rows)} comparisons were not measured; {because}"
    without = sum(at in refused and one is not None for at, one in enumerate(found))
    if without:
        because += f"; {without} of {len(rows)} comparisons from fewer than half of the models say nothing"
    return Finding(0, claim, verdict, tuple(reasons), published, ours.rstrip("."), because)


def _mean(values: Numbers) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan
