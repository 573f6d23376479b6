"""Distribution shift: accuracy on other data of the same classes, beside robust accuracy (the paper's Figure 3)."""

import pandas as pd

from robustassay.analysis.panels import Panel, Points
from robustassay.analysis.shift import accuracy_table, trend
from robustassay.errors import BadRequest
from robustassay.studies.analyses.analysis import Analysis, groups
from robustassay.studies.workbench import SHIFT, TEST, Bench, Need, Workbench


def needs(bench: Workbench) -> list[Need]:
    """Ask for answers on all data, and for a run."""
    others = [name for name in bench.datasets if name.startswith(SHIFT)]
    if not others:
        raise BadRequest("A shift needs other data of the same classes: name some with --shift.")
    answers = [Need("answers", model, data) for model in bench.models for data in (TEST, *others)]
    return answers + [Need("runs", model) for model in bench.models]


def make(bench: Bench) -> Analysis:
    """Compare accuracies, and correlate them with robust accuracy over models."""
    answers = pd.concat(
        [
            pd.DataFrame(
                {"model": model, "data": data.removeprefix(SHIFT), "correct": bench.answers(model, data).correct}
            )
            for data in (TEST, *bench.named(SHIFT))
            for model in bench.models
        ]
    )
    table = accuracy_table(answers)
    table["robust"] = [bench.robust(str(model)).value for model in table["model"]]
    wide = table.pivot(index="model", columns="data", values="accuracy").loc[list(bench.models)].reset_index()
    wide.insert(1, "robust", [bench.robust(model).value for model in bench.models])
    others = table[table["data"] != TEST]
    mean = others.groupby("model", sort=False).agg(y=("accuracy", "mean"), images=("images", "max")).reset_index()
    wide["mean over shifts"] = mean.set_index("model")["y"].loc[list(bench.models)].to_numpy(float)
    wide["kept"] = wide["mean over shifts"] / wide[TEST]
    points = pd.DataFrame({"model": wide["model"], "group": groups(wide["model"])})
    panels = [
        Panel("shift", "Accuracy under shift", Points(
            points.assign(x=wide["robust"], y=wide["mean over shifts"]), f"robust accuracy, {bench.threat}",
            "accuracy, mean over shifts", f"shifts: {', '.join(n.removeprefix(SHIFT) for n in bench.named(SHIFT))}")),
        Panel("shift-kept", "What a shift leaves of clean accuracy", Points(
            points.assign(x=wide["robust"], y=wide["kept"]), f"robust accuracy, {bench.threat}",
            "accuracy under shift / clean accuracy")),
    ]  # fmt: skip
    says = (
        f"Robust accuracy and accuracy under shift: {trend(wide['robust'], wide['mean over shifts'])}.",
        f"Robust accuracy and the part of clean accuracy that is kept: {trend(wide['robust'], wide['kept'])}.",
    )
    return Analysis(
        "shift", "Accuracy under distribution shift", {"shift": wide, "shift-all": table}, tuple(panels), says
    )
