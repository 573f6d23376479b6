"""Fairness: accuracy of each class, and how far it is spread (the paper's Figure 6)."""

import pandas as pd

from robustassay.analysis.fairness import fairness
from robustassay.analysis.panels import Lines, Panel, Points
from robustassay.analysis.shift import trend
from robustassay.studies.analyses.analysis import NATURAL, Analysis, group, groups
from robustassay.studies.analyses.model_measurements import TEST, ModelMeasurements, key
from robustassay.studies.analyses.setup import AnalysisSetup
from robustassay.studies.task import Key

SHOWN = 5
"""Lines that can be told apart in one figure."""


def requires(setup: AnalysisSetup) -> list[Key]:
    """Return a run."""
    return [key("run", model) for model in setup.models]


def make(measured: ModelMeasurements) -> Analysis:
    """Compute the accuracy of each class from the records."""
    found = {model: fairness(measured.records(model)) for model in measured.models}
    table = pd.DataFrame(
        {
            "model": model,
            "robust": measured.robust(model).value,
            "clean_rsd": one.clean_rsd,
            "robust_rsd": one.robust_rsd,
            "robust_rsd_by_chance": one.robust_rsd_by_chance,
            "worst_class": _class(measured, int(one.classes["label"].iloc[int(one.classes["robust"].argmin())])),
            "worst_robust": float(one.classes["robust"].min()),
        }
        for model, one in found.items()
    )
    classes = pd.concat([one.classes.assign(model=model) for model, one in found.items()], ignore_index=True)
    classes["class"] = [_class(measured, int(label)) for label in classes["label"]]
    solid, dotted = (_wide(classes, kind, shown(measured)) for kind in ("robust", "clean"))
    counts = classes.groupby("model")["images"].sum()
    images = f"{counts.min()} images" if counts.nunique() == 1 else f"{counts.min()} to {counts.max()} images per model"
    points = pd.DataFrame({"model": table["model"], "group": groups(table["model"])})
    points = points.assign(x=table["robust"], y=table["robust_rsd"])[table["robust_rsd"].notna()]
    panels: tuple[Panel, ...] = (
        Panel("fairness-classes", "Accuracy of each class",
              Lines(solid, "", "accuracy", dotted, ("robust", "clean"), f"{images}, {measured.threat}")),
        Panel("fairness-rsd", "Spread of robust accuracy over classes",
              Points(points, f"robust accuracy, {measured.threat}", "relative standard deviation over classes",
                     f"{images}; models with no robustness have none", (True, False))),
    )  # fmt: skip
    if points.empty:
        panels = panels[:1]
    few = counts.min() / max(1, classes["label"].nunique())
    notes = (
        f"Robust accuracy and its spread over classes: {trend(table['robust'], table['robust_rsd'])}.",
        f"With {few:.0f} images per class or more, equal classes would show a relative standard deviation of "
        f"{table['robust_rsd_by_chance'].min():.2f} or more by chance alone.",
    )
    tables = {"fairness": table, "fairness-classes": classes}
    return Analysis("fairness", "Fairness over classes", tables, panels, notes)


def shown(measured: ModelMeasurements) -> list[str]:
    """Return the most robust models and one with natural training."""
    ordered = sorted(measured.models, key=lambda model: -measured.robust(model).value)
    natural = [model for model in ordered if group(model) == NATURAL][:1]
    return [model for model in ordered if model not in natural][: SHOWN - len(natural)] + natural


def _class(measured: ModelMeasurements, label: int) -> str:
    names = measured.datasets[TEST].classes
    return str(names[label]) if label < len(names) else str(label)


def _wide(classes: pd.DataFrame, kind: str, models: list[str]) -> pd.DataFrame:
    order = list(dict.fromkeys(classes.sort_values("label")["class"]))
    return classes.pivot(index="class", columns="model", values=kind).loc[order, models]
