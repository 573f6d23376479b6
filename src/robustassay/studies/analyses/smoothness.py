"""Smoothness: local Lipschitz estimates at the output and at stages before it (the paper's appendix F)."""

import numpy as np
import pandas as pd

from robustassay.analysis.panels import Lines, Panel, Points
from robustassay.analysis.shift import trend
from robustassay.studies.analyses.analysis import ENDS, Analysis, groups, to_name
from robustassay.studies.analyses.fairness import shown
from robustassay.studies.analyses.model_measurements import ModelMeasurements, key
from robustassay.studies.analyses.setup import AnalysisSetup
from robustassay.studies.measures.smoothness import OUTPUT
from robustassay.studies.task import Key


def requires(setup: AnalysisSetup) -> list[Key]:
    """Return local Lipschitz estimates and a run."""
    return [key(kind, model) for model in setup.models for kind in ("lipschitz", "run")]


def make(measured: ModelMeasurements) -> Analysis:
    """Average over images."""
    frames = [measured.lipschitz(model).assign(model=model) for model in measured.models]
    whole = pd.concat(frames, ignore_index=True)
    whole["relative"] = whole["slope"] / whole["size"].clip(lower=1e-12)
    stages = whole.groupby(["model", "stage", "depth"], sort=False)[["slope", "relative"]].mean().reset_index()
    ends = stages[stages["stage"] == OUTPUT].set_index("model").loc[list(measured.models)].reset_index()
    table = pd.DataFrame(
        {
            "model": ends["model"],
            "robust": [measured.robust(model).value for model in measured.models],
            "slope": ends["slope"],
            "relative_slope": ends["relative"],
        }
    )
    points = pd.DataFrame({"model": table["model"], "group": groups(table["model"]), "x": table["robust"]})
    images = int(whole.groupby(["model", "stage"]).size().max())
    note = f"{images} images, {measured.threat}; lower bounds"
    lines = Lines(_lines(stages, shown(measured)), "depth: 0 the image, 1 the output", "relative slope", note=note,
                  percent=False, logarithmic=True)  # fmt: skip
    panels = (
        Panel("smoothness", "Local Lipschitz estimate at the output", Points(
            points.assign(y=np.log10(table["relative_slope"])), f"robust accuracy, {measured.threat}",
            "log10 of slope / size of the logits", f"{note}; {ENDS}", (True, False),
            named=to_name(table["model"].tolist(), table["relative_slope"].tolist()))),
        Panel("smoothness-stages", "Local Lipschitz estimates at stages before the output", lines),
    )  # fmt: skip
    notes = (f"Robust accuracy and relative slope: {trend(table['robust'], table['relative_slope'])}.",)
    return Analysis("smoothness", "Smoothness", {"smoothness": table, "smoothness-stages": stages}, panels, notes)


def _lines(stages: pd.DataFrame, models: list[str]) -> pd.DataFrame:
    """Return one column per model and one row per depth."""
    return stages.pivot_table(index="depth", columns="model", values="relative")[models]
