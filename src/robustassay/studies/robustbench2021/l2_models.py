"""The finding about models trained against L2 attacks: their calibration, and out-of-distribution detection.

Intervals are over images, so they are about these models. A verdict on such models in general needs so many of them
that a rank test over models could tell the kinds apart.
"""

from collections.abc import Mapping, Sequence
from math import comb
from typing import Final

import numpy as np
import numpy.typing as npt

from robustassay.analysis.calibration import confidences, ece
from robustassay.analysis.ood import auroc
from robustassay.studies.analyses.analysis import ADVERSARIAL, L2_TRAINED, NATURAL, group
from robustassay.studies.analyses.model_measurements import OOD, ModelMeasurements
from robustassay.studies.page import Verdict, combined
from robustassay.studies.robustbench2021.answers import LEVEL, Outcome, unknown
from robustassay.studies.robustbench2021.measurements import RobustBenchMeasurements

RESAMPLES: Final = 500
FEWEST: Final = 2
"""Models of each kind, at least."""

Numbers = npt.NDArray[np.float64]
ByKind = Mapping[str, Sequence[str]]


def l2_models(study: RobustBenchMeasurements) -> Outcome:
    """Compare their ECE with that of models trained against Linf attacks, and their AUROC with both other kinds."""
    if not {"calibration", "ood"} <= study.analyses.keys():
        return unknown("not measured yet")
    models = set(study.analyses["calibration"].table["model"]) & set(study.analyses["ood"].table["model"])
    kinds = {kind: sorted(one for one in models if group(one) == kind) for kind in (L2_TRAINED, ADVERSARIAL, NATURAL)}
    if not kinds[L2_TRAINED]:
        return unknown("no model trained against L2 attacks")
    if min(len(names) for names in kinds.values()) < FEWEST:
        return unknown(f"fewer than {FEWEST} models of each kind of training")
    verdict, text = _calibration(study.measured, kinds)
    verdicts, texts = [verdict], [text]
    for data in study.measured.named(OOD):
        verdict, text = _detection(study.measured, kinds, data)
        verdicts.append(verdict)
        texts.append(text)
    table = study.analyses["calibration"].table.set_index("model")
    each = [
        f"{model}: ECE {table['ece'].loc[model]:.1%}, with a temperature from other images "
        f"{table['ece_held_out'].loc[model]:.1%}."
        for model in kinds[L2_TRAINED]
    ]
    counts = len(kinds[L2_TRAINED]), len(kinds[ADVERSARIAL])
    verdict, because = combined(verdicts), f"95 % intervals over images, {counts[0]} models trained against L2 attacks"
    alone = f"For these models alone: better calibrated {verdicts[0]}; detection {combined(verdicts[1:])}."
    if (least := 2 / comb(sum(counts), counts[0])) >= LEVEL:
        verdict = "cannot be said"
        because = (
            f"{counts[0]} and {counts[1]} models are too few: no rank test over them gives less than p = {least:.2f}; "
            "intervals are over images"
        )
    return Outcome(verdict, "; ".join(texts), because, (*(f"{text}." for text in texts), alone, *each))


def _calibration(measured: ModelMeasurements, kinds: ByKind) -> tuple[Verdict, str]:
    """Compare the mean ECE of both kinds, on images drawn anew for all models together."""
    sure = {kind: [_answers(measured, model) for model in kinds[kind]] for kind in (L2_TRAINED, ADVERSARIAL)}
    images, draw = len(sure[L2_TRAINED][0][0]), np.random.default_rng(0)

    def difference(rows: npt.NDArray[np.int64]) -> float:
        of_l2, of_linf = ([ece(one[rows], right[rows]) for one, right in own] for own in sure.values())
        return float(np.mean(of_l2) - np.mean(of_linf))

    low, high = np.quantile([difference(draw.integers(images, size=images)) for _ in range(RESAMPLES)], (0.025, 0.975))
    verdict: Verdict = "holds" if high < 0 else "does not hold" if low > 0 else "cannot be said"
    means = [np.mean([ece(*own) for own in sure[kind]]) for kind in (L2_TRAINED, ADVERSARIAL)]
    text = (
        f"mean ECE {means[0]:.1%} for L2 and {means[1]:.1%} for L∞ training (difference {100 * low:+.1f} to "
        f"{100 * high:+.1f} points, n = {images} images)"
    )
    return verdict, text


def _detection(measured: ModelMeasurements, kinds: ByKind, data: str) -> tuple[Verdict, str]:
    """Say whether the mean AUROC is nearer to that of natural models, or to that of models for Linf."""
    draw = np.random.default_rng(0)
    inside, outside = (
        {kind: [_answers(measured, model, name)[0] for model in names] for kind, names in kinds.items()}
        for name in (None, data)
    )
    sizes = len(inside[NATURAL][0]), len(outside[NATURAL][0])

    def means(rows: Sequence[npt.NDArray[np.int64]]) -> dict[str, float]:
        return {
            kind: float(np.mean([auroc(a[rows[0]], b[rows[1]]).value for a, b in zip(one, outside[kind], strict=True)]))
            for kind, one in inside.items()
        }

    drawn = [means([draw.integers(size, size=size) for size in sizes]) for _ in range(RESAMPLES)]
    found = means([np.arange(size) for size in sizes])
    low, high = np.quantile([one[L2_TRAINED] - (one[NATURAL] + one[ADVERSARIAL]) / 2 for one in drawn], (0.025, 0.975))
    verdict: Verdict = "holds" if low > 0 else "does not hold" if high < 0 else "cannot be said"
    if found[NATURAL] <= found[ADVERSARIAL]:
        verdict = "cannot be said"
    text = (
        f"{data.removeprefix(OOD)}: mean AUROC natural {found[NATURAL]:.3f}, L2 {found[L2_TRAINED]:.3f}, "
        f"L∞ {found[ADVERSARIAL]:.3f} (L2 above the middle of the others by {low:+.3f} to {high:+.3f})"
    )
    return verdict, text


def _answers(measured: ModelMeasurements, model: str, data: str | None = None) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """Return the confidence in each image, and whether the prediction is correct."""
    own = measured.predictions(model) if data is None else measured.predictions(model, data)
    return confidences(own.logits), own.correct
