"""Robustness by the year and venue of the method, where cards say so (the paper's Figure 2)."""

import pandas as pd

from robustassay.analysis.history import by_venue, over_time
from robustassay.analysis.panels import Panel, Points
from robustassay.analysis.rates import clean_accuracy
from robustassay.leaderboard.card import card_of_zoo
from robustassay.studies.analyses.analysis import NATURAL, Analysis, group, groups
from robustassay.studies.analyses.model_measurements import ModelMeasurements, card_of, key
from robustassay.studies.analyses.setup import AnalysisSetup
from robustassay.studies.task import Key


def requires(setup: AnalysisSetup) -> list[Key]:
    """Return a run."""
    return [key("run", model) for model in setup.models]


def _named(table: pd.DataFrame) -> frozenset[str]:
    """Choose the models to name: natural ones lie too close together, so only the most accurate of them."""
    natural = table["name"].map(group) == NATURAL
    best = table[natural].nlargest(1, "clean")["name"]
    return frozenset((*table[~natural]["name"], *best))


def make(measured: ModelMeasurements) -> Analysis:
    """Order models by the year their cards give."""
    rows = []
    for model in measured.models:
        card = card_of(model)
        entry = card_of_zoo(card) if card else None
        rows.append(
            {
                "name": model,
                "year": entry.year if entry else None,
                "venue": entry.venue if entry else "",
                "clean": clean_accuracy(measured.records(model)).value,
                "best_known": measured.robust(model).value,
                "reported": entry.reported if entry else None,
            }
        )
    table = pd.DataFrame(rows)
    table["reported"] = table["reported"].astype(float)
    dated = over_time(table)
    ends = pd.DataFrame([measured.robust(model).interval() for model in measured.models], columns=["low", "high"])
    trade = pd.DataFrame({"model": table["name"], "group": groups(table["name"]), "x": table["clean"]})
    trade = trade.assign(y=table["best_known"], low=ends["low"], high=ends["high"])
    panels = [
        Panel("trade-off", "Accuracy and robustness", Points(
            trade, "clean accuracy", f"robust accuracy, {measured.threat}", "bars: 95 % Wilson; of natural models the "
            "most accurate is named", named=_named(table)))
    ]  # fmt: skip
    if len(dated):
        frame = dated.rename(columns={"name": "model", "year": "x", "best_known": "y"})
        frame = frame.assign(group=groups(frame["model"]))
        note = "year of the paper whose method was used; the weights are newer"
        panels.append(Panel("time", "Robustness by year of the method", Points(
            frame, "year", f"robust accuracy, {measured.threat}", note, (False, True))))  # fmt: skip
    notes = (f"{len(dated)} of {len(table)} models have a card that names a year.",)
    shown = table.rename(columns={"best_known": "robust"}).astype({"year": "Int64"})
    return Analysis("time", "Robustness over time", {"time": shown, "venues": by_venue(table)}, tuple(panels), notes)
