"""Su et al.'s four findings (their abstract), tested on the models."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from robustassay.analysis import law
from robustassay.analysis.compare import mcnemar
from robustassay.analysis.ranks import holm
from robustassay.analysis.transfer import holds
from robustassay.eps import format_eps
from robustassay.studies.page import Answer, Finding, Verdict, combined, numbered
from robustassay.studies.su2018.measurements import LINF, Metric, SuMeasurements, bootstrap
from robustassay.studies.su2018.tables import matrix

LEVEL: Final = 0.05
NEARLY_ALL: Final = 0.95
VGG: Final = "vgg"


def findings(measured: SuMeasurements) -> list[Finding]:
    """Test all four."""
    claims: tuple[tuple[str, Callable[[SuMeasurements], Answer]], ...] = (
        ("L∞ and L2 distortion fall linearly with the logarithm of the classification error", _law),
        ("Architecture matters more to robustness than model size", _architecture),
        ("Within a family, deeper networks are slightly more robust in L∞", _depth),
        ("VGG examples transfer well, most others only within their family", _transfer),
    )
    return numbered((claim, test(measured)) for claim, test in claims)


def _law(measured: SuMeasurements) -> Answer:
    """Fit the law to all models; the paper claims a slope above zero."""
    verdicts: list[Verdict] = []
    reasons = []
    for metric in measured.metrics:
        points = measured.models_by(metric)
        fitted = measured.scatter(metric) if len(points) else None
        if fitted is None or fitted.of_all is None:
            reasons.append(f"{metric.title}: fewer than three models, so no fit.")
            continue
        whole, (low, high) = fitted.of_all, fitted.of_all.b_interval
        if metric in measured.distortions:
            verdicts.append("holds" if low > 0 else "does not hold" if high < 0 else "cannot be said")
        line = f"{metric.title}: b = {whole.b:.3g} (95 % interval {low:.3g} to {high:.3g}, R² {whole.explained:.2f}, "
        line += f"{whole.models} models of accuracy {points['accuracy'].min():.1%} to {points['accuracy'].max():.1%})"
        on = points["model"][fitted.on_frontier].tolist()
        edge, middle = fitted.of_frontier, law.fit_law(points["accuracy"], points["median"])
        line += f"; of medians instead of means b = {middle.b:.3g} ({middle.b_interval[0]:.3g} to "
        line += f"{middle.b_interval[1]:.3g}); on the frontier ({', '.join(on)}) "
        line += "too few for a fit." if edge is None else f"b = {edge.b:.3g}, R² {edge.explained:.2f}."
        reasons.append(line + _unsuccessful(measured, metric))
    reasons.append(
        "The paper fits the models on the frontier alone; these are chosen so that accuracy costs robustness, and "
        "their slope cannot be negative. The verdict is about all models."
    )
    return combined(verdicts), reasons


def _unsuccessful(measured: SuMeasurements, metric: Metric) -> str:
    """Name the models whose mean distance misses too many failures of the attack to be trusted."""
    name = measured.attack_of(metric)
    attack = next((one for one in measured.settings.attacks() if one.name == name), None)
    rates = [(model.label, measured.success(model, measured.goal, attack)) for model in measured.models if attack]
    few = [f"{label} {rate.value:.0%}" for label, rate in rates if rate is not None and rate.value < NEARLY_ALL]
    if not few:
        return ""
    return (
        f" Distances are those of successes, and not nearly all succeed: {', '.join(few)}; these models look "
        "less robust than they are."
    )


def _architecture(measured: SuMeasurements) -> Answer:
    """Compare the share of variance that the family explains with the share that the size explains."""
    verdicts: list[Verdict] = []
    reasons = []
    for metric in measured.metrics:
        points = measured.models_by(metric)
        points = points[points["parameters"].notna()] if len(points) else points
        if len(points) < 4 or points["family"].nunique() in (1, len(points)):
            reasons.append(f"{metric.title}: too few models, or no two of one family.")
            continue
        size = np.log10(points["parameters"].to_numpy(float))
        by_family = law.explained_by_group(points["value"], points["family"].tolist())
        by_size = law.explained_by_number(points["value"], size)
        if metric in measured.distortions:
            verdicts.append(_which(by_family, by_size))
        reasons.append(
            f"{metric.title}: family explains {by_family.share:.0%} of the variance between {len(points)} models "
            f"(adjusted for its {by_family.parameters + 1} means {by_family.adjusted:.0%}, p = {by_family.p_value:.2g} "
            f"by shuffling), log size {by_size.share:.0%} (adjusted {by_size.adjusted:.0%}, p = {by_size.p_value:.2g})."
        )
    return combined(verdicts), reasons


def _which(family: law.Explained, size: law.Explained) -> Verdict:
    if math.isnan(family.adjusted):
        return "cannot be said"
    if family.adjusted > size.adjusted and family.p_value < LEVEL:
        return "holds"
    return "does not hold" if size.adjusted > family.adjusted and size.p_value < LEVEL else "cannot be said"


def _depth(measured: SuMeasurements) -> Answer:
    """Compare neighbours in depth by sign tests of their L-inf distances per image."""
    pairs = []
    for family in dict.fromkeys(model.family for model in measured.models):
        own = sorted((m for m in measured.models if m.family == family and m.depth), key=lambda m: m.depth or 0)
        pairs += [(one, two) for one, two in pairwise(own) if one.depth != two.depth]
    tests = []
    for shallow, deep in pairs:
        both = pd.concat([measured.values(shallow, LINF), measured.values(deep, LINF)], axis=1, join="inner")
        if len(both):
            before, after = (both.iloc[:, at].to_numpy(float) for at in (0, 1))
            ratio = float(np.median(after / np.maximum(before, 1e-12)))
            farther, nearer = int((after > before).sum()), int((after < before).sum())
            tests.append((shallow.label, deep.label, ratio, mcnemar(farther, nearer), len(both)))
    verdicts: list[Verdict] = []
    reasons = []
    for (one, two, ratio, _, n), chance in zip(tests, holm([one[3] for one in tests]), strict=True):
        sure = chance < LEVEL
        verdicts.append("cannot be said" if not sure else "holds" if ratio > 1 else "does not hold")
        how = f"{abs(ratio - 1):.0%} {'larger' if ratio > 1 else 'smaller'}"
        reasons.append(f"{two} against {one}: median distance {how} (sign test p = {chance:.2g}, n = {n}).")
    return combined(verdicts), reasons or ["No family has two models of different depth."]


@final
@dataclass(frozen=True, eq=False)
class _Transferred:
    """Whether each example transferred, per pair of models; NaN where either is wrong on the clean image."""

    pairs: dict[tuple[str, str], npt.NDArray[np.float64]]
    family: dict[str, str]

    def mean(self, sources: Collection[str], same_family: bool) -> npt.NDArray[np.float64]:
        """Return, per image, the mean over targets inside or outside of each source's family, without the source."""
        chosen = [
            held
            for (source, target), held in self.pairs.items()
            if source in sources and source != target and (self.family[source] == self.family[target]) == same_family
        ]
        if not chosen:
            return np.full(1, np.nan)
        stack = np.stack(chosen)
        known = np.isfinite(stack).sum(0)
        return np.where(known > 0, np.nansum(stack, 0) / np.maximum(known, 1), np.nan)


def _transferred(measured: SuMeasurements, attack: str) -> _Transferred:
    found = measured.outcomes["untargeted", attack]
    right = found["source_ok"].astype(bool) & found["target_ok"]
    found = found.assign(held=holds(found, "error").astype(float).where(right))
    pairs = {
        (str(source), str(target)): part.sort_values("sample")["held"].to_numpy(float)
        for (source, target), part in found.groupby(["source", "target"])
    }
    return _Transferred(pairs, {model.name: model.family for model in measured.models})


def _transfer(measured: SuMeasurements) -> Answer:
    """Compare VGG with other sources outside of their family, and the others inside and outside of theirs."""
    verdicts: list[Verdict] = []
    reasons = []
    for goal, attack in measured.outcomes:
        if goal != "untargeted" or not attack.startswith(
            (f"FGSM {format_eps(measured.settings.fixed / 255)}", "I-FGSM")
        ):
            continue
        held = _transferred(measured, attack)
        vgg = [model.name for model in measured.models if model.family == VGG]
        rest = [model.name for model in measured.models if model.family != VGG]
        outside = held.mean(rest, same_family=False)
        for what, first in (
            ("VGG sources to other families", held.mean(vgg, same_family=False)),
            ("other sources within their family", held.mean(rest, same_family=True)),
        ):
            verdict, text = _difference(f"{attack}: {what}", first, outside)
            verdicts.append(verdict)
            reasons.append(text)
        reach = {model.label: _average(held.mean([model.name], same_family=False)) for model in measured.models}
        order = sorted((name for name in reach if not math.isnan(reach[name])), key=reach.__getitem__, reverse=True)
        reasons.append(f"{attack}, by source, to other families: {', '.join(f'{n} {reach[n]:.1%}' for n in order)}.")
    reasons.append(_ranking(measured))
    return combined(verdicts), reasons


def _difference(what: str, first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> tuple[Verdict, str]:
    if len(first) != len(second) or not np.isfinite(first - second).any():
        return "cannot be said", f"{what}: there is no such pair of models."
    apart = first - second
    low, high = bootstrap(apart)
    verdict: Verdict = "holds" if low > 0 else "does not hold" if high < 0 else "cannot be said"
    return verdict, (
        f"{what}: {_average(first):.1%}, other sources to other families: {_average(second):.1%}; "
        f"{100 * _average(apart):+.1f} points (95 % interval {100 * low:+.1f} to {100 * high:+.1f}, "
        f"{int(np.isfinite(apart).sum())} images)."
    )


def _ranking(measured: SuMeasurements) -> str:
    rates = {}
    for goal, attack in measured.outcomes:
        if goal == "untargeted":
            cells = matrix(measured, goal, attack).rates.to_numpy(float)
            rates[attack] = _average(cells[~np.eye(len(cells), dtype=bool)])
    order = sorted(rates, key=lambda attack: -rates[attack])
    return (
        "Untargeted, mean error rate on other models: "
        + ", ".join(f"{attack} {rates[attack]:.1%}" for attack in order)
        + (" (the paper: FGSM, then I-FGSM, EAD-L1, C&W).")
    )


def _average(values: npt.NDArray[np.float64]) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")
