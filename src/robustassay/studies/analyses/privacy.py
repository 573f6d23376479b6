"""Privacy leakage: membership inference by confidence, on clean and attacked images (the paper's Figure 7)."""

import pandas as pd

from robustassay.analysis.panels import Panel, Points
from robustassay.analysis.privacy import infer
from robustassay.analysis.shift import trend
from robustassay.errors import BadRequest
from robustassay.studies.analyses.analysis import NATURAL, Analysis, group, groups
from robustassay.studies.analyses.model_measurements import MEMBERS, TEST, MeasurementKind, ModelMeasurements, key
from robustassay.studies.analyses.setup import AnalysisSetup
from robustassay.studies.task import Key

IMAGES: "dict[MeasurementKind, str]" = {"predictions": "clean", "adversarial predictions": "adversarial"}


def requires(setup: AnalysisSetup) -> list[Key]:
    """Return predictions on training and test images, clean and attacked, and a run."""
    if MEMBERS not in setup.datasets:
        raise BadRequest("Privacy needs images that the models were trained on: name their dataset with --members.")
    inside, outside = setup.datasets[MEMBERS], setup.datasets[TEST]
    if inside.sha256 == outside.sha256 and set(inside.ids) & set(outside.ids):
        raise BadRequest("The training images are among the test images: name other ones with --members.")
    wanted = [key(kind, model, data) for model in setup.models for kind in IMAGES for data in (TEST, MEMBERS)]
    return wanted + [key("run", model) for model in setup.models]


def make(measured: ModelMeasurements) -> Analysis:
    """Infer membership for each model."""
    rows = []
    for model in measured.models:
        for kind, images in IMAGES.items():
            inside, outside = measured.predictions(model, MEMBERS, kind), measured.predictions(model, TEST, kind)
            leak = infer(inside.true_label_probability, outside.true_label_probability, inside.correct, outside.correct)
            rows.append(
                {
                    "model": model,
                    "images": images,
                    "robust": measured.robust(model).value,
                    "inference_accuracy": leak.accuracy,
                    "low": leak.accuracy - 1.96 * leak.error,
                    "high": leak.accuracy + 1.96 * leak.error,
                    "gap": leak.gap,
                    "baseline": leak.baseline,
                    "auroc": leak.area.value,
                }
            )
    table = pd.DataFrame(rows)
    panels, notes = [], []
    # Natural models lie close together: their colour says enough.
    named = frozenset(model for model in measured.models if group(model) != NATURAL)
    for images, own in ((images, table[table["images"] == images]) for images in IMAGES.values()):
        frame = own.rename(columns={"inference_accuracy": "y"}).assign(group=groups(own["model"]))
        note = "chance is 50 %; bars: 95 %; natural models are not named"
        for x, axis in (("robust", f"robust accuracy, {measured.threat}"), ("baseline", "baseline: (1 + gap) / 2")):
            content = Points(frame.assign(x=own[x]), axis, "membership inference accuracy", note, level=0.5,
                             diagonal=x == "baseline", named=named)  # fmt: skip
            what = "robust accuracy" if x == "robust" else "the generalisation gap"
            panels.append(Panel(f"privacy-{images}-{x}", f"Privacy leakage and {what}, {images} images", content))
            notes.append(f"Leakage on {images} images and {what}: {trend(own[x], own['inference_accuracy'])}.")
        above = (own["inference_accuracy"] - own["baseline"]).max()
        notes.append(
            f"On {images} images, inference is at most {100 * above:.1f} points above the baseline of the gap."
        )
    return Analysis("privacy", "Privacy leakage", {"privacy": table}, tuple(panels), tuple(notes))
