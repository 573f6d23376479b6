"""Su et al.'s four findings (their abstract), each asked of the models at hand."""

import math
from collections.abc import Callable, Collection, Sequence
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
from robustassay.studies.page import Answer, Finding, Verdict, numbered
from robustassay.studies.su2018.bench import LINF, Bench, Metric, bootstrap
from robustassay.studies.su2018.tables import matrix, scatter

LEVEL: Final = 0.05
NEARLY_ALL: Final = 0.95
VGG: Final = "vgg"


def findings(bench: Bench) -> list[Finding]:
    """Ask all four."""
    asked: tuple[tuple[str, Callable[[Bench], Answer]], ...] = (
        ("L∞ and L2 distortion fall linearly with the logarithm of the classification error", _law),
        ("Architecture matters more to robustness than model size", _architecture),
        ("Within a family, deeper networks are slightly more robust in L∞", _depth),
        ("VGG examples transfer well, most others only within their family", _transfer),
    )
    return numbered((claim, ask(bench)) for claim, ask in asked)


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """Join the verdicts on the parts of a claim."""
    if not verdicts:
        return "cannot be said"
    if len(set(verdicts)) == 1:
        return verdicts[0]
    if "holds" in verdicts or "holds in part" in verdicts:
        return "holds in part"
    return "does not hold"


def _law(bench: Bench) -> Answer:
    """Fit the law to all models: a slope above zero is what the paper says."""
    verdicts: list[Verdict] = []
    reasons = []
    for metric in bench.metrics:
        points = bench.of_metric(metric)
        fitted = scatter(bench, metric) if len(points) else None
        if fitted is None or fitted.of_all is None:
            reasons.append(f"{metric.title}: fewer than three models, so no fit.")
            continue
        whole, (low, high) = fitted.of_all, fitted.of_all.b_interval
        if metric in bench.distortions:
            verdicts.append("holds" if low > 0 else "does not hold" if high < 0 else "cannot be said")
        told = f"{metric.title}: b = {whole.b:.3g} (95 % interval {low:.3g} to {high:.3g}, R² {whole.explained:.2f}, "
        told += f"{whole.models} models of accuracy {points['accuracy'].min():.1%} to {points['accuracy'].max():.1%})"
        on = points["model"][fitted.on_frontier].tolist()
        edge, middle = fitted.of_frontier, law.fit_law(points["accuracy"], points["median"])
        told += f"; of medians instead of means b = {middle.b:.3g} ({middle.b_interval[0]:.3g} to "
        told += f"{middle.b_interval[1]:.3g}); on the frontier ({', '.join(on)}) "
        told += "too few for a fit." if edge is None else f"b = {edge.b:.3g}, R² {edge.explained:.2f}."
        reasons.append(told + _lost(bench, metric))
    reasons.append(
        "The paper fits the models on the frontier alone; these are chosen so that accuracy costs robustness, and "
        "their slope cannot be negative. The verdict is about all models."
    )
    return together(verdicts), reasons


def _lost(bench: Bench, metric: Metric) -> str:
    """Say of which models too many distances are missing, because the attack failed, to speak of their mean."""
    name = bench.column_of(metric)
    column = next((one for one in bench.scale.columns() if one.name == name), None)
    rates = [(model.label, bench.success(model, bench.goal, column)) for model in bench.models if column is not None]
    few = [f"{label} {rate.value:.0%}" for label, rate in rates if rate is not None and rate.value < NEARLY_ALL]
    if not few:
        return ""
    return (
        f" Distances are those of successes, and here not nearly all succeed: {', '.join(few)}; these models look "
        "less robust than they are."
    )


def _architecture(bench: Bench) -> Answer:
    """Compare the variance between models that families explain with what size explains."""
    verdicts: list[Verdict] = []
    reasons = []
    for metric in bench.metrics:
        points = bench.of_metric(metric)
        points = points[points["parameters"].notna()] if len(points) else points
        if len(points) < 4 or points["family"].nunique() in (1, len(points)):
            reasons.append(f"{metric.title}: too few models, or no two of one family.")
            continue
        size = np.log10(points["parameters"].to_numpy(float))
        by_family = law.explained_by_group(points["value"], points["family"].tolist())
        by_size = law.explained_by_number(points["value"], size)
        if metric in bench.distortions:
            verdicts.append(_which(by_family, by_size))
        reasons.append(
            f"{metric.title}: family explains {by_family.share:.0%} of the variance between {len(points)} models "
            f"(adjusted for its {by_family.parameters + 1} means {by_family.adjusted:.0%}, p = {by_family.p_value:.2g} "
            f"by shuffling), log size {by_size.share:.0%} (adjusted {by_size.adjusted:.0%}, p = {by_size.p_value:.2g})."
        )
    return together(verdicts), reasons


def _which(family: law.Explained, size: law.Explained) -> Verdict:
    if math.isnan(family.adjusted):
        return "cannot be said"
    if family.adjusted > size.adjusted and family.p_value < LEVEL:
        return "holds"
    return "does not hold" if size.adjusted > family.adjusted and size.p_value < LEVEL else "cannot be said"


def _depth(bench: Bench) -> Answer:
    """Compare neighbours in depth, image by image, by sign tests of their L-inf distances."""
    pairs = []
    for family in dict.fromkeys(model.family for model in bench.models):
        own = sorted((m for m in bench.models if m.family == family and m.depth), key=lambda m: m.depth or 0)
        pairs += [(one, two) for one, two in pairwise(own) if one.depth != two.depth]
    told = []
    for shallow, deep in pairs:
        both = pd.concat([bench.values(shallow, LINF), bench.values(deep, LINF)], axis=1, join="inner")
        if len(both):
            before, after = (both.iloc[:, at].to_numpy(float) for at in (0, 1))
            ratio = float(np.median(after / np.maximum(before, 1e-12)))
            farther, nearer = int((after > before).sum()), int((after < before).sum())
            told.append((shallow.label, deep.label, ratio, mcnemar(farther, nearer), len(both)))
    verdicts: list[Verdict] = []
    reasons = []
    for (one, two, ratio, _, n), chance in zip(told, holm([one[3] for one in told]), strict=True):
        sure = chance < LEVEL
        verdicts.append("cannot be said" if not sure else "holds" if ratio > 1 else "does not hold")
        how = f"{abs(ratio - 1):.0%} {'larger' if ratio > 1 else 'smaller'}"
        reasons.append(f"{two} against {one}: median distance {how} (sign test p = {chance:.2g}, n = {n}).")
    return together(verdicts), reasons or ["No family has two models of different depth."]


@final
@dataclass(frozen=True, eq=False)
class _Held:
    """Whether each example (rows) fooled each target, by pairs; NaN where one of the two models does not know it."""

    pairs: dict[tuple[str, str], npt.NDArray[np.float64]]
    family: dict[str, str]

    def mean(self, sources: Collection[str], kin: bool) -> npt.NDArray[np.float64]:
        """Return, image by image, the mean over targets inside or outside of each source's family, but itself."""
        chosen = [
            held
            for (source, target), held in self.pairs.items()
            if source in sources and source != target and (self.family[source] == self.family[target]) == kin
        ]
        if not chosen:
            return np.full(1, np.nan)
        stack = np.stack(chosen)
        known = np.isfinite(stack).sum(0)
        return np.where(known > 0, np.nansum(stack, 0) / np.maximum(known, 1), np.nan)


def _held(bench: Bench, way: str) -> _Held:
    found = bench.outcomes["untargeted", way]
    right = found["source_ok"].astype(bool) & found["target_ok"]
    found = found.assign(held=holds(found, "error").astype(float).where(right))
    pairs = {
        (str(source), str(target)): part.sort_values("sample")["held"].to_numpy(float)
        for (source, target), part in found.groupby(["source", "target"])
    }
    return _Held(pairs, {model.name: model.family for model in bench.models})


def _transfer(bench: Bench) -> Answer:
    """Compare sources outside of their family, and the others' reach inside and outside of theirs."""
    verdicts: list[Verdict] = []
    reasons = []
    for goal, way in bench.outcomes:
        if goal != "untargeted" or not way.startswith((f"FGSM {format_eps(bench.scale.fixed / 255)}", "I-FGSM")):
            continue
        held = _held(bench, way)
        vgg = [model.name for model in bench.models if model.family == VGG]
        rest = [model.name for model in bench.models if model.family != VGG]
        outside = held.mean(rest, kin=False)
        for what, first in (
            ("VGG sources to other families", held.mean(vgg, kin=False)),
            ("other sources within their family", held.mean(rest, kin=True)),
        ):
            verdict, text = _difference(f"{way}: {what}", first, outside)
            verdicts.append(verdict)
            reasons.append(text)
        reach = {model.label: _average(held.mean([model.name], kin=False)) for model in bench.models}
        order = sorted((name for name in reach if not math.isnan(reach[name])), key=reach.__getitem__, reverse=True)
        reasons.append(f"{way}, by source, to other families: {', '.join(f'{n} {reach[n]:.1%}' for n in order)}.")
    reasons.append(_ranking(bench))
    return together(verdicts), reasons


def _difference(what: str, first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> tuple[Verdict, str]:
    if len(first) != len(second) or not np.isfinite(first - second).any():
        return "cannot be said", f"{what}: there are no such pairs of models."
    apart = first - second
    low, high = bootstrap(apart)
    verdict: Verdict = "holds" if low > 0 else "does not hold" if high < 0 else "cannot be said"
    return verdict, (
        f"{what} fool {_average(first):.1%}, other sources to other families {_average(second):.1%}: "
        f"{100 * _average(apart):+.1f} points (95 % interval {100 * low:+.1f} to {100 * high:+.1f}, "
        f"{int(np.isfinite(apart).sum())} images)."
    )


def _ranking(bench: Bench) -> str:
    rates = {}
    for goal, way in bench.outcomes:
        if goal == "untargeted":
            cells = matrix(bench, goal, way).rates.to_numpy(float)
            rates[way] = _average(cells[~np.eye(len(cells), dtype=bool)])
    order = sorted(rates, key=lambda way: -rates[way])
    return (
        "Untargeted, mean error rate on other models: "
        + ", ".join(f"{way} {rates[way]:.1%}" for way in order)
        + (" (the paper: FGSM, then I-FGSM, EAD-L1, C&W).")
    )


def _average(values: npt.NDArray[np.float64]) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")
