"""Distribution shift: accuracy on other data of the same classes, and robust accuracy (the paper's Figure 3)."""

import pandas as pd

from robustassay.analysis.panels import Panel, Points
from robustassay.analysis.shift import accuracy_table, trend
from robustassay.errors import BadRequest
from robustassay.studies.analyses.analysis import Analysis, groups
from robustassay.studies.analyses.model_measurements import SHIFT, TEST, ModelMeasurements, key
from robustassay.studies.analyses.setup import AnalysisSetup
from robustassay.studies.task import Key


def requires(setup: AnalysisSetup) -> list[Key]:
    """Return predictions on all data, and a run."""
    others = [name for name in setup.datasets if name.startswith(SHIFT)]
    if not others:
        raise BadRequest("A shift needs other data of the same classes: name some with --shift.")
    predictions = [key("predictions", model, data) for model in setup.models for data in (TEST, *others)]
    return predictions + [key("run", model) for model in setup.models]


def make(measured: ModelMeasurements) -> Analysis:
    """Compare accuracies, and correlate them with robust accuracy over models."""
    predictions = pd.concat(
        [
            pd.DataFrame(
                {"model": model, "data": data.removeprefix(SHIFT), "correct": measured.predictions(model, data).correct}
            )
            for data in (TEST, *measured.named(SHIFT))
            for model in measured.models
        ]
    )
    table = accuracy_table(predictions)
    table["robust"] = [measured.robust(str(model)).value for model in table["model"]]
    wide = table.pivot(index="model", columns="data", values="accuracy").loc[list(measured.models)].reset_index()
    wide.insert(1, "robust", [measured.robust(model).value for model in measured.models])
    others = table[table["data"] != TEST]
    mean = others.groupby("model", sort=False).agg(y=("accuracy", "mean"), images=("images", "max")).reset_index()
    wide["mean over shifts"] = mean.set_index("model")["y"].loc[list(measured.models)].to_numpy(float)
    wide["kept"] = wide["mean over shifts"] / wide[TEST]
    points = pd.DataFrame({"model": wide["model"], "group": groups(wide["model"])})
    names = ", ".join(name.removeprefix(SHIFT) for name in measured.named(SHIFT))
    panels = [
        Panel("shift", "Accuracy under shift", Points(
            points.assign(x=wide["robust"], y=wide["mean over shifts"]), f"robust accuracy, {measured.threat}",
            "accuracy, mean over shifts", f"shifts: {names}")),
        Panel("shift-kept", "Share of clean accuracy kept under shift", Points(
            points.assign(x=wide["robust"], y=wide["kept"]), f"robust accuracy, {measured.threat}",
            "accuracy under shift / clean accuracy")),
    ]  # fmt: skip
    notes = (
        f"Robust accuracy and accuracy under shift: {trend(wide['robust'], wide['mean over shifts'])}.",
        f"Robust accuracy and the share of clean accuracy that is kept: {trend(wide['robust'], wide['kept'])}.",
    )
    return Analysis(
        "shift", "Accuracy under distribution shift", {"shift": wide, "shift-all": table}, tuple(panels), notes
    )
