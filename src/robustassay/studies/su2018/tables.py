"""The numbers behind Su et al.'s figures, as tables."""

import math
from typing import Any, Final

import pandas as pd

from robustassay.analysis.law import Law
from robustassay.eps import format_eps
from robustassay.studies.page import MISSING, Table, comma_list
from robustassay.studies.su2018.measurements import LTWO, SuMeasurements
from robustassay.studies.su2018.models import StudiedModel
from robustassay.studies.su2018.settings import GOAL_TEXTS, SMALLEST, GoalName
from robustassay.studies.su2018.transfers import transfer_matrix

CLEVER_GOALS: Final[tuple[GoalName, ...]] = ("least-likely", "random")
LARGEST_SHAPE: Final = 20
"""Above this shape, the maxima look endless, and the penalty sets the end of the fitted distribution: the estimate is
undecided, as is one without a fit."""


def tables(measured: SuMeasurements) -> list[Table]:
    """Return every table whose runs exist."""
    made = [models(measured), *(successes(measured, goal) for goal in measured.settings.goals)]
    made += [distortions(measured), clever(measured), laws(measured), transfers(measured)]
    return [table for table in made if len(table.frame)]


def models(measured: SuMeasurements) -> Table:
    """Return Table 1: the models."""
    frame = pd.DataFrame(
        {
            "model": [model.label for model in measured.models],
            "family": [model.family for model in measured.models],
            "depth": [model.depth for model in measured.models],
            "parameters": [model.parameters for model in measured.models],
            "accuracy": [measured.accuracy(model) for model in measured.models],
            "from": [_source(model) for model in measured.models],
        }
    ).astype({"depth": "Int64", "parameters": "Int64"})
    lines = [
        (
            *(model.label, model.family, _whole(model.depth), _whole(model.parameters)),
            f"{measured.accuracy(model):.1%} ({_source(model)})",
        )
        for model in measured.models
    ]
    heading = ("model", "family", "layers", "parameters", "accuracy")
    return Table("table1", "Table 1: the models", heading, tuple(lines), frame)


def successes(measured: SuMeasurements, goal: GoalName) -> Table:
    """Return the numbers of Figure 1: the success rate of each attack on correctly classified images."""
    attacks, rows, lines = measured.settings.attacks(goal), [], []
    shown = [
        attack
        for attack in attacks
        if not attack.smallest_eps and any((one.name, goal, attack.name) in measured.results for one in measured.models)
    ]
    for model in measured.models:
        line = [model.label]
        for attack in shown:
            rate = measured.success(model, goal, attack)
            line.append(MISSING if rate is None else f"{rate.value:.0%}")
            if rate is not None:
                low, high = rate.interval()
                entry = {"model": model.label, "attack": attack.name, "success": rate.value, "low": low, "high": high}
                rows.append({**entry, "images": rate.total})
        lines.append(tuple(line))
    at = format_eps(measured.settings.fixed / 255)
    title = f"As Figure 1: success rate, {GOAL_TEXTS[goal]}; I-FGSM at {at}, C&W and EAD-L1 at any distance"
    heading = ("model", *(attack.name for attack in shown))
    return Table(f"success-{goal}", title, heading, tuple(lines), pd.DataFrame(rows))


def distortions(measured: SuMeasurements) -> Table:
    """Return the distances of successes: L∞ of I-FGSM, L2 of C&W over the number of pixels, L1 of EAD."""
    kappa = measured.settings.kappas[0]
    rows, lines = [], []
    for model in measured.models:
        n = measured.pixels_of(model)
        measures = [
            ("L∞ of I-FGSM, x 255", SMALLEST, 255.0),
            ("L2 of C&W / pixels, x 10^4", f"C&W κ={kappa}", 1e4 / n),
            ("RMSD of C&W, x 255", f"C&W κ={kappa}", 255 / math.sqrt(3 * n)),
            ("L1 of EAD", f"EAD-L1 κ={kappa}", 1.0),
        ]
        for goal in measured.settings.goals:
            line = [model.label, GOAL_TEXTS[goal]]
            for measure, attack, unit in measures:
                found = unit * measured.distances(model, goal, attack)
                line.append(f"{found.mean():.3g} (median {found.median():.3g})" if len(found) else MISSING)
                entry = {"model": model.label, "goal": goal, "measure": measure, "images": len(found)}
                rows.append({**entry, "mean": found.mean(), "median": found.median()} if len(found) else entry)
            if set(line[2:]) != {MISSING}:
                lines.append(tuple(line))
    title = "Mean distortion of successful attacks on images classified correctly"
    heading = ("model", "goal", *dict.fromkeys(str(row["measure"]) for row in rows))
    return Table("distortion", title, heading, tuple(lines), pd.DataFrame(rows))


def clever(measured: SuMeasurements) -> Table:
    """Return the CLEVER scores and the quality of their fits."""
    rows: list[dict[str, Any]] = []
    for model in measured.models:
        found = measured.clever.get(model.name)
        if found is None or "estimate" not in found:
            continue
        for aim in CLEVER_GOALS:
            part = found[found["aim"] == aim]
            if not len(part):
                continue
            estimates = part.set_index("sample_id")["estimate"].astype(float)
            unfitted, endless = part["fell_back"].astype(bool), part["shape"] > LARGEST_SHAPE
            decided = part["estimate"][~unfitted & ~endless].astype(float)
            rows.append(
                {
                    "model": model.label,
                    "aim": aim,
                    "estimate": estimates.mean(),
                    "median": estimates.median(),
                    "images": len(part),
                    "fell_back": unfitted.mean(),
                    "penalised": endless.mean(),
                    "decided": decided.mean(),
                    "capped": part["capped"].astype(bool).mean(),
                    "above_cw": _share_above(estimates, measured.distances(model, aim, measured.attack_of(LTWO))),
                    "p_value": part["p_value"].median(),
                }
            )
    lines = [
        (
            *(str(row["model"]), str(row["aim"]), f"{row['estimate']:.3f} (median {row['median']:.3f})"),
            *(str(row["images"]), f"{row['fell_back']:.0%}", f"{row['penalised']:.0%}"),
            MISSING if math.isnan(row["decided"]) else f"{row['decided']:.3f}",
            *(f"{row['capped']:.0%}", MISSING if math.isnan(row["above_cw"]) else f"{row['above_cw']:.0%}"),
            f"{row['p_value']:.2f}",
        )
        for row in rows
    ]
    heading = (
        "model",
        "target",
        "mean estimate, L2",
        "images",
        "undecided: no fit, largest gradient taken",
        "undecided: end set by the penalty",
        "mean of the decided",
        "capped",
        "above the distance of C&W",
        "median K-S p",
    )
    title = "CLEVER: an estimate of the smallest L2 distance, not a bound"
    notes = (
        "Where the maxima look endless, the penalty of the authors' program sets the end of the fitted distribution; "
        "with more points, fewer images are undecided in this way. No verdict uses CLEVER.",
        "A lower bound would never lie above the distance at which an attack succeeds: the column counts the images on "
        "which the estimate does.",
    )
    return Table("clever", title, heading, tuple(lines), pd.DataFrame(rows), notes)


def _share_above(estimates: pd.Series, distances: pd.Series) -> float:
    """Return the share of the images with both on which the estimate is larger."""
    both = pd.concat([estimates, distances], axis=1, join="inner")
    return float((both.iloc[:, 0] > both.iloc[:, 1]).mean()) if len(both) else math.nan


def laws(measured: SuMeasurements) -> Table:
    """Return the fitted parameters that the paper prints under Figure 2."""
    rows: list[dict[str, Any]] = []
    for metric in measured.metrics:
        if not len(measured.models_by(metric)):
            continue
        fitted, common = measured.scatter(metric), measured.models_by(metric, on_common=True)
        on_common = measured.scatter(metric, on_common=True).of_all if len(common) else None
        named = {
            "all models": fitted.of_all,
            f"all models, the {len(measured.common)} images that all classify correctly": on_common,
            "the frontier": fitted.of_frontier,
        }
        for which, law in named.items():
            if law is not None:
                rows.append({"metric": metric.title, "models": which, "n": law.models, **_parameters(law)})
    lines = [
        (
            *(str(row["metric"]), f"{row['models']} ({row['n']})", f"{row['a']:.3g}"),
            f"{row['b']:.3g} ({row['b_low']:.3g} to {row['b_high']:.3g})",
            *(f"{row['explained']:.2f}", f"{row['p_value']:.2g}"),
        )
        for row in rows
    ]
    heading = ("distortion", "fitted to", "a", "b (95 % interval)", "R²", "p of b = 0")
    title = f"As Figure 2: distortion = a + b log(1 - accuracy), {GOAL_TEXTS[measured.goal]}"
    return Table("law", title, heading, tuple(lines), pd.DataFrame(rows))


def transfers(measured: SuMeasurements) -> Table:
    """Return the summary of all heat maps, with both denominators; the frame has every cell with its interval."""
    frames, lines = [], []
    for goal, attack in measured.outcomes:
        found, papers = (transfer_matrix(measured, goal, attack, among) for among in ("both correct", "source correct"))
        low, high = found.interval()
        parts = {"rate": found.rates, "low": low, "high": high, "images": found.totals}
        parts |= {"rate_as_paper": papers.rates, "images_as_paper": papers.totals}
        long = pd.concat({name: part.stack() for name, part in parts.items()}, axis=1)
        long.index.names = ["source", "target"]
        frames.append(long.reset_index().assign(goal=goal, attack=attack))
        cells = frames[-1]
        own = cells["source"] == cells["target"]
        rates = cells[own]["rate"].mean(), cells[~own]["rate"].mean(), cells[~own]["rate_as_paper"].mean()
        lines.append((attack, GOAL_TEXTS[goal], *(f"{rate:.1%}" for rate in rates)))
    whole = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
    heading = ("attack", "goal", "on the source itself", "on other models", "on other models, counted as in the paper")
    title = "Transfer, mean over pairs: error rate, or matching rate of targets"
    notes = (
        "Ours: of the examples whose clean image both models classify correctly. The paper's: of those that the source "
        "classifies correctly.",
        *_fewer_sources(measured),
    )
    return Table("transfer", title, heading, tuple(lines), whole, notes)


def _fewer_sources(measured: SuMeasurements) -> tuple[str, ...]:
    """Name the sources of attacks that met some models only, whose means are not those of the others."""
    few = {
        attack: found["source"].nunique()
        for (_, attack), found in measured.outcomes.items()
        if found["source"].nunique() < len(measured.models)
    }
    if not few:
        return ()
    sources = comma_list(str(number) for number in sorted(set(few.values())))
    return (
        f"{comma_list(few)}: means over the examples of {sources} of the {len(measured.models)} models, not to be "
        "compared with the means of other attacks.",
    )


def _parameters(law: Law) -> dict[str, float]:
    (a_low, a_high), (b_low, b_high) = law.a_interval, law.b_interval
    ends = {"a_low": a_low, "a_high": a_high, "b_low": b_low, "b_high": b_high}
    return {"a": law.a, "b": law.b, **ends, "explained": law.explained, "p_value": law.p_value}


def _source(model: StudiedModel) -> str:
    return "the study's images" if model.accuracy is None else model.accuracy_source


def _whole(number: int | None) -> str:
    return MISSING if number is None else f"{number:,}"
