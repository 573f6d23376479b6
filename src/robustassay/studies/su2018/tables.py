"""The numbers behind Su et al.'s figures, as tables."""

import math
from typing import Any, Final

import pandas as pd

from robustassay.analysis import transfer
from robustassay.analysis.law import Law, Scatter
from robustassay.analysis.transfer import TransferMatrix
from robustassay.eps import format_eps
from robustassay.studies.page import MISSING, Table
from robustassay.studies.su2018.bench import Bench, Metric
from robustassay.studies.su2018.plan import GoalName, Model, smallest_of

WORDS: Final = {"untargeted": "no target", "random": "a random target", "least-likely": "the least likely target"}


def tables(bench: Bench) -> list[Table]:
    """Make every table whose runs exist."""
    made = [models(bench), *(successes(bench, goal) for goal in bench.scale.goals)]
    made += [distortions(bench), clever(bench), laws(bench), transfers(bench)]
    return [table for table in made if len(table.frame)]


def models(bench: Bench) -> Table:
    """Make Table 1: the models."""
    frame = pd.DataFrame(
        {
            "model": [model.label for model in bench.models],
            "family": [model.family for model in bench.models],
            "depth": [model.depth for model in bench.models],
            "parameters": [model.parameters for model in bench.models],
            "accuracy": [bench.accuracy(model) for model in bench.models],
            "from": [_source(model) for model in bench.models],
        }
    ).astype({"depth": "Int64", "parameters": "Int64"})
    lines = [
        (
            *(model.label, model.family, _whole(model.depth), _whole(model.parameters)),
            f"{bench.accuracy(model):.1%} ({_source(model)})",
        )
        for model in bench.models
    ]
    heading = ("model", "family", "layers", "parameters", "accuracy")
    return Table("table1", "Table 1: the models", heading, tuple(lines), frame)


def successes(bench: Bench, goal: GoalName) -> Table:
    """Make the numbers of Figure 1: how often each attack succeeds, of the images classified correctly."""
    columns, rows, lines = bench.scale.columns(), [], []
    shown = [column for column in columns if not column.smallest_eps]
    for model in bench.models:
        line = [model.label]
        for column in shown:
            rate = bench.success(model, goal, column)
            line.append(MISSING if rate is None else f"{rate.value:.0%}")
            if rate is not None:
                low, high = rate.interval()
                told = {"model": model.label, "attack": column.name, "success": rate.value, "low": low, "high": high}
                rows.append({**told, "images": rate.total})
        lines.append(tuple(line))
    at = format_eps(bench.scale.fixed / 255)
    title = f"As Figure 1: success rate, {WORDS[goal]}; I-FGSM at {at}, C&W and EAD-L1 at any distance"
    heading = ("model", *(column.name for column in shown))
    return Table(f"success-{goal}", title, heading, tuple(lines), pd.DataFrame(rows))


def distortions(bench: Bench) -> Table:
    """Make the distances of the successes: L-inf of I-FGSM, L2 over the number of pixels of C&W, L1 of EAD."""
    steps, kappa = bench.scale.iterations[-1], bench.scale.kappas[0]
    rows, lines = [], []
    for model in bench.models:
        n = bench.pixels_of(model)
        asked = [
            ("L∞ of I-FGSM, x 255", smallest_of(steps), 255.0),
            ("L2 of C&W / pixels, x 10^4", f"C&W κ={kappa}", 1e4 / n),
            ("RMSD of C&W, x 255", f"C&W κ={kappa}", 255 / math.sqrt(3 * n)),
            ("L1 of EAD", "EAD-L1", 1.0),
        ]
        for goal in bench.scale.goals:
            line = [model.label, WORDS[goal]]
            for measure, column, unit in asked:
                found = unit * bench.distances(model, goal, column)
                line.append(f"{found.mean():.3g} (median {found.median():.3g})" if len(found) else MISSING)
                told = {"model": model.label, "goal": goal, "measure": measure, "images": len(found)}
                rows.append({**told, "mean": found.mean(), "median": found.median()} if len(found) else told)
            lines.append(tuple(line))
    title = "Mean distortion of successful attacks on images classified correctly"
    heading = ("model", "goal", *dict.fromkeys(str(row["measure"]) for row in rows))
    return Table("distortion", title, heading, tuple(lines), pd.DataFrame(rows))


def clever(bench: Bench) -> Table:
    """Make the CLEVER scores and how good the fits behind them are."""
    rows: list[dict[str, Any]] = []
    for model in bench.models:
        found = bench.slopes.get(model.name)
        if found is None or "estimate" not in found:
            continue
        for aim, part in found.groupby("aim"):
            rows.append(
                {
                    "model": model.label,
                    "aim": aim,
                    "estimate": part["estimate"].mean(),
                    "median": part["estimate"].median(),
                    "images": len(part),
                    "fell_back": part["fell_back"].astype(bool).mean(),
                    "capped": part["capped"].astype(bool).mean(),
                    "p_value": part["p_value"].median(),
                }
            )
    lines = [
        (
            *(str(row["model"]), str(row["aim"]), f"{row['estimate']:.3f} (median {row['median']:.3f})"),
            *(str(row["images"]), f"{row['fell_back']:.0%}", f"{row['capped']:.0%}", f"{row['p_value']:.2f}"),
        )
        for row in rows
    ]
    heading = (
        "model",
        "target",
        "mean estimate, L2",
        "images",
        "no fit: largest slope taken",
        "capped",
        "median K-S p",
    )
    title = "CLEVER: an estimate of the smallest L2 distance, not a bound"
    return Table("clever", title, heading, tuple(lines), pd.DataFrame(rows))


def scatter(bench: Bench, metric: Metric) -> Scatter:
    """Return the models by accuracy and one metric, with the laws."""
    return Scatter.of(bench.of_metric(metric), metric.unit)


def laws(bench: Bench) -> Table:
    """Make the fitted parameters that the paper gives under Figure 2."""
    rows: list[dict[str, Any]] = []
    for metric in bench.metrics:
        if not len(bench.of_metric(metric)):
            continue
        fitted = scatter(bench, metric)
        for who, law in (("all models", fitted.of_all), ("the frontier", fitted.of_frontier)):
            if law is not None:
                rows.append({"metric": metric.title, "models": who, "n": law.models, **_parameters(law)})
    lines = [
        (
            *(str(row["metric"]), f"{row['models']} ({row['n']})", f"{row['a']:.3g}"),
            f"{row['b']:.3g} ({row['b_low']:.3g} to {row['b_high']:.3g})",
            *(f"{row['explained']:.2f}", f"{row['p_value']:.2g}"),
        )
        for row in rows
    ]
    heading = ("distortion", "fitted to", "a", "b (95 % interval)", "R²", "p of b = 0")
    title = f"As Figure 2: distortion = a + b log(1 - accuracy), {WORDS[bench.goal]}"
    return Table("law", title, heading, tuple(lines), pd.DataFrame(rows))


def matrix(bench: Bench, goal: GoalName, way: str) -> TransferMatrix:
    """Return how often examples of one model (rows) fool another (columns), of images that both classify correctly."""
    short = {model.name: model.label for model in bench.models}
    outcomes = bench.outcomes[goal, way].replace({"source": short, "target": short})
    if goal == "untargeted":
        return transfer.matrix(outcomes, "error", 1, "both correct")
    return transfer.matrix(outcomes, "matching", 5 if bench.scale.photographs else 1, "both correct")


def transfers(bench: Bench) -> Table:
    """Make a table of all heat maps: each cell of each, with its interval."""
    frames, lines = [], []
    for goal, way in bench.outcomes:
        found = matrix(bench, goal, way)
        low, high = found.interval()
        parts = {"rate": found.rates, "low": low, "high": high, "images": found.totals}
        long = pd.concat({name: part.stack() for name, part in parts.items()}, axis=1)
        long.index.names = ["source", "target"]
        frames.append(long.reset_index().assign(goal=goal, attack=way))
        cells = frames[-1]
        own = cells["source"] == cells["target"]
        lines.append((way, WORDS[goal], f"{cells[own]['rate'].mean():.1%}", f"{cells[~own]['rate'].mean():.1%}"))
    whole = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
    heading = ("attack", "goal", "on the source itself", "on other models, mean over pairs")
    title = "Transfer: error rate, or matching rate of targets, where both models are right on the clean image"
    return Table("transfer", title, heading, tuple(lines), whole)


def _parameters(law: Law) -> dict[str, float]:
    (a_low, a_high), (b_low, b_high) = law.a_interval, law.b_interval
    ends = {"a_low": a_low, "a_high": a_high, "b_low": b_low, "b_high": b_high}
    return {"a": law.a, "b": law.b, **ends, "explained": law.explained, "p_value": law.p_value}


def _source(model: Model) -> str:
    return "the images at hand" if model.accuracy is None else model.said_by


def _whole(number: int | None) -> str:
    return MISSING if number is None else f"{number:,}"
