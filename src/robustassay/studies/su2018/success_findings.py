"""Findings on success rates: Figure 1 (section 3.1)."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from robustassay.studies.page import Finding, Verdict, combined
from robustassay.studies.su2018.measurements import LTWO, RMSD, SuMeasurements, bootstrap
from robustassay.studies.su2018.models import StudiedModel
from robustassay.studies.su2018.settings import GOAL_TEXTS, PAPER_EPS, GoalName, SuAttack, fgsm_name
from robustassay.studies.su2018.transfers import FEWEST, Difference

VERY_GOOD: Final = 0.95
FEW: Final = 0.03
"""The paper's bound on the success of targeted FGSM."""
LEVEL: Final = 0.05
PAPER_STEPS: Final = 9 * 1000
Parts = dict[str, tuple[GoalName, SuAttack, SuAttack]]
"""Comparisons by name: a goal, the attack that should succeed more often, and the other."""


def success_findings(measured: SuMeasurements) -> list[Finding]:
    """Test what the paper reads from Figure 1."""
    return [_weak_fgsm(measured), _strength(measured), _iterative(measured), *_kappa(measured)]


def attacked(measured: SuMeasurements, goal: GoalName, *attacks: SuAttack) -> tuple[StudiedModel, ...]:
    """Return the models that all of some attacks met."""
    return tuple(
        model
        for model in measured.models
        if all((model.name, goal, attack.name) in measured.results for attack in attacks)
    )


def by_image(
    measured: SuMeasurements, goal: GoalName, attack: SuAttack, models: tuple[StudiedModel, ...] | None = None
) -> npt.NDArray[np.float64]:
    """Return, per image, the part of the models that classify it correctly on which the attack succeeds."""
    chosen = measured.models if models is None else models
    known = [one for one in (measured.successes(model, goal, attack) for model in chosen) if len(one)]
    if not known:
        return np.full(1, np.nan)
    order = max((measured.samples(model, goal, attack) for model in chosen), key=len)
    table = np.array([one.reindex(order).to_numpy(float) for one in known])
    counts = np.isfinite(table).sum(0)
    return np.where(counts > 0, np.nansum(table, 0) / np.maximum(counts, 1), np.nan)


def _attack(measured: SuMeasurements, name: str) -> SuAttack:
    return next(attack for attack in measured.settings.attacks() if attack.name == name)


def _interval(values: npt.NDArray[np.float64]) -> tuple[float, float, float, int]:
    known = values[np.isfinite(values)]
    return (float(known.mean()) if len(known) else math.nan, *bootstrap(values), len(known))


def _against(rate: tuple[float, float, float, int], limit: float, below: bool) -> Verdict:
    """Say whether a rate lies below a limit, or above it."""
    _, low, high, images = rate
    if images < FEWEST or low <= limit <= high:
        return "cannot be said"
    return "holds" if (high < limit) == below else "does not hold"


def _weak_fgsm(measured: SuMeasurements) -> Finding:
    claim, published = "FGSM with a random target hardly ever succeeds", "below 3 % for all settings"
    rates = [
        (n, _interval(by_image(measured, "random", _attack(measured, fgsm_name(n))))) for n in measured.settings.eps
    ]
    rates = [(n, rate) for n, rate in rates if rate[3]]
    if not rates:
        return Finding(0, claim, "cannot be said", ("Random targets were not run.",), published, None, "not run")
    verdicts: list[Verdict] = [_against(rate, FEW, below=True) for _, rate in rates]
    reasons = [f"{fgsm_name(n)}: {value:.1%} ({low:.1%} to {high:.1%}, {images} images, mean over models)."
               for n, (value, low, high, images) in rates]  # fmt: skip
    top = max(rates, key=lambda rate: rate[1][0])
    ours = f"at most {top[1][0]:.1%} ({top[1][1]:.1%} to {top[1][2]:.1%}, n = {top[1][3]}), by {fgsm_name(top[0])}"
    if measured.settings.photographs:
        verdict, because = combined(verdicts), "the intervals of all settings against 3 %"
        named = [one for (n, _), one in zip(rates, verdicts, strict=True) if n == PAPER_EPS]
        if verdict == "does not hold" and "does not hold" not in named:
            verdict = "cannot be said"
            because = "above 3 % at a small eps only, and the paper's text names no eps but 0.3"
        return Finding(0, claim, verdict, tuple(reasons), published, ours, because)
    because = "of ten classes, a wrong label is the target one time in nine by chance: not comparable with 1,000"
    return Finding(0, claim, "cannot be said", tuple(reasons), published, ours, because)


def _strength(measured: SuMeasurements) -> Finding:
    """Compare FGSM at its smallest and its largest eps, with and without a target, and each eps with the next."""
    fast = [_attack(measured, fgsm_name(n)) for n in measured.settings.eps]
    least, most = fast[0], fast[-1]
    claim = "A larger eps makes targeted FGSM succeed less often, and untargeted FGSM more often"
    parts: Parts = {
        "Random target, smallest against largest eps": ("random", least, most),
        "Untargeted, largest against smallest eps": ("untargeted", most, least),
    }
    found = _compared(measured, claim, "both said of Figures 1a and 1b; no number", parts)
    steps: Parts = {f"Random target, {a.name} against {b.name}": ("random", a, b) for a, b in pairwise(fast)}
    steps |= {f"Untargeted, {b.name} against {a.name}": ("untargeted", b, a) for a, b in pairwise(fast)}
    whole = _compared(measured, claim, "", steps)
    found = replace(found, reasons=(*found.reasons, *whole.reasons))
    if found.verdict == "holds" and whole.verdict == "does not hold":
        because = "the ends differ as in the paper, but steps between them surely go the other way, and the paper's "
        return replace(found, verdict="cannot be said", because=f"{because}text names no eps but 0.3")
    return found


def _iterative(measured: SuMeasurements) -> Finding:
    claim = "I-FGSM with 10 iterations, C&W and EAD-L1 with kappa 0 nearly always reach a random target"
    settings = measured.settings
    attacks = (
        settings.iterated(settings.iterations[0], settings.fixed),
        *settings.minimum_attacks(settings.kappas[:1]),
    )
    verdicts: list[Verdict] = []
    reasons, ours = [], []
    for attack in attacks:
        value, low, high, images = _interval(by_image(measured, "random", attack))
        if not images:
            verdicts.append("cannot be said")
            reasons.append(f"{attack.name} was not run with a random target.")
            continue
        verdict = _against((value, low, high, images), VERY_GOOD, below=False)
        weaker = attack.keeps_images and settings.searches * settings.steps < PAPER_STEPS
        met = attacked(measured, "random", attack)
        few = _few(measured, met)
        verdicts.append("cannot be said" if few or (weaker and verdict == "does not hold") else verdict)
        rates = [(measured.success(model, "random", attack), model.label) for model in measured.models]
        worst = min(((rate.value, label) for rate, label in rates if rate and rate.total), default=(math.nan, ""))
        some = "" if len(met) == len(measured.models) else f", {len(met)} of {len(measured.models)} models"
        ours.append(f"{attack.name} {value:.0%} ({low:.0%} to {high:.0%}, n = {images}{some})")
        reasons.append(f"{ours[-1]}, mean over models; least on {worst[1]}: {worst[0]:.0%}.")
    for attack in attacks if "least-likely" in settings.goals else ():
        value, low, high, images = _interval(by_image(measured, "least-likely", attack))
        if images:
            on = f"{len(attacked(measured, 'least-likely', attack))} of {len(measured.models)} models"
            reasons.append(
                f"Least-likely target: {attack.name} {value:.0%} ({low:.0%} to {high:.0%}, n = {images}, {on})."
            )
    published = "I-FGSM very good on all models; C&W and EAD-L1 almost 100 % on almost all"
    because = f"each interval against {VERY_GOOD:.0%}; failures after fewer steps than in the paper say nothing"
    if any(f" of {len(measured.models)} models" in one for one in ours):
        because += ", nor does an attack on fewer than half of the models"
    return Finding(0, claim, combined(verdicts), tuple(reasons), published, "; ".join(ours) or None, because)


def _kappa(measured: SuMeasurements) -> list[Finding]:
    settings = measured.settings
    claim = "A larger kappa lowers the success of C&W and EAD-L1"
    published = "MobileNet-0.50-160: close to 0 at kappa 40"
    if len(settings.kappas) < 2:
        return [Finding(0, claim, "cannot be said", ("One kappa was run.",), published, None, "one kappa was run")]
    first, last = settings.minimum_attacks(settings.kappas[:1]), settings.minimum_attacks(settings.kappas[-1:])
    goals: tuple[GoalName, ...] = ("random", "untargeted")
    parts: Parts = {
        f"{GOAL_TEXTS[goal].capitalize()}, {low.name} against {high.name}": (goal, low, high)
        for goal in goals
        for low, high in zip(first, last, strict=True)
    }
    found = _compared(measured, claim, published, parts)
    found = replace(found, reasons=(*found.reasons, *_by_model(measured, last)))
    if found.verdict == "holds" and last[0].gradients < PAPER_STEPS:
        effort = f"with {last[0].gradients} gradients at most; with the paper's {PAPER_STEPS:,}, more may succeed"
        found = replace(found, because=f"{found.because}; {effort}")
    return [found, _no_measure(measured, last[0])]


def _by_model(measured: SuMeasurements, attacks: tuple[SuAttack, ...]) -> list[str]:
    """Write the success of each attack with a random target on each model that it met."""
    lines = []
    for attack in attacks:
        rates = {model.label: measured.success(model, "random", attack) for model in measured.models}
        known = sorted((rate.value, label) for label, rate in rates.items() if rate and rate.total)
        if known:
            each = ", ".join(f"{label} {value:.0%}" for value, label in known)
            lines.append(f"{attack.name}, random target, by model: {each}.")
    return lines


def _no_measure(measured: SuMeasurements, attack: SuAttack) -> Finding:
    """Correlate failure at a large kappa with the distortion at kappa 0, over models."""
    from scipy.stats import spearmanr

    claim = "The success at a large kappa is no measure of robustness"
    published = "MobileNet-0.50-160 has nearly no success at kappa 40, and is among the most vulnerable in L2"
    metric = RMSD if measured.sizes_differ else LTWO
    points = measured.models_by(metric)
    found_rates = ((model.label, measured.success(model, "random", attack)) for model in measured.models)
    rates = {label: rate.value for label, rate in found_rates if rate is not None and rate.total}
    known = points[points["model"].isin(rates)] if len(points) else points
    failure = [1 - rates[name] for name in known["model"]] if len(known) else []
    if len(known) < 4 or len(set(failure)) < 2:
        why = "the success hardly differs between the models" if len(known) >= 4 else "too few models"
        return Finding(0, claim, "cannot be said", (f"There is no correlation: {why}.",), published, None, why)
    found = spearmanr(failure, known["value"])
    rho, chance = float(found.statistic), float(found.pvalue)
    sure = chance < LEVEL
    verdict: Verdict = "cannot be said" if not sure else "does not hold" if rho > 0 else "holds"
    ours = f"rank correlation of failure at {attack.name} with {metric.title}: "
    ours += f"{rho:+.2f} (p = {chance:.2g}, {len(known)} models)"
    because = "a clear correlation above zero would speak against it, one below zero for it"
    return Finding(0, claim, verdict, (ours + ".",), published, ours, because)


def _compared(measured: SuMeasurements, claim: str, published: str, parts: Parts) -> Finding:
    """Test that the first attack of each part succeeds more often than the second, over the same models and images."""
    found, reasons, few = [], [], 0
    verdicts: list[Verdict] = []
    for what, (goal, first, second) in parts.items():
        met = attacked(measured, goal, first, second)
        one, two = (by_image(measured, goal, attack, met) for attack in (first, second))
        found.append(Difference.of(one, two, len(parts)))
        refused = found[-1] is not None and _few(measured, met)
        few += refused
        verdicts.append("cannot be said" if found[-1] is None or refused else found[-1].verdict)
        some = "" if len(met) == len(measured.models) else f", {len(met)} of {len(measured.models)} models"
        reasons.append(f"{what}{some}: not run." if found[-1] is None else f"{what}{some}: {found[-1].text}.")
    verdict = combined(verdicts)
    ours = "; ".join(reason.rstrip(".") for reason in reasons)
    because = Difference.reason(verdict, found)
    if few:
        because += f"; {few} of {len(parts)} comparisons on fewer than half of the models say nothing"
    return Finding(0, claim, verdict, tuple(reasons), published, ours, because)


def _few(measured: SuMeasurements, met: tuple[StudiedModel, ...]) -> bool:
    """Say whether an attack met fewer than half of the models, which is too few for a verdict."""
    return 2 * len(met) < len(measured.models)
