"""Findings about repeated runs: other seeds, and Square with many restarts."""

from typing import Final

import pandas as pd

from robustassay.analysis.rates import robust_accuracy, unbroken
from robustassay.analysis.trust import SQUARE_GAIN, WITHOUT_GRADIENTS, flags_of
from robustassay.studies.analyses.model_measurements import key
from robustassay.studies.page import Verdict, combined
from robustassay.studies.robustbench2021.answers import Outcome, unknown
from robustassay.studies.robustbench2021.further_runs import seed_name, square_names
from robustassay.studies.robustbench2021.measurements import RobustBenchMeasurements

LITTLE: Final = 0.5
"""Points of robust accuracy that are little, as near AutoAttack in finding 3; ours."""


def seeds(study: RobustBenchMeasurements) -> Outcome:
    """Call a range over seeds of at most LITTLE points little; one beyond the chance of the images is not."""
    verdicts: list[Verdict] = []
    texts, reasons = [], []
    for model in study.settings.seed_models:
        runs = _over_seeds(study, model)
        if len(runs) < 2:
            continue
        rates = [robust_accuracy(records) for records in runs]
        values = [rate.value for rate in rates]
        spread = 100 * (max(values) - min(values))
        low, high = rates[0].interval()
        by_chance = 50 * (high - low)
        verdicts.append("holds" if spread <= LITTLE else "cannot be said" if spread < by_chance else "does not hold")
        left = pd.concat([unbroken(records).rename(str(at)) for at, records in enumerate(runs)], axis=1)
        changed = int((left.any(axis=1) & ~left.all(axis=1)).sum())
        texts.append(f"{model} {min(values):.1%} to {max(values):.1%} over {len(runs)} seeds (n = {rates[0].total})")
        reasons.append(
            f"{model}: {', '.join(f'{value:.1%}' for value in values)}; the seed decides on {changed} of "
            f"{rates[0].total} images, and the worst case over all seeds is {left.all(axis=1).mean():.1%}. Half the "
            f"95 % interval over images is {by_chance:.1f} points."
        )
    if not verdicts:
        return unknown("not measured yet")
    other = "" if study.settings.attack == "autoattack" else f"; {study.settings.attack}, not AutoAttack"
    because = f"little: the range over seeds is at most {LITTLE} points, a limit of ours{other}"
    return Outcome(combined(verdicts), "; ".join(texts), because, tuple(reasons))


def _over_seeds(study: RobustBenchMeasurements, model: str) -> list[pd.DataFrame]:
    """Return the records of each seed for the images that all seeds have, in the same order."""
    names = [key("run", model), *(key("run", model, seed_name(seed)) for seed in study.settings.seeds)]
    found = [study.results[name].records.set_index("sample_id") for name in names if name in study.results]
    if len(found) < 2 or names[0] not in study.results:
        return []
    shared = sorted(set.intersection(*(set(records.index) for records in found)))
    return [records.loc[shared] for records in found]


def restarts(study: RobustBenchMeasurements) -> Outcome:
    """Compare Square with its restarts on models where Square broke more than the attacks before it."""
    compared = [one for model in study.settings.restart_models if (one := _restarted(study, model)) is not None]
    if not compared:
        return unknown("not measured yet; it makes 150,000 queries per image")
    counts = {model: _by_square(study.measured.records(model)) for model in study.measured.models}
    images = {model: len(study.measured.records(model)) for model in counts}
    flagged = [model for model in counts if flags_of(study.measured.records(model))]  # as in section 3.1
    most = max(counts, key=lambda model: counts[model] / images[model])
    texts = [
        f"{model}: {more} of {left} images that {study.settings.attack} left fall to Square with 30 restarts"
        for model, more, left in compared
    ]
    verdicts: list[Verdict] = ["holds" if more else "does not hold" for model, more, _ in compared if model in flagged]
    because = "on models that AutoAttack's flag names"
    if not verdicts:
        because = (
            f"no model run with restarts is one where Square takes more than {100 * SQUARE_GAIN} points; "
            f"{len(flagged)} of {len(counts)} models are"
        )
    reasons = (
        *(f"{text}." for text in texts),
        f"Most images that fall to Square alone, after the attacks with gradients: {counts[most]} of {images[most]}, "
        f"on {most}.",
    )
    return Outcome(combined(verdicts) if verdicts else "cannot be said", "; ".join(texts), because, reasons)


def _restarted(study: RobustBenchMeasurements, model: str) -> tuple[str, int, int] | None:
    """Count the images that the main attack left, and those of them that fall to Square in any of its runs."""
    names = [key("run", model), *(key("run", model, name) for name in square_names())]
    if not all(name in study.results for name in names):
        return None
    main, *parts = (study.results[name].records.set_index("sample_id") for name in names)
    broken = pd.concat([part["success"] for part in parts], axis=1).any(axis=1)
    left = unbroken(main.loc[list(broken.index)])
    return model, int((left & broken).sum()), int(left.sum())


def _by_square(records: pd.DataFrame) -> int:
    """Count the images that fell to Square after the attacks with gradients had failed."""
    return int((records["success"].astype(bool) & (records["claimed_by"] == WITHOUT_GRADIENTS).fillna(False)).sum())
