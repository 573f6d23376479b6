"""Smoothness: local Lipschitz estimates at the output and on the way there (the paper's appendix F)."""

import numpy as np
import pandas as pd

from robustassay.analysis.panels import Lines, Panel, Points
from robustassay.analysis.shift import trend
from robustassay.studies.analyses.analysis import Analysis, groups
from robustassay.studies.analyses.fairness import shown
from robustassay.studies.measures.smoothness import OUTPUT
from robustassay.studies.workbench import Bench, Need, Workbench


def needs(bench: Workbench) -> list[Need]:
    """Ask for slopes and a run."""
    return [Need(kind, model) for model in bench.models for kind in ("slopes", "runs")]


def make(bench: Bench) -> Analysis:
    """Average over images."""
    frames = [bench.pieces[Need("slopes", model)].assign(model=model) for model in bench.models]
    whole = pd.concat(frames, ignore_index=True)
    whole["relative"] = whole["slope"] / whole["size"].clip(lower=1e-12)
    stages = whole.groupby(["model", "stage", "depth"], sort=False)[["slope", "relative"]].mean().reset_index()
    ends = stages[stages["stage"] == OUTPUT].set_index("model").loc[list(bench.models)].reset_index()
    table = pd.DataFrame(
        {
            "model": ends["model"],
            "robust": [bench.robust(model).value for model in bench.models],
            "slope": ends["slope"],
            "relative_slope": ends["relative"],
        }
    )
    points = pd.DataFrame({"model": table["model"], "group": groups(table["model"]), "x": table["robust"]})
    images = int(whole.groupby(["model", "stage"]).size().max())
    note = f"{images} images, {bench.threat}; lower bounds"
    lines = Lines(_lines(stages, shown(bench)), "depth: 0 the image, 1 the output", "relative slope", note=note,
                  percent=False, logarithmic=True)  # fmt: skip
    panels = (
        Panel("smoothness", "Local Lipschitz estimate at the output", Points(
            points.assign(y=np.log10(table["relative_slope"])), f"robust accuracy, {bench.threat}",
            "log10 of slope / size of the logits", note, (True, False))),
        Panel("smoothness-stages", "Local Lipschitz estimates on the way to the output", lines),
    )  # fmt: skip
    says = (f"Robust accuracy and relative slope: {trend(table['robust'], table['relative_slope'])}.",)
    return Analysis("smoothness", "Smoothness", {"smoothness": table, "smoothness-stages": stages}, panels, says)


def _lines(stages: pd.DataFrame, models: list[str]) -> pd.DataFrame:
    """Return a column a model and a row for every depth that was measured of some model."""
    return stages.pivot_table(index="depth", columns="model", values="relative")[models]
