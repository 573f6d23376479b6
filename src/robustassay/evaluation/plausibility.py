"""Notes on a result whose numbers are right and yet not what was probably wanted: weak attacks, wrong labels, radii."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
from scipy.stats import binom

from robustassay.results.evidence import Grade
from robustassay.results.identity import limited_to_queries
from robustassay.results.run_warnings import has_iterated_attack

if TYPE_CHECKING:
    from robustassay.evaluation.result import Result

USUAL: Final = {"Linf": (0.5 / 255, 64 / 255), "L2": (0.05, 10.0), "L1": (1.0, 300.0), "L0": (1.0, 1000.0)}
"""Radii between which nearly all published evaluations lie."""

CHANCE: Final = 1e-3
"""An accuracy that a guess reaches with more than this probability may be one."""

SHIFTED: Final = 0.5
"""Part of the errors that one shift of all labels explains, or of the predictions that are no class of the data."""

FEW: Final = 0.5
"""Clean accuracy below which it is said how many samples an attack had to break."""


def notes(result: "Result") -> Iterator[str]:
    """Write one sentence per thing that looks wrong."""
    runs = list(result.parts.values()) or [result]
    spec, records = runs[0].manifest["spec"], result.records
    yield from _strength(result, runs, limited_to_queries(runs[0].manifest))
    if len(records):
        yield from _clean(records, spec["threat"]["target"] is not None)
    yield from _radius(str(spec["threat"]["norm"]), float(spec["threat"]["eps"]))


def _strength(result: "Result", runs: "list[Result]", by_queries: bool) -> Iterator[str]:
    if by_queries or not result.robust_accuracy > 0:
        return
    if not has_iterated_attack(runs):
        yield (
            "No attack followed the gradient for many steps, so the robust accuracy may be far too high: add the "
            "attack pgd or express."
        )
    elif result.evidence.grade in (Grade.SINGLE, Grade.SEVERAL):
        yield "The robust accuracy is an upper bound: stronger attacks may break more; express is of AutoAttack-grade."


def _clean(records: pd.DataFrame, targeted: bool) -> Iterator[str]:
    labels, said = (records[name].to_numpy("int64") for name in ("label", "clean_label"))
    classes, total, correct = len({*labels, *said}), len(labels), int((labels == said).sum())
    wrong = total - correct
    shift, shifted = _most_common_shift(labels, said)
    outside = int((~np.isin(said, labels)).sum())
    if outside > max(SHIFTED * total, 2):
        yield (
            f"{outside} of {total} predictions are classes that no sample has: the model numbers its classes otherwise "
            "than the data; number them as the model does, or select its classes with --classes."
        )
    elif wrong > 2 and shifted > max(SHIFTED * wrong, correct, 2):
        yield (
            f"{shifted} of {total} predictions are the label {shift:+d}: the labels are probably shifted; number the "
            "classes as the model does."
        )
    elif wrong and correct / total <= 2 / classes and binom.sf(correct - 1, total, 1 / classes) > CHANCE:
        yield (
            f"The clean accuracy, {correct} of {total}, is no better than guessing among {classes} classes: check the "
            "order of the classes, the preprocessing and the weights."
        )
    if not targeted and correct < FEW * total:
        yield f"{wrong} of {total} images were misclassified without an attack, so only {correct} were examined."


def _most_common_shift(labels: np.ndarray, said: np.ndarray) -> tuple[int, int]:
    """Return the difference that most wrong predictions share, and their number."""
    differences = (said - labels)[said != labels]
    if not len(differences):
        return 0, 0
    values, counts = np.unique(differences, return_counts=True)
    return int(values[counts.argmax()]), int(counts.max())


def _radius(norm: str, eps: float) -> Iterator[str]:
    low, high = USUAL.get(norm, (0.0, float("inf")))
    if not low <= eps <= high:
        size = "small" if eps < low else "large"
        yield f"The radius {norm} {eps:.4g} is unusually {size} for pixels in [0, 1]."
