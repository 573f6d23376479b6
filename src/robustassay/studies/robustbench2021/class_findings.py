"""The findings about classes: how far robust accuracy is spread over them, and the class deer."""

from typing import Final

import numpy as np
import pandas as pd

from robustassay.analysis.rates import unbroken
from robustassay.analysis.shift import trend
from robustassay.studies.analyses.analysis import ADVERSARIAL, L2_TRAINED, NATURAL, group
from robustassay.studies.analyses.model_measurements import TEST
from robustassay.studies.page import Verdict, combined
from robustassay.studies.robustbench2021.answers import LEVEL, Outcome, rises, trend_text, unknown
from robustassay.studies.robustbench2021.further_runs import L2
from robustassay.studies.robustbench2021.measurements import RobustBenchMeasurements
from robustassay.studies.robustbench2021.settings import L2_THREAT

PER_CLASS: Final = 50
"""Images of every class without which the spread over classes is mostly chance; ours."""


def fairness(study: RobustBenchMeasurements) -> Outcome:
    """Correlate robust accuracy with the spread over classes that chance does not explain."""
    if "fairness" not in study.analyses:
        return unknown("too few images per class, or not measured yet")
    table = study.analyses["fairness"].table
    own = table[(table["robust"] > 0) & (table["model"].map(group) != NATURAL)]
    if own.empty:
        return unknown("no model but natural ones keeps some robust accuracy")
    classes = study.analyses["fairness"].tables["fairness-classes"]
    images = int(classes[classes["model"].isin(own["model"])]["images"].min())
    if images < PER_CLASS:
        return unknown(f"{images} images of a class are too few: chance explains most of the spread")
    beyond = np.sqrt((own["robust_rsd"] ** 2 - own["robust_rsd_by_chance"] ** 2).clip(lower=0))
    found = trend(own["robust"], -beyond)
    in_points = trend_text(trend(own["robust"], own["robust_rsd"] * own["robust"]))
    text = f"robust accuracy and RSD beyond chance: {trend_text(trend(own['robust'], beyond))}"
    reasons = (
        *study.analyses["fairness"].notes,
        f"Robust accuracy and the standard deviation over classes in points, not divided by the mean: {in_points}.",
    )
    because = "RSD, as in the paper, less what equal classes would show by chance; it is divided by the mean"
    return Outcome(rises(found), f"{text}; and standard deviation in points: {in_points}", because, reasons)


def deer(study: RobustBenchMeasurements) -> Outcome:
    """Compare the share of clean accuracy that deer keep with that of all other classes, model by model.

    Models share their images, so the test is over images, within each model.
    """
    classes = study.analyses["fairness"].tables["fairness-classes"] if "fairness" in study.analyses else pd.DataFrame()
    if "deer" not in set(classes.get("class", ())):
        return unknown("no class of this name, or not measured yet")
    own = classes[[group(model) == ADVERSARIAL for model in classes["model"]]]
    found = [_deer(str(model), part.set_index("class")) for model, part in own.groupby("model")]
    if not found:
        return unknown("no model was trained against L∞ attacks")
    verdicts, kept, others, lowest, reasons = zip(*found, strict=True)
    least = sorted(set(lowest) - {"deer"})
    text = (
        f"deer keep {100 * min(kept):.0f} to {100 * max(kept):.0f} % of their clean accuracy, all other classes "
        f"{100 * min(others):.0f} to {100 * max(others):.0f} %; significantly less in {verdicts.count('holds')} of "
        f"{len(found)} models trained against L∞ attacks"
    )
    because = (
        f"Fisher's exact test over images, per model; deer lowest of all in {lowest.count('deer')} of {len(found)}"
    )
    because += f", else {' or '.join(least)}" if least else ""
    return Outcome(combined(verdicts), text, because, (*reasons, *deer_under_l2(study)))


def deer_under_l2(study: RobustBenchMeasurements) -> list[str]:
    """Count deer under L2 attacks on models trained against these, where the paper sees no such degradation."""
    found = []
    for name, result in study.results.items():
        if name[1:] != ("run", L2) or group(name[0]) != L2_TRAINED:
            continue
        right = result.records[result.records["clean_ok"].astype(bool)]
        is_deer = right["label"] == study.setup.datasets[TEST].classes.index("deer")
        kept = [unbroken(part) for part in (right[is_deer], right[~is_deer])]
        deer, others = (f"{one.mean():.0%} ({one.sum()} of {len(one)} images)" for one in kept)
        found.append(f"{name[0]} under {L2_THREAT}: deer keep {deer} of their clean accuracy, all others {others}.")
    return found


def _deer(model: str, classes: pd.DataFrame) -> tuple[Verdict, float, float, str, str]:
    """Return the verdict on one model, the share kept by deer and by all others, the lowest class, and a sentence."""
    from scipy.stats import fisher_exact

    clean, robust = ((classes[kind] * classes["images"]).round() for kind in ("clean", "robust"))
    own, rest = ((int(robust[at].sum()), int(clean[at].sum())) for at in (["deer"], classes.index != "deer"))
    chance = float(fisher_exact([[own[0], own[1] - own[0]], [rest[0], rest[1] - rest[0]]]).pvalue)
    kept, others = (one / max(1, of) for one, of in (own, rest))
    lowest = str((robust / clean.clip(lower=1.0)).idxmin())
    verdict: Verdict = "cannot be said" if chance >= LEVEL else "holds" if kept < others else "does not hold"
    sentence = (
        f"{model}: deer keep {kept:.0%} of their clean accuracy ({own[0]} of {own[1]} images), all other classes "
        f"{others:.0%} ({rest[0]} of {rest[1]}), p = {chance:.1g}; lowest: {lowest}."
    )
    return verdict, kept, others, lowest, sentence
