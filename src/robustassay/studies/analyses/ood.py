"""Out-of-distribution inputs, told by the largest softmax probability (the paper's Figure 5)."""

import pandas as pd

from robustassay.analysis.calibration import confidences
from robustassay.analysis.ood import auroc
from robustassay.analysis.panels import Panel, Points
from robustassay.analysis.shift import trend
from robustassay.errors import BadRequest
from robustassay.studies.analyses.analysis import Analysis, groups
from robustassay.studies.workbench import OUTSIDE, TEST, Bench, Need, Workbench


def needs(bench: Workbench) -> list[Need]:
    """Ask for answers on the data and on what is outside of it, and for a run."""
    outside = [name for name in bench.datasets if name.startswith(OUTSIDE)]
    if not outside:
        raise BadRequest("Out-of-distribution detection needs other images: name a dataset with --outside.")
    answers = [Need("answers", model, data) for model in bench.models for data in (TEST, *outside)]
    return answers + [Need("runs", model) for model in bench.models]


def make(bench: Bench) -> Analysis:
    """Measure each model on each sort of outsiders."""
    rows = []
    for model in bench.models:
        inside = confidences(bench.answers(model).logits)
        for data in bench.named(OUTSIDE):
            area = auroc(inside, confidences(bench.answers(model, data).logits))
            low, high = area.interval()
            told = {"outside": data.removeprefix(OUTSIDE), "auroc": area.value, "low": low, "high": high}
            rows.append({"model": model, "robust": bench.robust(model).value, **told})
    table = pd.DataFrame(rows)
    wide = table.pivot(index="model", columns="outside", values="auroc").loc[list(bench.models)].reset_index()
    panels, says = [], []
    for outside, own in table.groupby("outside", sort=False):
        frame = own.rename(columns={"robust": "x", "auroc": "y"}).assign(group=groups(own["model"]))
        note = f"outside: {outside}; bars: 95 % (DeLong)"
        content = Points(frame, f"robust accuracy, {bench.threat}", "AUROC", note, (True, False), level=0.5)
        panels.append(Panel(f"ood-{outside}".replace(":", "-"), f"Telling {outside} from the test images", content))
        says.append(f"Robust accuracy and AUROC on {outside}: {trend(own['robust'], own['auroc'])}.")
    return Analysis("ood", "Out-of-distribution detection", {"ood": wide, "ood-all": table}, tuple(panels), tuple(says))
