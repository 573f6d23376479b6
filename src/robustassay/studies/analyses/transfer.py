"""Transfer of adversarial examples between models (the paper's appendix F)."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from robustassay.analysis.panels import HeatMap, Panel
from robustassay.analysis.rates import Rate
from robustassay.studies.analyses.analysis import ADVERSARIAL, NATURAL, Analysis, group
from robustassay.studies.analyses.model_measurements import ModelMeasurements, key
from robustassay.studies.analyses.setup import AnalysisSetup
from robustassay.studies.task import Key

Mask = npt.NDArray[np.bool_]

RESAMPLES: Final = 400
"""Draws of the images for an interval."""


def requires(setup: AnalysisSetup) -> list[Key]:
    """Return the answers of all models to the examples of each, and to the clean images."""
    return [key(kind, model) for model in setup.models for kind in ("predictions", "transfer")]


def make(measured: ModelMeasurements) -> Analysis:
    """Count, among the images that the target classifies correctly, those whose examples mislead it."""
    pairs = pd.DataFrame(_rates(measured))
    between = pairs[pairs["source"] != pairs["target"]]
    kinds = between.groupby(["from", "to"], sort=False)["rate"].agg(rate="mean", pairs="size").reset_index()
    kinds = kinds.merge(_shares(measured, pairs), on=["from", "to"])
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


def _shares(measured: ModelMeasurements, pairs: pd.DataFrame) -> pd.DataFrame:
    """Divide the mean rate between two kinds by that of the target kind on itself; intervals are over images.

    All pairs share the images, so each draw of images counts for all pairs.
    """
    misled, right = (np.stack(one).astype(np.float64) for one in zip(*_masks(measured), strict=True))
    images = right.shape[1]
    drawn = np.random.default_rng(0).multinomial(images, np.full(images, 1 / images), RESAMPLES)
    weights = np.concatenate((np.ones((1, images)), drawn)).T
    rates = pd.DataFrame((misled @ weights) / (right @ weights).clip(min=1), index=pairs.index)  # the first is of all
    itself = pairs["source"] == pairs["target"]
    own = rates[itself].groupby(pairs["to"][itself]).mean()
    rows, ends = [], pairs[["from", "to"]][~itself]
    for one, other in ends.drop_duplicates().itertuples(index=False):
        part = rates[~itself][(ends["from"] == one) & (ends["to"] == other)]
        share = part.mean() / own.loc[str(other)].clip(lower=1e-9)
        low, high = np.quantile(share[1:], (0.025, 0.975))
        rows.append({"from": one, "to": other, "share": share[0], "low": low, "high": high})
    return pd.DataFrame(rows, columns=["from", "to", "share", "low", "high"])


def _masks(measured: ModelMeasurements) -> Iterator[tuple[Mask, Mask]]:
    """Yield which images mislead the target and which it classifies correctly, pair by pair."""
    for source in measured.models:
        frame: pd.DataFrame = measured.results[key("transfer", source)]
        for target in measured.models:
            own = frame[frame["target"] == target]
            right = measured.predictions(target).correct[: len(own)]
            yield (own["predicted"] != own["label"]).to_numpy() & right, right


def _rates(measured: ModelMeasurements) -> list[dict[str, object]]:
    found = []
    ends = [(source, target) for source in measured.models for target in measured.models]
    for (source, target), (misled, right) in zip(ends, _masks(measured), strict=True):
        rate = Rate(int(misled.sum()), int(right.sum()))
        low, high = rate.interval()
        found.append(
            {"source": source, "target": target, "from": group(source), "to": group(target), "misled": rate.count,
             "images": rate.total, "rate": rate.value, "low": low, "high": high}
        )  # fmt: skip
    return found
