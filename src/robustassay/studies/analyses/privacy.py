"""Privacy leakage: training images told by confidence, clean and after an attack (the paper's Figure 7)."""

import pandas as pd

from robustassay.analysis.panels import Panel, Points
from robustassay.analysis.privacy import infer
from robustassay.analysis.shift import trend
from robustassay.errors import BadRequest
from robustassay.studies.analyses.analysis import Analysis, groups
from robustassay.studies.workbench import MEMBERS, TEST, Bench, Kind, Need, Workbench

WAYS: "dict[Kind, str]" = {"answers": "clean", "adversarial": "adversarial"}


def needs(bench: Workbench) -> list[Need]:
    """Ask for answers on training and test images, clean and after an attack, and for a run."""
    if MEMBERS not in bench.datasets:
        raise BadRequest("Privacy needs images that the models were trained on: name their dataset with --members.")
    inside, outside = bench.datasets[MEMBERS], bench.datasets[TEST]
    if inside.sha256 == outside.sha256 and set(inside.ids) & set(outside.ids):
        raise BadRequest("The training images are among the test images: name other ones with --members.")
    asked = [Need(way, model, data) for model in bench.models for way in WAYS for data in (TEST, MEMBERS)]
    return asked + [Need("runs", model) for model in bench.models]


def make(bench: Bench) -> Analysis:
    """Infer membership for each model."""
    rows = []
    for model in bench.models:
        for way, called in WAYS.items():
            inside, outside = bench.answers(model, MEMBERS, way), bench.answers(model, TEST, way)
            leak = infer(inside.own, outside.own, inside.correct, outside.correct)
            rows.append(
                {
                    "model": model,
                    "images": called,
                    "robust": bench.robust(model).value,
                    "inference_accuracy": leak.accuracy,
                    "low": leak.accuracy - 1.96 * leak.error,
                    "high": leak.accuracy + 1.96 * leak.error,
                    "gap": leak.gap,
                    "baseline": leak.baseline,
                    "auroc": leak.area.value,
                }
            )
    table = pd.DataFrame(rows)
    panels, says = [], []
    for called, own in ((called, table[table["images"] == called]) for called in WAYS.values()):
        frame = own.rename(columns={"inference_accuracy": "y"}).assign(group=groups(own["model"]))
        note = f"{called} images; chance is 50 %; bars: 95 %"
        for x, axis in (("robust", f"robust accuracy, {bench.threat}"), ("baseline", "baseline: (1 + gap) / 2")):
            content = Points(frame.assign(x=own[x]), axis, "membership inference accuracy", note, level=0.5,
                             diagonal=x == "baseline")  # fmt: skip
            panels.append(Panel(f"privacy-{called}-{x}", f"Privacy leakage, {called} images", content))
            what = "robust accuracy" if x == "robust" else "the generalisation gap"
            says.append(f"Leakage on {called} images and {what}: {trend(own[x], own['inference_accuracy'])}.")
        above = (own["inference_accuracy"] - own["baseline"]).max()
        says.append(f"Confidence on {called} images tells at most {100 * above:.1f} points more than the gap does.")
    return Analysis("privacy", "Privacy leakage", {"privacy": table}, tuple(panels), tuple(says))
