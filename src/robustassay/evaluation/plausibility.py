"""How far a result can be trusted, in one line, and notes on numbers that are probably not what was wanted."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
from scipy.stats import binom

from robustassay.analysis import rates, trust
from robustassay.eps import format_norm
from robustassay.results.cross_check import CROSS_CHECK_FLAG
from robustassay.results.evidence import Grade
from robustassay.results.identity import ADAPTIVE, limited_to_queries
from robustassay.results.run_warnings import has_iterated_attack
from robustassay.results.self_test import SELF_TEST_FLAG

if TYPE_CHECKING:
    from robustassay.evaluation.result import Result

USUAL: Final = {"Linf": (0.5 / 255, 64 / 255), "L2": (0.05, 10.0), "L1": (1.0, 300.0), "L0": (1.0, 1000.0)}
"""Radii between which nearly all published evaluations lie."""

EXPRESS_NORMS: Final = ("Linf", "L2", "L1")

CHANCE: Final = 1e-3
"""An accuracy that a guess reaches with more than this probability may be one."""

SHIFTED: Final = 0.5
"""Part of the errors that one shift of all labels explains, or of the predictions that are no class of the data."""

FEW: Final = 0.5
"""Clean accuracy below which it is said how many samples an attack had to break."""


def notes(result: "Result") -> Iterator[str]:
    """Write one sentence per thing that looks wrong."""
    spec, records = _runs(result)[0].manifest["spec"], result.records
    if len(records):
        yield from _clean(records, spec["threat"]["target"] is not None)
    yield from _radius(str(spec["threat"]["norm"]), float(spec["threat"]["eps"]))


def assessment(result: "Result") -> str:
    """Say in one line how far the robust accuracy can be trusted, and what to do next."""
    records, evidence, in_doubt = result.records, result.evidence, len(result.doubtful)
    unbroken = int(rates.unbroken(records).sum())
    if not records["clean_ok"].any():
        return "No sample is classified correctly, so nothing was examined: check model and data."
    if not unbroken:
        return "No correctly classified sample is unbroken: no stronger attack is needed."
    more = [] if evidence.certified is None else [f"certified lower bound {evidence.certified.value:.1%}"]
    more += [f"{in_doubt} of {unbroken} unbroken in doubt"] if in_doubt else []
    weaknesses = [*_weaknesses(result), *_suspicions(result)]
    if not evidence.earned or weaknesses:
        return f"Upper bound ({'; '.join([*weaknesses, *more])}): {_stronger(result)}."
    earned = f"{evidence.grade.value}{_diagnosed(result)}, self-test {evidence.self_test.short}"
    words = "; ".join([earned, *more])
    return f"{words[0].upper()}{words[1:]}{': add --confirm' if in_doubt and not _by_queries(result) else ''}."


def _diagnosed(result: "Result") -> str:
    """Say on how many images the model was diagnosed; nothing where it was not."""
    counts = {run.manifest.get(ADAPTIVE, {}).get("samples") for run in _runs(result)} - {None}
    return "".join(f" of {count} images" for count in sorted(counts)[:1])


def _runs(result: "Result") -> "list[Result]":
    return list(result.parts.values()) or [result]


def _by_queries(result: "Result") -> bool:
    return limited_to_queries(_runs(result)[0].manifest)


def _weaknesses(result: "Result") -> list[str]:
    """Say in few words why a robust accuracy is an upper bound only."""
    runs, evidence = _runs(result), result.evidence
    found = []
    if evidence.grade in (Grade.SINGLE, Grade.SEVERAL):
        iterated = _by_queries(result) or has_iterated_attack(runs)
        found = [f"{'one' if len(runs) == 1 else len(runs)} {'' if iterated else 'weak '}attack{'s'[: len(runs) - 1]}"]
    found += [] if evidence.cross_check.passed else [f"cross-check broke {evidence.cross_check.short}"]
    return found if evidence.self_test.passed else [*found, f"self-test {evidence.self_test.short}"]


def _suspicions(result: "Result") -> list[str]:
    """Name the flags of a strong attack: it may have failed for another reason than robustness.

    An adaptive attack was chosen for the model, and what the self-test and the cross-check found is told already.
    """
    if result.evidence.grade is not Grade.AUTOATTACK:
        return []
    told = trust.HARMLESS | {SELF_TEST_FLAG, CROSS_CHECK_FLAG, trust.UNJUDGED}
    return [f"flag {name}" for name in result.flags if name not in told]


def _stronger(result: "Result") -> str:
    """Say what shows whether the robust accuracy is lower."""
    manifest = _runs(result)[0].manifest
    if _by_queries(result):
        return "spend more queries"
    if not result.evidence.cross_check.passed:
        return f"add {result.evidence.cross_check.advice}"
    if manifest.get("flags") or result.evidence.grade not in (Grade.SINGLE, Grade.SEVERAL):
        return "assay doctor finds out why attacks fail"
    return "add --attack express" if manifest["spec"]["threat"]["norm"] in EXPRESS_NORMS else "try other attacks"


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
        yield f"The radius {format_norm(norm)} {eps:.4g} is unusually {size} for pixels in [0, 1]."
