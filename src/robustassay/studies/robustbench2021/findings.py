"""The findings of Croce et al. (2021, section 4 and appendices E and F), tested on the models measured here."""

from typing import Final

import numpy as np
import pandas as pd

from robustassay.analysis.compare import pair
from robustassay.analysis.shift import trend
from robustassay.studies.analyses.analysis import ADVERSARIAL, NATURAL, group
from robustassay.studies.analyses.model_measurements import MEMBERS, ModelMeasurements
from robustassay.studies.page import Finding, Verdict, combined, comma_list
from robustassay.studies.robustbench2021.answers import (
    LEVEL,
    Claim,
    Outcome,
    findings_of,
    rises,
    trend_text,
    unknown,
)
from robustassay.studies.robustbench2021.class_findings import deer, fairness
from robustassay.studies.robustbench2021.l2_models import l2_models
from robustassay.studies.robustbench2021.measurements import RobustBenchMeasurements
from robustassay.studies.robustbench2021.published_entries import CLAIMS as PUBLISHED_CLAIMS
from robustassay.studies.robustbench2021.repeated_runs import restarts, seeds
from robustassay.studies.robustbench2021.smoothness import same_architecture, smoothness

MADE: Final = frozenset({"noise", "scrambled", "shuffled"})
"""Out-of-distribution images made from the test images, where no other dataset is given."""

STRONG: Final = 0.5
"""Transfer is called strong where it misleads half as often as an attack on the target itself; ours."""


def findings(study: RobustBenchMeasurements) -> list[Finding]:
    """Test the statements about published entries, then those about models."""
    first = findings_of(PUBLISHED_CLAIMS, study)
    return [*first, *findings_of(CLAIMS, study, len(first) + 1)]


def _cost(study: RobustBenchMeasurements) -> Outcome:
    """Compare the most robust model with the most accurate natural one, on the same images."""
    measured = study.measured
    natural = [model for model in measured.models if group(model) == NATURAL]
    best = max(measured.models, key=lambda model: measured.robust(model).value)
    if not natural or best in natural:
        return unknown("no natural model, or none less robust than another")
    right = {model: pd.Series(measured.predictions(model).correct) for model in (*natural, best)}
    most_accurate = max(natural, key=lambda model: float(right[model].mean()))
    paired = pair(right[most_accurate], right[best])
    low, high = paired.interval()
    text = (
        f"{most_accurate} {right[most_accurate].mean():.1%}, {best} {right[best].mean():.1%} clean: "
        f"{100 * paired.difference:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f}; n = {paired.samples} images)"
    )
    sure = paired.chance < LEVEL
    verdict: Verdict = "holds" if sure and paired.difference > 0 else "does not hold" if sure else "cannot be said"
    reasons = (f"{text}.", *_same_architecture_costs(measured, natural))
    return Outcome(verdict, text, f"exact McNemar test, p = {paired.chance:.1g}", reasons)


def _same_architecture_costs(measured: ModelMeasurements, natural: list[str]) -> list[str]:
    """Compare clean accuracy within each architecture, as the best models of either kind differ in theirs."""
    found = []
    for one in natural:
        for other in measured.models:
            if group(other) == ADVERSARIAL and same_architecture(one, other):
                paired = pair(*(pd.Series(measured.predictions(model).correct) for model in (one, other)))
                low, high = paired.interval()
                points = f"{100 * paired.difference:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})"
                found.append(f"Of one architecture: {one} against {other} {points}.")
    return found


def _shift(study: RobustBenchMeasurements) -> Outcome:
    """Correlate over the models that were not trained on clean images only: the paper's are robust models."""
    if "shift" not in study.analyses:
        return unknown("not measured yet")
    table = study.analyses["shift"].table
    own = table[[group(model) != NATURAL for model in table["model"]]]
    shifts = [name for name in table if f"{name}, share kept" in table]
    found = {name: trend(own["robust"], own[name]) for name in shifts}
    reasons = [f"Models trained otherwise than naturally, {name}: {trend_text(one)}." for name, one in found.items()]
    clean = trend(own["robust"], own["test"])
    reasons += [f"Robust and clean accuracy of the same models: {trend_text(clean)}.", *study.analyses["shift"].notes]
    verdict = combined([rises(one) for one in found.values()])
    text = "; ".join(f"{name}: {trend_text(one)}" for name, one in found.items())
    because = {"holds": "on every shift", "does not hold": "not on every shift"}.get(
        verdict, f"chance may explain it, with {len(own)} models trained otherwise than naturally"
    )
    return Outcome(verdict, text, because, tuple(reasons))


def _robust_shift(study: RobustBenchMeasurements) -> Outcome:
    if "robust-shift" not in study.analyses:
        return unknown("not measured yet")
    table = study.analyses["robust-shift"].table
    own = table[[group(model) != NATURAL for model in table["model"]]]
    found = {str(data): trend(part["robust"], part["robust_under_shift"]) for data, part in own.groupby("data")}
    verdict = combined([rises(one) for one in found.values()])
    text = "; ".join(f"{name}: {trend_text(one)}" for name, one in found.items())
    every = sum(group(model) != NATURAL for model in study.setup.models)
    because = f"{own['model'].nunique()} of the {every} models trained otherwise than naturally"
    return Outcome(verdict, text, because, (*study.analyses["robust-shift"].notes, f"Among these: {text}."))


def _calibration(study: RobustBenchMeasurements) -> Outcome:
    """Call a model underconfident if the interval of its accuracy minus its confidence lies above zero."""
    if "calibration" not in study.analyses:
        return unknown("not measured yet")
    table, measured = study.analyses["calibration"].table.set_index("model"), study.measured
    own = [model for model in table.index if group(model) == ADVERSARIAL]
    if not own:
        return unknown("no model was trained against attacks")
    gaps = {model: _gap(measured, model) for model in own}
    under = [model for model, (low, _) in gaps.items() if low > 0]
    over = [model for model, (_, high) in gaps.items() if high < 0]
    reasons = [
        f"{model}: accuracy minus confidence {100 * low:+.1f} to {100 * high:+.1f} points (95 %), "
        f"temperature {table['temperature'].loc[model]:.2f}, ECE {table['ece'].loc[model]:.1%}."
        for model, (low, high) in gaps.items()
    ]
    natural = [model for model in table.index if group(model) == NATURAL]
    mean = float(table.loc[own, "ece"].mean())
    text = f"{len(under)} of {len(own)} underconfident, {len(over)} overconfident; mean ECE {mean:.1%}"
    text += f", of {len(natural)} natural models {float(table.loc[natural, 'ece'].mean()):.1%}" if natural else ""
    cooled = int((table.loc[own, "temperature"] < 1).sum())
    text += f"; the best temperature is below 1 in {cooled}; n = {len(measured.predictions(own[0]).labels)} images"
    verdict: Verdict = "cannot be said"
    if len(under) > len(own) / 2:
        verdict = "holds"
    elif len(over) > len(own) / 2:
        verdict = "does not hold"
    return Outcome(verdict, text, "95 % interval of accuracy minus confidence, per model", tuple(reasons))


def _ood(study: RobustBenchMeasurements) -> Outcome:
    """Compare the AUROC of both kinds of training, per out-of-distribution dataset."""
    from scipy.stats import mannwhitneyu

    if "ood" not in study.analyses:
        return unknown("not measured yet")
    table = study.analyses["ood"].tables["ood-all"]
    verdicts: list[Verdict] = []
    kinds, texts, reasons = table["model"].map(group), [], []
    made = set(table["ood"]) <= MADE
    for name, own in table.groupby("ood", sort=False):
        natural, against = (own["auroc"][kinds[own.index] == kind] for kind in (NATURAL, ADVERSARIAL))
        if min(len(natural), len(against)) < 2:
            return unknown("fewer than two models of either kind of training")
        chance = float(mannwhitneyu(natural, against).pvalue)
        text = (
            f"{name}: mean AUROC {natural.mean():.3f} of {len(natural)} natural models, {against.mean():.3f} of "
            f"{len(against)} trained against L∞ attacks (p = {chance:.1g})"
        )
        reasons += [f"{text}.", *_same_architecture_areas(own.set_index("model")["auroc"])]
        lower = natural.mean() > against.mean()
        verdicts.append("cannot be said" if chance >= LEVEL else "holds" if lower else "does not hold")
        texts.append(text)
    because = f"Mann-Whitney test over models, {len(texts)} dataset{'s' * (len(texts) > 1)}" + (
        "; images made from the test images only" if made else ""
    )
    return Outcome(combined(verdicts), "; ".join(texts), because, tuple(reasons))


def _same_architecture_areas(areas: "pd.Series[float]") -> list[str]:
    """Compare within each architecture, as the two kinds of models differ in theirs, too."""
    return [
        f"Of one architecture: {one} {areas[one]:.3f}, {other} {areas[other]:.3f}."
        for one in areas.index
        for other in areas.index
        if (group(one), group(other)) == (NATURAL, ADVERSARIAL) and same_architecture(one, other)
    ]


def _privacy(study: RobustBenchMeasurements) -> Outcome:
    if "privacy" not in study.analyses:
        named = MEMBERS in study.setup.datasets
        return unknown("not measured yet" if named else "it needs images that the models were trained on (--members)")
    table = study.analyses["privacy"].table
    own = table[table["images"] == "adversarial"]
    gap, robust = (trend(own[x], own["inference_accuracy"]) for x in ("gap", "robust"))
    above = 100 * float((own["inference_accuracy"] - own["baseline"]).max())
    text = f"with the gap: {trend_text(gap)}; with robust accuracy: {trend_text(robust)}; at most {above:.1f} points "
    text += "above the baseline of the gap"
    verdict = rises(gap)
    if verdict == "holds" and robust.p_value < LEVEL:
        verdict = "does not hold"
    because = (
        "chance may explain the correlation with the gap"
        if verdict == "cannot be said"
        else "it must follow the gap, and not robust accuracy"
    )
    return Outcome(verdict, text, because, study.analyses["privacy"].notes)


def _transfer(study: RobustBenchMeasurements) -> Outcome:
    """Compare the rate between two kinds of models with that of attacks on the target itself."""
    if "transfer" not in study.analyses:
        return unknown("not measured yet")
    made = study.analyses["transfer"]
    groups = {(row["from"], row["to"]): row for row in made.tables["transfer-groups"].to_dict("records")}
    wanted = {(ADVERSARIAL, ADVERSARIAL): True, (NATURAL, ADVERSARIAL): True, (NATURAL, NATURAL): True,
              (ADVERSARIAL, NATURAL): False}  # fmt: skip
    if not wanted.keys() <= groups.keys():
        return unknown("fewer than two models of either kind of training")
    names = {NATURAL: "natural", ADVERSARIAL: "robust"}
    parts, verdicts = list[str](), dict[str, Verdict]()
    for (one, other), strong in wanted.items():
        own, name = groups[one, other], f"{names[one]} to {names[other]}"
        parts.append(
            f"{name} {own['rate']:.0%} ({own['share']:.0%} of white-box, {100 * own['low']:.0f}–"
            f"{100 * own['high']:.0f})"
        )
        is_strong = bool(own["low"] >= STRONG)
        sure = is_strong or own["high"] < STRONG
        verdicts[name] = "cannot be said" if not sure else "holds" if is_strong is strong else "does not hold"
    text = "; ".join(parts)
    wrong = {
        verdict: comma_list([name for name, found in verdicts.items() if found == verdict])
        for verdict in ("does not hold", "cannot be said")
    }
    because = "; ".join(
        f"{said}: {wrong[verdict]}"
        for verdict, said in (("does not hold", "not so"), ("cannot be said", "open"))
        if verdict in verdicts.values()
    )
    robust = int((made.table["training"] == ADVERSARIAL).sum())
    because = (
        f"{because or 'all four directions'}; {len(made.table)} models, {robust} of them trained against L∞ attacks"
    )
    reasons = (
        *made.notes,
        f"Strong means half as often as an attack on the target itself, or more; intervals are over images: {text}.",
    )
    return Outcome(combined(verdicts.values()), text, because, reasons)


def _gap(measured: ModelMeasurements, model: str) -> tuple[float, float]:
    """Return the 95 % interval of accuracy minus mean confidence."""
    from robustassay.analysis.calibration import confidences

    own = measured.predictions(model)
    each = own.correct - confidences(own.logits)
    reach = 1.96 * float(each.std(ddof=1)) / np.sqrt(len(each))
    return float(each.mean() - reach), float(each.mean() + reach)


CLAIMS: Final[tuple[Claim[RobustBenchMeasurements], ...]] = (
    Claim("Models that are robust lose clean accuracy (here)", "Figure 2, no number", _cost),
    Claim("Robust accuracy goes with accuracy under distribution shift", "Figure 3, no number", _shift),
    Claim("Robust accuracy goes with robust accuracy under shift", "Figure 10: clear positive correlation, no number",
          _robust_shift),
    Claim("Most models trained against L∞ attacks are underconfident",
          "all but 2 models (Figure 4); ECE 21 % on average, up to 70 %, of the standard model 4 %", _calibration),
    Claim("L2-robust models are better calibrated, and detect out-of-distribution inputs like standard models",
          "Appendix F, no number in the main text", l2_models),
    Claim("Training against L∞ attacks makes out-of-distribution inputs harder to detect", "Figure 5, no number", _ood),
    Claim("Higher robust accuracy goes with a lower relative standard deviation (RSD) over classes",
          "Figure 6: RSD falls, strong linear trend, no number", fairness),
    Claim("Under L∞ attacks the class deer suffers a significant degradation", "Figure 6, no number", deer),
    Claim("Privacy leakage follows the generalisation gap, not robustness", "Figure 7, no number", _privacy),
    Claim("Adversarial examples transfer strongly, but poorly from robust to natural models",
          "Appendix F, no number in the main text", _transfer),
    Claim("For a fixed architecture, natural training gives less smooth models",
          "Appendix F, no number in the main text", smoothness),
    Claim("AutoAttack's robust accuracy varies little over random seeds", "Appendix E, no number in the main text",
          seeds),
    Claim("Where Square improves on white-box attacks, restarts of Square lower robust accuracy further",
          "30 restarts: 18.50 % to 7.40 % (Xiao et al.)", restarts),
)  # fmt: skip
