"""Calibration: ECE before and after a temperature, and the temperatures (the paper's Figure 4)."""

import pandas as pd

from robustassay.analysis.calibration import calibrate
from robustassay.analysis.panels import Bars, Panel, Points, Reliabilities
from robustassay.studies.analyses.analysis import ENDS, Analysis, groups, to_name
from robustassay.studies.analyses.model_measurements import ModelMeasurements, key
from robustassay.studies.analyses.setup import AnalysisSetup
from robustassay.studies.task import Key


def requires(setup: AnalysisSetup) -> list[Key]:
    """Return predictions and a run."""
    return [key(kind, model) for model in setup.models for kind in ("predictions", "run")]


def make(measured: ModelMeasurements) -> Analysis:
    """Measure each model."""
    found = {
        model: calibrate(own.logits, own.labels) for model in measured.models for own in [measured.predictions(model)]
    }
    table = pd.DataFrame(
        {
            "model": model,
            "robust": measured.robust(model).value,
            "accuracy": one.accuracy,
            "confidence": one.confidence,
            "ece": one.ece,
            "ece_low": one.low,
            "ece_high": one.high,
            "temperature": one.temperature,
            "ece_held_out": one.ece_scaled,
            "seed_temperature": one.seed_temperature,
            "seed_ece": one.seed_ece,
        }
        for model, one in found.items()
    )
    bins = pd.concat([one.bins.assign(model=model) for model, one in found.items()], ignore_index=True)
    points = pd.DataFrame({"model": table["model"], "group": groups(table["model"]), "x": table["robust"]})
    axis, images = f"robust accuracy, {measured.threat}", len(measured.predictions(measured.models[0]).labels)
    models = table["model"].tolist()
    shown = table.set_index("model")[["ece", "ece_held_out", "seed_ece"]]
    names = {"ece": "as it is", "ece_held_out": "temperature from other images", "seed_ece": "the paper's: same images"}
    panels = (
        Panel("calibration-ece", "Expected calibration error",
              Points(points.assign(y=table["ece"], low=table["ece_low"], high=table["ece_high"]), axis, "ECE, 15 bins",
                     f"{images} images; bars: 95 % bootstrap; {ENDS}",
                     named=to_name(models, table["ece"].tolist()))),
        Panel("calibration-scaled", "Calibration error before and after a temperature",
              Bars(shown.rename(columns=names), "ECE, 15 bins", f"{images} images")),
        Panel("calibration-temperature", "Temperature of the highest likelihood",
              Points(points.assign(y=table["temperature"]), axis, "temperature",
                     f"below the line: underconfident; {ENDS}", (True, False), level=1.0,
                     named=to_name(models, table["temperature"].tolist()))),
        Panel("reliability", "Reliability diagrams",
              Reliabilities({m: one.bins for m, one in found.items()}, {m: one.ece for m, one in found.items()},
                            f"{images} images; the size of a point is the share of images in its bin")),
    )  # fmt: skip
    under = table[table["temperature"] < 1]["model"].tolist()
    notes = (
        f"{len(under)} of {len(table)} models are underconfident (temperature below 1): {', '.join(under) or 'none'}.",
        f"Mean ECE {table['ece'].mean():.1%} as they are, {table['ece_held_out'].mean():.1%} with a temperature from "
        f"other images, {table['seed_ece'].mean():.1%} by the paper's variant.",
    )
    return Analysis("calibration", "Calibration", {"calibration": table, "reliability": bins}, panels, notes)
