"""Distribution shift: accuracy on other data of the same classes, and robust accuracy (the paper's Figure 3)."""

import re
from typing import Final

import pandas as pd

from robustassay.analysis.panels import Lines, Panel, Points
from robustassay.analysis.shift import accuracy_table, trend
from robustassay.errors import BadRequest
from robustassay.names import slug
from robustassay.studies.analyses.analysis import ENDS, Analysis, groups, to_name
from robustassay.studies.analyses.fairness import shown
from robustassay.studies.analyses.model_measurements import SHIFT, TEST, ModelMeasurements, key
from robustassay.studies.analyses.setup import AnalysisSetup
from robustassay.studies.task import Key

CORRUPTIONS: Final = "corruptions"
"""Stands for all corruptions of the test images together."""


def requires(setup: AnalysisSetup) -> list[Key]:
    """Return predictions on all data, and a run."""
    others = [name for name in setup.datasets if name.startswith(SHIFT)]
    if not others:
        raise BadRequest("A shift needs other data of the same classes: name some with --shift.")
    predictions = [key("predictions", model, data) for model in setup.models for data in (TEST, *others)]
    return predictions + [key("run", model) for model in setup.models]


def make(measured: ModelMeasurements) -> Analysis:
    """Compare accuracies, and correlate them with robust accuracy over models."""
    table = accuracy_table(_predictions(measured))
    table["shift"] = [_family(data) for data in table["data"]]
    wide = table.pivot_table(index="model", columns="shift", values="accuracy", sort=False).loc[list(measured.models)]
    names = [str(name) for name in wide if name != TEST]
    wide = wide.reset_index()
    wide.insert(1, "robust", [measured.robust(model).value for model in measured.models])
    panels, notes = [], []
    axis = f"robust accuracy, {measured.threat}"
    points = pd.DataFrame({"model": wide["model"], "group": groups(wide["model"]), "x": wide["robust"]})
    for name in names:
        wide[f"{name}, share kept"] = wide[name] / wide[TEST]
        images = int(table[table["shift"] == name]["images"].sum() / len(wide))
        note = f"{images:,} images per model; {ENDS}"
        for_all, kept_of = (to_name(wide["model"].tolist(), wide[y].tolist()) for y in (name, f"{name}, share kept"))
        panels.append(Panel(f"shift-{slug(name)}", f"Accuracy under shift: {name}",
                            Points(points.assign(y=wide[name]), axis, "accuracy", note, named=for_all)))  # fmt: skip
        panels.append(Panel(f"shift-{slug(name)}-kept", f"Share of clean accuracy kept: {name}",
                            Points(points.assign(y=wide[f"{name}, share kept"])[wide[TEST] > 0], axis,
                                   "accuracy / clean accuracy", note, named=kept_of)))  # fmt: skip
        notes.append(f"Robust accuracy and accuracy on {name}: {trend(wide['robust'], wide[name])}.")
        kept = trend(wide["robust"], wide[f"{name}, share kept"])
        notes.append(f"Robust accuracy and the share of clean accuracy kept on {name}: {kept}.")
    if severities := _severities(table, shown(measured)):
        panels.append(severities)
    tables = {"shift": wide, "shift-all": table}
    return Analysis("shift", "Accuracy under distribution shift", tables, tuple(panels), tuple(notes))


def _predictions(measured: ModelMeasurements) -> pd.DataFrame:
    frames = [
        pd.DataFrame({"model": model, "data": data.removeprefix(SHIFT), "correct": measured.correct(model, data)})
        for data in (TEST, *measured.named(SHIFT))
        for model in measured.models
    ]
    return pd.concat(frames)


def _family(data: str) -> str:
    return CORRUPTIONS if _cell(data) else data


def _cell(data: str) -> tuple[str, int] | None:
    """Return kind and severity of a corruption, written fog-3 or fog:severity=3."""
    found = re.fullmatch(r"([a-z-]+)(?:-|:severity=)([1-5])(?:\|.*)?", data)
    return (found[1], int(found[2])) if found else None


def _severities(table: pd.DataFrame, models: list[str]) -> Panel | None:
    """Draw the mean over kinds at each severity, for the models that can be told apart."""
    cells = table[table["shift"] == CORRUPTIONS].assign(severity=lambda own: [_severity(data) for data in own["data"]])
    if cells["severity"].nunique() < 2:
        return None
    lines = cells.pivot_table(index="severity", columns="model", values="accuracy")
    content = Lines(lines[[model for model in models if model in lines]], "severity", "accuracy, mean over kinds")
    return Panel("shift-severity", "Accuracy by severity of the corruption", content)


def _severity(data: str) -> int:
    cell = _cell(data)
    return 0 if cell is None else cell[1]
