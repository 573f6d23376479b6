"""Fairness: accuracy of each class, and how far it is spread (the paper's Figure 6)."""

import pandas as pd

from robustassay.analysis.fairness import fairness
from robustassay.analysis.panels import Lines, Panel, Points
from robustassay.analysis.shift import trend
from robustassay.studies.analyses.analysis import NATURAL, Analysis, group, groups
from robustassay.studies.workbench import TEST, Bench, Need, Workbench

SHOWN = 5
"""Lines that can still be told apart."""


def needs(bench: Workbench) -> list[Need]:
    """Ask for a run."""
    return [Need("runs", model) for model in bench.models]


def make(bench: Bench) -> Analysis:
    """Read each class off the records."""
    found = {model: fairness(bench.records(model)) for model in bench.models}
    table = pd.DataFrame(
        {
            "model": model,
            "robust": bench.robust(model).value,
            "clean_rsd": one.clean_rsd,
            "robust_rsd": one.robust_rsd,
            "robust_rsd_by_chance": one.robust_rsd_by_chance,
            "worst_class": _class(bench, int(one.classes["label"].iloc[int(one.classes["robust"].argmin())])),
            "worst_robust": float(one.classes["robust"].min()),
        }
        for model, one in found.items()
    )
    classes = pd.concat([one.classes.assign(model=model) for model, one in found.items()], ignore_index=True)
    classes["class"] = [_class(bench, int(label)) for label in classes["label"]]
    solid, dotted = (_wide(classes, kind, shown(bench)) for kind in ("robust", "clean"))
    images = int(classes.groupby("model")["images"].sum().max())
    points = pd.DataFrame({"model": table["model"], "group": groups(table["model"])})
    points = points.assign(x=table["robust"], y=table["robust_rsd"])[table["robust_rsd"].notna()]
    panels = (
        Panel("fairness-classes", "Accuracy of each class",
              Lines(solid, "", "accuracy", dotted, ("robust", "clean"), f"{images} images, {bench.threat}")),
        Panel("fairness-rsd", "How unevenly robustness is spread over classes",
              Points(points, f"robust accuracy, {bench.threat}", "relative standard deviation over classes",
                     f"{images} images; models with no robustness at all have none", (True, False))),
    )  # fmt: skip
    few = images / max(1, classes["label"].nunique())
    says = (
        f"Robust accuracy and its spread over classes: {trend(table['robust'], table['robust_rsd'])}.",
        f"With {few:.0f} images a class, equal classes would show a relative standard deviation of "
        f"{table['robust_rsd_by_chance'].min():.2f} or more by chance alone.",
    )
    tables = {"fairness": table, "fairness-classes": classes}
    return Analysis("fairness", "Fairness over classes", tables, panels, says)


def shown(bench: Bench) -> list[str]:
    """Choose the most robust models, and one that was trained naturally."""
    ordered = sorted(bench.models, key=lambda model: -bench.robust(model).value)
    natural = [model for model in ordered if group(model) == NATURAL][:1]
    return [model for model in ordered if model not in natural][: SHOWN - len(natural)] + natural


def _class(bench: Bench, label: int) -> str:
    names = bench.datasets[TEST].classes
    return str(names[label]) if label < len(names) else str(label)


def _wide(classes: pd.DataFrame, kind: str, models: list[str]) -> pd.DataFrame:
    order = list(dict.fromkeys(classes.sort_values("label")["class"]))
    return classes.pivot(index="class", columns="model", values=kind).loc[order, models]
