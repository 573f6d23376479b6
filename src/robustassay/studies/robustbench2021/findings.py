"""The findings of Croce et al. (2021, section 4 and appendix F), tested on the models."""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import pandas as pd

from robustassay.analysis.compare import mcnemar, pair
from robustassay.analysis.shift import Trend, trend
from robustassay.studies.analyses import Analysis
from robustassay.studies.analyses.analysis import ADVERSARIAL, NATURAL, group
from robustassay.studies.analyses.model_measurements import ModelMeasurements, card_of
from robustassay.studies.measures.smoothness import OUTPUT
from robustassay.studies.page import Answer, Finding, Verdict, combined, numbered

LEVEL: Final = 0.05
Analyses = Mapping[str, Analysis]


def findings_of(measured: ModelMeasurements, made: Analyses) -> list[Finding]:
    """Test all seven."""
    claims: tuple[tuple[str, Callable[[ModelMeasurements, Analyses], Answer]], ...] = (
        ("Models that are robust lose clean accuracy", _cost),
        ("Robust accuracy goes with accuracy under distribution shift", _shift),
        ("Most models trained against attacks are underconfident", _calibration),
        ("Training against attacks makes out-of-distribution inputs harder to detect", _ood),
        ("Higher robust accuracy goes with less difference between classes", _fairness),
        ("Privacy leakage follows the generalisation gap, not robustness", _privacy),
        ("For a fixed architecture, natural training gives less smooth models", _smoothness),
    )
    return numbered((claim, test(measured, made)) for claim, test in claims)


def _cost(measured: ModelMeasurements, made: Analyses) -> Answer:
    """Compare the most robust model with the most accurate natural one, on the same images."""
    natural = [model for model in measured.models if group(model) == NATURAL]
    best = max(measured.models, key=lambda model: measured.robust(model).value)
    if not natural or best in natural:
        return "cannot be said", ["No natural model, or none more robust than it."]
    right = {model: pd.Series(measured.predictions(model).correct) for model in (*natural, best)}
    most_accurate = max(natural, key=lambda model: float(right[model].mean()))
    paired = pair(right[most_accurate], right[best])
    low, high = paired.interval()
    reason = (
        f"{most_accurate} {right[most_accurate].mean():.1%}, {best} {right[best].mean():.1%} clean: "
        f"{100 * paired.difference:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f}; p = {paired.chance:.2g}, "
        f"n = {paired.samples})."
    )
    sure = paired.chance < LEVEL
    return ("holds" if sure and paired.difference > 0 else "does not hold" if sure else "cannot be said"), [reason]


def _shift(measured: ModelMeasurements, made: Analyses) -> Answer:
    table = made["shift"].table
    found = trend(table["robust"], table["mean over shifts"])
    return _rises(found), [
        *made["shift"].notes,
        "Shifts are corruptions of the test images, unless --shift names others.",
    ]


def _calibration(measured: ModelMeasurements, made: Analyses) -> Answer:
    """Call a model underconfident if the interval of its accuracy minus its confidence lies above zero."""
    table = made["calibration"].table.set_index("model")
    own = [model for model in measured.models if group(model) == ADVERSARIAL]
    if not own:
        return "cannot be said", ["No model here was trained against attacks."]
    gaps = {model: _gap(measured, model) for model in own}
    under = [model for model, (low, _) in gaps.items() if low > 0]
    over = [model for model, (_, high) in gaps.items() if high < 0]
    reasons = [
        f"{model}: accuracy minus confidence {100 * low:+.1f} to {100 * high:+.1f} points (95 %), "
        f"temperature {table['temperature'].loc[model]:.2f}, ECE {table['ece'].loc[model]:.1%}."
        for model, (low, high) in gaps.items()
    ]
    verdict: Verdict = "cannot be said"
    if len(under) > len(own) / 2:
        verdict = "holds"
    elif len(over) > len(own) / 2:
        verdict = "does not hold"
    return verdict, reasons + list(made["calibration"].notes)


def _ood(measured: ModelMeasurements, made: Analyses) -> Answer:
    """Compare the AUROC of both kinds of training, per out-of-distribution dataset."""
    from scipy.stats import mannwhitneyu

    table = made["ood"].tables["ood-all"]
    kinds = table["model"].map(group)
    verdicts: list[Verdict] = []
    reasons = []
    for ood, own in table.groupby("ood", sort=False):
        natural, against = (own["auroc"][kinds[own.index] == kind] for kind in (NATURAL, ADVERSARIAL))
        if min(len(natural), len(against)) < 2:
            return "cannot be said", ["Fewer than two models of either kind of training."]
        chance = float(mannwhitneyu(natural, against).pvalue)
        lower = natural.mean() > against.mean()
        verdicts.append("cannot be said" if chance >= LEVEL else "holds" if lower else "does not hold")
        reasons.append(
            f"{ood}: mean AUROC {natural.mean():.3f} of {len(natural)} natural models, {against.mean():.3f} of "
            f"{len(against)} trained against attacks (Mann-Whitney p = {chance:.2g})."
        )
    reasons.append("Noise, scrambled and shuffled images replace the paper's CIFAR-100, SVHN and textures.")
    return combined(verdicts), reasons


def _fairness(measured: ModelMeasurements, made: Analyses) -> Answer:
    if "fairness" not in made:
        return "cannot be said", ["There are too few images per class to compare classes."]
    table = made["fairness"].table
    caution = "Part of the effect is arithmetic: by chance alone, a lower mean has a larger relative deviation."
    return _rises(trend(table["robust"], -table["robust_rsd"])), [*made["fairness"].notes, caution]


def _privacy(measured: ModelMeasurements, made: Analyses) -> Answer:
    if "privacy" not in made:
        return "cannot be said", ["It needs images that the models were trained on: name their dataset with --members."]
    table = made["privacy"].table
    own = table[table["images"] == "adversarial"]
    gap, robust = (trend(own[x], own["inference_accuracy"]) for x in ("gap", "robust"))
    follows = _rises(gap)
    verdict: Verdict = follows
    if follows == "holds" and robust.p_value < LEVEL:
        verdict = "does not hold"  # it follows robustness, too
    return verdict, list(made["privacy"].notes)


def _smoothness(measured: ModelMeasurements, made: Analyses) -> Answer:
    """Compare models of one architecture by sign tests of their relative Lipschitz estimates per image."""
    verdicts: list[Verdict] = []
    reasons = []
    for natural in (model for model in measured.models if group(model) == NATURAL):
        for other in (
            model for model in measured.models if group(model) == ADVERSARIAL and _same_architecture(model, natural)
        ):
            one, two = _relative(measured, natural), _relative(measured, other)
            larger, smaller = int((one > two).sum()), int((one < two).sum())
            chance = mcnemar(larger, smaller)
            if chance < LEVEL:
                verdicts.append("holds" if larger > smaller else "does not hold")
            else:
                verdicts.append("cannot be said")
            reasons.append(
                f"{natural} has a larger estimate than {other} at {larger} of {len(one)} images, by a factor of "
                f"{(one / two).median():.1f} at the median (sign test p = {chance:.2g})."
            )
    return combined(verdicts), reasons or ["No two models of one architecture, natural and trained against attacks."]


def _rises(found: Trend) -> Verdict:
    if found.p_value >= LEVEL:
        return "cannot be said"
    return "holds" if found.value > 0 else "does not hold"


def _gap(measured: ModelMeasurements, model: str) -> tuple[float, float]:
    """Return the 95 % interval of accuracy minus mean confidence."""
    from robustassay.analysis.calibration import confidences

    own = measured.predictions(model)
    each = own.correct - confidences(own.logits)
    reach = 1.96 * float(each.std(ddof=1)) / np.sqrt(len(each))
    return float(each.mean() - reach), float(each.mean() + reach)


def _relative(measured: ModelMeasurements, model: str) -> pd.Series:
    frame = measured.lipschitz(model)
    own = frame[frame["stage"] == OUTPUT].set_index("sample_id")
    return own["slope"] / own["size"].clip(lower=1e-12)


def _same_architecture(one: str, two: str) -> bool:
    first, second = card_of(one), card_of(two)
    return first is not None and second is not None and first.architecture == second.architecture
