"""Robust accuracy on other data of the same classes (the paper's Figure 10)."""

import pandas as pd

from robustassay.analysis.panels import Panel, Points
from robustassay.analysis.rates import robust_accuracy
from robustassay.analysis.shift import trend
from robustassay.errors import BadRequest
from robustassay.names import slug
from robustassay.studies.analyses.analysis import Analysis, groups
from robustassay.studies.analyses.model_measurements import ATTACKED, ModelMeasurements, key
from robustassay.studies.analyses.setup import AnalysisSetup
from robustassay.studies.task import Key


def requires(setup: AnalysisSetup) -> list[Key]:
    """Return a run on the test images, and one on each of the other datasets."""
    others = [name for name in setup.datasets if name.startswith(ATTACKED)]
    if not others:
        raise BadRequest("Robust accuracy under shift needs other data of the same classes: name some with --shift.")
    test = [key("run", model) for model in setup.models]
    return test + [key("run", model, data) for model in setup.models for data in others]


def make(measured: ModelMeasurements) -> Analysis:
    """Compare robust accuracy on the test images with that on other data."""
    rows = []
    for data in measured.named(ATTACKED):
        for model in measured.models:
            rate = robust_accuracy(measured.results[key("run", model, data)].records)
            low, high = rate.interval()
            rows.append({"model": model, "robust": measured.robust(model).value, "data": data.removeprefix(ATTACKED),
                         "robust_under_shift": rate.value, "low": low, "high": high, "images": rate.total})  # fmt: skip
    table = pd.DataFrame(rows)
    panels, notes = [], []
    for shift, own in table.groupby("data", sort=False):
        frame = own.rename(columns={"robust": "x", "robust_under_shift": "y"}).assign(group=groups(own["model"]))
        note = f"{int(own['images'].max())} images of the shift; bars: 95 % Wilson"
        content = Points(frame, f"robust accuracy, {measured.threat}", "robust accuracy under shift", note)
        panels.append(Panel(f"robust-shift-{slug(str(shift))}", f"Robust accuracy under shift: {shift}", content))
        notes.append(f"Robust accuracy on the test images and on {shift}: {trend(own['robust'], frame['y'])}.")
    return Analysis("robust-shift", "Robust accuracy under distribution shift", {"robust-shift": table},
                    tuple(panels), tuple(notes))  # fmt: skip
