"""Findings about repeated runs: other seeds, and Square with many restarts."""

from robustassay.analysis.rates import Rate, robust_accuracy
from robustassay.studies.analyses.model_measurements import key
from robustassay.studies.page import Verdict, combined
from robustassay.studies.robustbench2021.answers import Outcome, unknown
from robustassay.studies.robustbench2021.further_runs import SQUARE, seed_name
from robustassay.studies.robustbench2021.measurements import RobustBenchMeasurements


def seeds(study: RobustBenchMeasurements) -> Outcome:
    """Compare the range over seeds with the uncertainty that comes from the images."""
    verdicts: list[Verdict] = []
    texts, reasons = [], []
    for model in study.settings.seed_models:
        rates = _over_seeds(study, model)
        if len(rates) < 2:
            continue
        values = [rate.value for rate in rates]
        spread = max(values) - min(values)
        low, high = rates[0].interval()
        verdicts.append("holds" if spread < (high - low) / 2 else "does not hold")
        texts.append(f"{model} {min(values):.1%} to {max(values):.1%} over {len(rates)} seeds (n = {rates[0].total})")
        reasons.append(
            f"{model}: {', '.join(f'{value:.1%}' for value in values)}; half the 95 % interval over images is "
            f"{50 * (high - low):.1f} points."
        )
    if not verdicts:
        return unknown("not measured yet")
    other = "" if study.settings.attack == "autoattack" else f"; {study.settings.attack}, not AutoAttack"
    because = f"range over seeds against the interval over images{other}"
    return Outcome(combined(verdicts), "; ".join(texts), because, tuple(reasons))


def _over_seeds(study: RobustBenchMeasurements, model: str) -> list[Rate]:
    """Return the robust accuracies on the images that all seeds have."""
    names = [key("run", model), *(key("run", model, seed_name(seed)) for seed in study.settings.seeds)]
    found = [study.results[name].records for name in names if name in study.results]
    if len(found) < 2 or names[0] not in study.results:
        return []
    shared = set.intersection(*(set(records["sample_id"]) for records in found))
    return [robust_accuracy(records[records["sample_id"].isin(shared)]) for records in found]


def restarts(study: RobustBenchMeasurements) -> Outcome:
    """Compare the main attack with Square's restarts on the images of both."""
    texts = []
    for model in study.settings.restart_models:
        main, square = (study.results.get(key("run", model, *name)) for name in ((), (SQUARE,)))
        if main is None or square is None:
            continue
        own = main.records.set_index("sample_id").loc[list(square.records["sample_id"])]
        left = own["clean_ok"] & ~own["success"]
        broken = square.records.set_index("sample_id")["success"]
        more = int((left & broken).sum())
        texts.append(f"{model}: {more} of {int(left.sum())} images that {study.settings.attack} left fall to Square")
    if not texts:
        return unknown("not measured yet; it makes 150,000 queries per image")
    because = "no model here has the defect of that of Xiao et al."
    return Outcome("cannot be said", "; ".join(texts), because, tuple(f"{text}." for text in texts))
