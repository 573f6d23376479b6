"""Out-of-distribution detection by the largest softmax probability (the paper's Figure 5)."""

import pandas as pd

from robustassay.analysis.calibration import confidences
from robustassay.analysis.ood import auroc
from robustassay.analysis.panels import Panel, Points
from robustassay.analysis.shift import trend
from robustassay.errors import BadRequest
from robustassay.studies.analyses.analysis import ENDS, Analysis, groups, to_name
from robustassay.studies.analyses.model_measurements import OOD, TEST, ModelMeasurements, key
from robustassay.studies.analyses.setup import AnalysisSetup
from robustassay.studies.task import Key


def requires(setup: AnalysisSetup) -> list[Key]:
    """Return predictions on the test and out-of-distribution images, and a run."""
    others = [name for name in setup.datasets if name.startswith(OOD)]
    if not others:
        raise BadRequest("Out-of-distribution detection needs other images: name a dataset with --ood.")
    predictions = [key("predictions", model, data) for model in setup.models for data in (TEST, *others)]
    return predictions + [key("run", model) for model in setup.models]


def make(measured: ModelMeasurements) -> Analysis:
    """Measure each model on each out-of-distribution dataset."""
    rows = []
    for model in measured.models:
        inside = confidences(measured.predictions(model).logits)
        for data in measured.named(OOD):
            area = auroc(inside, confidences(measured.predictions(model, data).logits))
            low, high = area.interval()
            entry = {"ood": data.removeprefix(OOD), "auroc": area.value, "low": low, "high": high}
            rows.append({"model": model, "robust": measured.robust(model).value, **entry})
    table = pd.DataFrame(rows)
    wide = table.pivot(index="model", columns="ood", values="auroc").loc[list(measured.models)].reset_index()
    panels, notes = [], []
    for ood, own in table.groupby("ood", sort=False):
        frame = own.rename(columns={"robust": "x", "auroc": "y"}).assign(group=groups(own["model"]))
        note = f"bars: 95 % (DeLong); {ENDS}"
        named = to_name(own["model"].tolist(), own["auroc"].tolist())
        axis = f"robust accuracy, {measured.threat}"
        content = Points(frame, axis, "AUROC", note, (True, False), level=0.5, named=named)
        panels.append(Panel(f"ood-{ood}".replace(":", "-"), f"Detection of {ood} among the test images", content))
        notes.append(f"Robust accuracy and AUROC on {ood}: {trend(own['robust'], own['auroc'])}.")
    return Analysis(
        "ood", "Out-of-distribution detection", {"ood": wide, "ood-all": table}, tuple(panels), tuple(notes)
    )
