"""Findings on distortion: the law, architecture against size, depth (sections 3.2 and 3.3)."""

import math
from itertools import combinations
from typing import Final

import numpy as np
import pandas as pd

from robustassay.analysis import law
from robustassay.analysis.compare import mcnemar
from robustassay.analysis.ranks import holm
from robustassay.studies.page import Finding, Verdict, combined, comma_list
from robustassay.studies.su2018.measurements import LINF, LTWO, RMSD, Metric, SuMeasurements
from robustassay.studies.su2018.models import StudiedModel
from robustassay.studies.su2018.settings import GOAL_TEXTS

LEVEL: Final = 0.05
FEWEST: Final = 10
"""Images of every model that a verdict on mean distances needs."""
NEARLY_ALL: Final = 0.95
PAPER_HALVING: Final = 0.02
"""L∞ distortion lost per halving of the error in the paper, of pixels in [0, 1]."""
DEEPER_IS_BETTER: Final = frozenset({"densenet", "resnet", "inception"})
"""The families that the paper's finding on depth is about."""

PUBLISHED: Final = {
    LINF: "0.02 less per halving of the error, 60 % of AlexNet's distortion (that is 0.033, or 8.5/255); fitted to the "
    "6 of 18 models on the frontier",
    LTWO: "linear in the logarithm of the error (Figure 2b); the text prints no number",
    RMSD: "not in the paper",
}
CLAIMS: Final = {
    LINF: "The L∞ distortion of I-FGSM falls linearly with the logarithm of the classification error",
    LTWO: "The L2 distortion of C&W, divided by the number of pixels, falls linearly with the logarithm of the error",
    RMSD: "The RMSD of C&W, L2 over the root of the number of values, falls linearly with the logarithm of the error",
}


def distortion_findings(measured: SuMeasurements) -> list[Finding]:
    """Test the law of each distortion, then architecture and depth."""
    laws = [_law(measured, metric) for metric in (LINF, LTWO, RMSD) if metric in measured.metrics]
    return [*laws, _architecture(measured), _depth(measured)]


def _law(measured: SuMeasurements, metric: Metric) -> Finding:
    """Fit the law to all models; the paper claims a slope above zero."""
    points = measured.models_by(metric)
    fitted = measured.scatter(metric) if len(points) else None
    claim, published = CLAIMS[metric], PUBLISHED[metric]
    if fitted is None or fitted.of_all is None:
        why = "fewer than three models of different accuracy"
        return Finding(0, claim, "cannot be said", (f"There is no fit: {why}.",), published, None, why)
    whole, (low, high) = fitted.of_all, fitted.of_all.b_interval
    verdict: Verdict = "holds" if low > 0 else "does not hold" if high < 0 else "cannot be said"
    all_of = "all " if whole.models == len(measured.models) else "only "
    because = f"the slope over {all_of}{whole.models} models " + {
        "holds": "is above zero; another curve than a line is not ruled out",
        "does not hold": "is below zero",
        "cannot be said": "may be zero",
    }.get(verdict, "")
    medians = law.try_fit(points["accuracy"], points["median"])
    if verdict == "holds" and (medians is None or medians.b_interval[0] <= 0):
        # A mean may rest on few images that are very far from the boundary.
        verdict, because = "cannot be said", f"over {whole.models} models the slope of medians may be zero"
    leaning = _families_needed(points) if verdict == "holds" else []
    if leaning:
        # One family carries the slope: a law of accuracy would not need it.
        without = leaning[0] if len(leaning) == 1 else f"any one of {comma_list(leaning)}"
        verdict = "cannot be said"
        because = f"the slope over {all_of}{whole.models} models is above zero, but without {without} it may be zero"
    if metric not in measured.distortions:
        verdict, because = (
            "cannot be said",
            "inputs differ in size, and L2 over pixels falls as inputs grow: confounded",
        )
    few, many = int(points["images"].min()), int(points["images"].max())
    if few < FEWEST:
        verdict, because = "cannot be said", f"fewer than {FEWEST} images of some model"
    ends = [end * math.log(2) for end in (low, high)]
    ours = f"{whole.halving():.2g} less per halving ({ends[0]:.2g} to {ends[1]:.2g}; {whole.models} models, "
    ours += f"{few if few == many else f'{few} to {many}'} images each)"
    return Finding(0, claim, verdict, (*_law_reasons(measured, metric), *_unsuccessful(measured, metric)),
                   published, ours, because)  # fmt: skip


def _families_needed(points: pd.DataFrame) -> list[str]:
    """Name the families without which the slope may be zero."""
    needed = []
    for family in dict.fromkeys(points["family"]):
        rest = points[points["family"] != family]
        fitted = law.try_fit(rest["accuracy"], rest["value"])
        if fitted is None or fitted.b_interval[0] <= 0:
            needed.append(str(family))
    return needed


def _law_reasons(measured: SuMeasurements, metric: Metric) -> list[str]:
    points, fitted = measured.models_by(metric), measured.scatter(metric)
    lines = [f"Accuracies reach from {points['accuracy'].min():.1%} to {points['accuracy'].max():.1%}, means from "
             f"{points['value'].min():.3g} to {points['value'].max():.3g}."]  # fmt: skip
    common = measured.scatter(metric, on_common=True) if len(measured.models_by(metric, on_common=True)) else None
    fits = {
        "All models, means": fitted.of_all,
        "All models, medians": law.try_fit(points["accuracy"], points["median"]),
        f"All models, means over the {len(measured.common)} images that all classify correctly": common
        and common.of_all,
        f"Models on the frontier ({', '.join(points['model'][fitted.on_frontier])})": fitted.of_frontier,
    }
    for what, one in fits.items():
        if one is None:
            lines.append(f"{what}: too few for a fit.")
            continue
        low, high = one.b_interval
        lines.append(f"{what}: b = {one.b:.3g} ({low:.3g} to {high:.3g}), R² {one.explained:.2f}.")
    lines += _law_of_other_goals(measured, metric)
    lines.append(
        "The paper fits the models on the frontier alone; these are chosen so that accuracy costs robustness, and "
        "their slope cannot be negative. The verdict is about all models."
    )
    return lines


def _law_of_other_goals(measured: SuMeasurements, metric: Metric) -> list[str]:
    """Fit the means with every other goal that all models have; of the least likely target the paper says the same."""
    lines = []
    for goal in measured.settings.goals:
        means = [measured.values(model, metric, goal).mean() for model in measured.models]
        if goal == measured.goal or not np.isfinite(means).all():
            continue
        fitted = law.try_fit([measured.accuracy(model) for model in measured.models], means)
        if fitted is not None:
            low, high = fitted.b_interval
            lines.append(f"{GOAL_TEXTS[goal].capitalize()}, all models, means: b = {fitted.b:.3g} ({low:.3g} to "
                         f"{high:.3g}), R² {fitted.explained:.2f}.")  # fmt: skip
    return lines


def _unsuccessful(measured: SuMeasurements, metric: Metric) -> list[str]:
    """Name the models whose mean distance misses too many failures of the attack to be trusted."""
    name = measured.attack_of(metric)
    attack = next((one for one in measured.settings.attacks() if one.name == name), None)
    rates = [(model.label, measured.success(model, measured.goal, attack)) for model in measured.models if attack]
    few = [f"{label} {rate.value:.0%}" for label, rate in rates if rate is not None and rate.value < NEARLY_ALL]
    if not few:
        return []
    return [
        f"Distances are those of successes, and not nearly all succeed: {', '.join(few)}; these models look "
        "less robust than they are."
    ]


def _architecture(measured: SuMeasurements) -> Finding:
    """Compare the share of variance that the family explains with the share that the size explains."""
    verdicts: list[Verdict] = []
    reasons, ours, few = [], [], False
    for metric in measured.metrics:
        points = measured.models_by(metric)
        points = points[points["parameters"].notna()] if len(points) else points
        if len(points) < 4 or points["family"].nunique() in (1, len(points)):
            reasons.append(f"{metric.title}: too few models, or no two of one family.")
            verdicts += ["cannot be said"] if metric in measured.distortions else []
            continue
        size = np.log10(points["parameters"].to_numpy(float))
        by_family = law.explained_by_group(points["value"], points["family"].tolist())
        by_size = law.explained_by_number(points["value"], size)
        if metric in measured.distortions:
            few |= bool(points["images"].min() < FEWEST)
            verdicts.append("cannot be said" if points["images"].min() < FEWEST else _which(by_family, by_size))
            ours.append(
                f"{metric.title} ({len(points)} models): family {by_family.adjusted:.0%}, size {by_size.adjusted:.0%}"
            )
        reasons.append(
            f"{metric.title}: family explains {by_family.share:.0%} of the variance between {len(points)} models "
            f"(adjusted for its {by_family.parameters + 1} means {by_family.adjusted:.0%}, p = {by_family.p_value:.2g} "
            f"by shuffling), log size {by_size.share:.0%} (adjusted {by_size.adjusted:.0%}, p = {by_size.p_value:.2g})"
            + ("." if metric in measured.distortions else "; no verdict uses it.")
            + _order(points)
        )
    verdict = combined(verdicts)
    if verdict == "does not hold" and set(verdicts) != {verdict}:
        verdict = "cannot be said"  # one distortion, perhaps of fewer models, is not enough
    because = {
        "holds": "family explains more, and more than chance, in every distortion",
        "does not hold": "size explains more, and more than chance, in every distortion",
        "cannot be said": "neither explains clearly more than chance and than the other in every distortion",
    }[verdict]
    if verdict == "cannot be said" and len(ours) < len(measured.distortions):
        because = "too few models, or no two of one family"
    elif verdict == "cannot be said" and few:
        because = f"fewer than {FEWEST} images of some model in a distortion"
    measured_text = "; ".join(ours) + " of the variance, adjusted" if ours else None
    published = "no number: AlexNet (60 million parameters) is the most robust, MobileNet-0.50 (1.5) among the least"
    claim = "Architecture matters more to robustness than model size"
    return Finding(0, claim, verdict, tuple(reasons), published, measured_text, because)


def _order(points: pd.DataFrame) -> str:
    """Name the models by their distortion, the most robust first."""
    ordered = points.sort_values("value", ascending=False)
    return f" From the most robust: {', '.join(ordered['model'])}."


def _which(family: law.Explained, size: law.Explained) -> Verdict:
    if math.isnan(family.adjusted):
        return "cannot be said"
    if family.adjusted > size.adjusted and family.p_value < LEVEL:
        return "holds"
    return "does not hold" if size.adjusted > family.adjusted and size.p_value < LEVEL else "cannot be said"


def _depth(measured: SuMeasurements) -> Finding:
    """Compare neighbours in depth by sign tests of their L∞ distances per image."""
    tests = []
    for shallow, deep in depth_pairs(tuple(one for one in measured.models if one.family in DEEPER_IS_BETTER)):
        both = pd.concat([measured.values(shallow, LINF), measured.values(deep, LINF)], axis=1, join="inner")
        if len(both):
            before, after = (both.iloc[:, at].to_numpy(float) for at in (0, 1))
            ratio = float(np.median(after / np.maximum(before, 1e-12)))
            farther, nearer = int((after > before).sum()), int((after < before).sum())
            tests.append((shallow, deep, ratio, mcnemar(farther, nearer), len(both)))
    verdicts: list[Verdict] = []
    reasons = []
    for (one, two, ratio, _, n), chance in zip(tests, holm([one[3] for one in tests]), strict=True):
        sure = chance < LEVEL
        verdicts.append("cannot be said" if not sure else "holds" if ratio > 1 else "does not hold")
        how = f"{abs(ratio - 1):.0%} {'larger' if ratio > 1 else 'smaller'}"
        pair = f"{two.label} ({_size(two)}) against {one.label} ({_size(one)})"
        reasons.append(f"{pair}: median distance {how} (sign test p = {chance:.2g}, n = {n}).")
    counts = {verdict: verdicts.count(verdict) for verdict in ("holds", "does not hold", "cannot be said")}
    ours = f"pairs: {len(tests)}; the deeper is surely more robust in {counts['holds']}, surely less in "
    ours += f"{counts['does not hold']}"
    because = "each pair by a sign test over images, Holm"
    if not tests:
        because = "no two DenseNets, ResNets or Inception networks of one kind differ in depth"
        reasons = [f"{because[0].upper()}{because[1:]}."]
    claim = "Among DenseNets, ResNets and Inception networks, the deeper are slightly more robust in L∞"
    published = "a slight improvement; no number"
    return Finding(0, claim, combined(verdicts), tuple(reasons), published, ours if tests else None, because)


def _size(model: StudiedModel) -> str:
    """Give the depth, and the parameters, in which networks of one kind may differ by their width, too."""
    return f"{model.depth} layers" + (f", {model.parameters:,} parameters" if model.parameters else "")


def depth_pairs(models: tuple[StudiedModel, ...]) -> list[tuple[StudiedModel, StudiedModel]]:
    """Return networks of one kind, neighbours in depth, the shallower first."""
    pairs = []
    for one, two in combinations(sorted((m for m in models if m.depth), key=lambda m: m.depth or 0), 2):
        alike = [m.depth for m in models if (m.family, m.kind) == (one.family, one.kind) and m.depth]
        between = any((one.depth or 0) < depth < (two.depth or 0) for depth in alike)
        if (one.family, one.kind) == (two.family, two.kind) and one.depth != two.depth and not between:
            pairs.append((one, two))
    return pairs
