"""Transfer of adversarial examples between models (the paper's appendix F)."""

import pandas as pd

from robustassay.analysis.panels import HeatMap, Panel
from robustassay.analysis.rates import Rate
from robustassay.studies.analyses.analysis import ADVERSARIAL, NATURAL, Analysis, group
from robustassay.studies.analyses.model_measurements import ModelMeasurements, key
from robustassay.studies.analyses.setup import AnalysisSetup
from robustassay.studies.task import Key


def requires(setup: AnalysisSetup) -> list[Key]:
    """Return the answers of all models to the examples of each, and to the clean images."""
    return [key(kind, model) for model in setup.models for kind in ("predictions", "transfer")]


def make(measured: ModelMeasurements) -> Analysis:
    """Count, among the images that the target classifies correctly, those whose examples mislead it."""
    pairs = pd.DataFrame([row for source in measured.models for row in _rates(measured, source)])
    between = pairs[pairs["source"] != pairs["target"]]
    kinds = between.groupby(["from", "to"], sort=False)["rate"].agg(rate="mean", pairs="size").reset_index()
    order = sorted(measured.models, key=lambda model: (group(model), model))
    square = 100 * pairs.pivot(index="source", columns="target", values="rate").loc[order, order]
    note = f"share of correctly classified images that mislead the target, %; {measured.threat}"
    panel = Panel("transfer", "Transfer of adversarial examples", HeatMap(square, "crafted on", "shown to", note))
    notes = tuple(
        f"From {row['from']} to {row['to']}: {row['rate']:.1%} on average over {row['pairs']} pairs of models."
        for row in kinds.to_dict("records")
        if {row["from"], row["to"]} <= {NATURAL, ADVERSARIAL}
    )
    tables = {"transfer": _by_source(measured, pairs), "transfer-groups": kinds, "transfer-pairs": pairs}
    return Analysis("transfer", "Transfer between models", tables, (panel,), notes)


def _by_source(measured: ModelMeasurements, pairs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per source: the rate on itself, and the mean over the other models of each kind."""
    rows = []
    for source in measured.models:
        own = pairs[pairs["source"] == source]
        others = own[own["target"] != source]
        means = {f"to {kind}": others[others["to"] == kind]["rate"].mean() for kind in (NATURAL, ADVERSARIAL)}
        itself = float(own[own["target"] == source]["rate"].iloc[0])
        rows.append({"model": source, "training": group(source), "on itself": itself, **means})
    return pd.DataFrame(rows)


def _rates(measured: ModelMeasurements, source: str) -> list[dict[str, object]]:
    frame: pd.DataFrame = measured.results[key("transfer", source)]
    found = []
    for target in measured.models:
        own = frame[frame["target"] == target]
        right = measured.predictions(target).correct[: len(own)]
        rate = Rate(int(((own["predicted"] != own["label"]).to_numpy() & right).sum()), int(right.sum()))
        low, high = rate.interval()
        found.append(
            {"source": source, "target": target, "from": group(source), "to": group(target), "misled": rate.count,
             "images": rate.total, "rate": rate.value, "low": low, "high": high}
        )  # fmt: skip
    return found
