"""The text, tables and diagram of docs/doubt.md; `benchmarks/doubt_calibration.py` writes them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from robustassay.analysis import doubt
from robustassay.analysis.intervals import wilson
from robustassay.evaluation.spec import SPEC_VERSION

EDGES: Final = (0.0, 0.001, 0.01, 0.05, 0.2, 0.5, 1.0)

PAGE: Final = """# How probable is a fall?

An unbroken sample has a probability of falling to AutoAttack; above {limit:.0%} it is in doubt. The probability comes
from a logistic model of

- the part of the clean margin that is left,
- the gradients spent, of which five under L1 count as one,
- whether express or AutoAttack was among the attacks,
- how far its margin fell beside others: `behind` is the logarithm of the median fall of a margin, over all samples of
  the run that were classified correctly, divided by the fall of this one, and 0 where this one fell farther. A margin
  that fell less than is usual on this model, under this threat, says that the attack failed, and not that the boundary
  is far. So the probability of a sample depends on the others of its run; alone, it has `behind` 0.

Its coefficients, for 1, the log-odds of the part left, log(1 + gradients), their product, express or AutoAttack, and
behind, are {coefficients}.
Where less than {unmoved:.0%} of the margin was removed, or a flag says that gradients may mislead, it is 1; such
samples are not in the first table.

Five coefficients come from an earlier fit on three networks (resnet18 trained under L1, L2 and L∞). A second fit, on
{fitted} unbroken samples of {fit_networks},
may add to them in two ways: to that of 1, for attacks other than express and AutoAttack (after express none of these
samples fell), and to that of `behind`, zero before. The mean loss on these networks, left out one by one, chose what is
added: {losses}. The model is reported here on {held} unbroken samples of other networks:
{held_networks}.
`behind` was thought of after a look at the records of PGD on the first networks of both groups, and cut off at 0 after
a first fit, because below it a sample of almost no margin left doubt; its weight is fitted on the first group only.
What is added rests on PGD with 40 steps: for other attacks it is extrapolated. {judged}
Run format {version}, {date}.

Of the {fell} samples below that fell, {missed} were not in doubt; with the earlier coefficients, {missed_before}.
The mean probability lies within the interval in {within} of {groups} groups, below it in {below}, and above it in the
others.

Threats: {threats}. Attacks: {attacks}.
Made by `python -m benchmarks.doubt_calibration`.

![Predicted probability and share that fell](pictures/doubt.svg)

{bins}

## By attack, on the held-out networks

{by_attack}

"Missed" samples fell to AutoAttack and were not in doubt.
"""

JUDGED: Final = """Whether a sample falls was decided by AutoAttack or, where that takes too long on a CPU, by a
longer express (`benchmarks/express_wide.py`; `--reference express-wide`). Such runs are of {networks}. Names with s91
are networks of 3 epochs on 8,000 images."""

LATER: Final = "Networks and images that came after the fit"
SECTION: Final = """The coefficients above on {held} unbroken samples of networks and images on which nothing was
chosen: {held_networks}.
The mean probability lies within the interval in {within} of {groups} groups, below it in {below}, where more samples
fell than was said, and above it in the others.
Threats: {threats}. Run format {version}, {date}.
Made by `python -m benchmarks.doubt_calibration` without `--fit`.

![Predicted probability and share that fell](pictures/doubt-later.svg)

{bins}

{by_attack}
"""


def bins_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Group rows by their probability: how many there are, the mean probability, and the share that fell."""
    names = [f"{low:.1%} to {high:.1%}" for low, high in pairwise(EDGES)]
    rows = rows[rows["left"] <= doubt.UNMOVED]
    groups = rows.groupby(pd.cut(rows["p"], EDGES, labels=names, include_lowest=True), observed=True)
    found = groups.agg(samples=("fell", "size"), fell=("fell", "sum"), predicted=("p", "mean")).reset_index(names="bin")
    low, high = wilson(found["fell"].to_numpy(), found["samples"].to_numpy(), 0.95)
    return found.assign(share=found["fell"] / found["samples"], low=low, high=high)


def by_attack(rows: pd.DataFrame) -> pd.DataFrame:
    """Count, per attack and norm, unbroken samples, those in doubt, those that fell, and those that were missed."""
    known = rows.assign(
        norm=rows["threat"].str.partition("-")[0],
        in_doubt=rows["p"] > doubt.LIMIT,
        missed=rows["fell"] & (rows["p"] <= doubt.LIMIT),
    )
    counts = known.groupby(["attack", "norm"])[["in_doubt", "fell", "missed"]].sum()
    return counts.assign(unbroken=known.groupby(["attack", "norm"]).size()).reset_index()


def draw(sets: dict[str, pd.DataFrame], path: Path) -> None:
    """Draw the reliability diagram of some sets of networks, by name."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "assay"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5, 4), layout="constrained")
    axes.plot((5e-4, 1), (5e-4, 1), color="0.7", linewidth=1)
    for marker, (name, bins) in zip("os", sets.items(), strict=False):
        error = np.abs(np.stack((bins["share"] - bins["low"], bins["high"] - bins["share"])))
        x, y = bins["predicted"].clip(lower=5e-4), bins["share"].clip(lower=5e-4)
        axes.errorbar(x, y, error, fmt=marker, capsize=3, label=name)
    axes.set(xscale="log", yscale="log", xlabel="predicted probability", ylabel="share that fell (95 % interval)")
    axes.set(xlim=(4e-4, 1.2), ylim=(4e-4, 1.2))
    axes.legend()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def markdown(table: pd.DataFrame) -> str:
    """Write a table as Markdown."""
    lines = ["| " + " | ".join(table.columns) + " |", "|" + "---|" * len(table.columns)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in table.itertuples(index=False)]
    return "\n".join(lines)


def page(
    fitted: pd.DataFrame,
    held: pd.DataFrame,
    coefficients: Sequence[float],
    losses: Mapping[str, float],
    earlier: Sequence[float],
) -> str:
    """Write the report of a fit."""
    fallen = held[held["fell"]]
    return PAGE.format(
        judged=JUDGED.format(
            networks=", ".join(sorted(pd.concat((fitted, held)).query("judge != 'autoattack'")["network"].unique()))
        ),
        fell=len(fallen),
        missed=int((fallen["p"] <= doubt.LIMIT).sum()),
        missed_before=int((doubt.probability_of(fallen, earlier) <= doubt.LIMIT).sum()),
        losses=", ".join(f"{name} {loss:.4f}" for name, loss in losses.items()),
        version=SPEC_VERSION,
        date=datetime.now(UTC).date(),
        limit=doubt.LIMIT,
        unmoved=1 - doubt.UNMOVED,
        coefficients=", ".join(str(value) for value in coefficients),
        fitted=f"{len(fitted):,}",
        fit_networks=", ".join(sorted(fitted["network"].unique())),
        attacks=", ".join(sorted(held["attack"].unique())),
        **described(held, pd.concat((fitted, held))["threat"]),
    )


def section(held: pd.DataFrame) -> str:
    """Write the report on networks that came after the fit."""
    return SECTION.format(
        version=SPEC_VERSION,
        date=datetime.now(UTC).date(),
        **described(held, held["threat"]),
    )


def described(held: pd.DataFrame, threats: pd.Series) -> dict[str, object]:
    """Return what every report says of the samples that were held out."""
    bins = bins_of(held)
    shown = bins.assign(
        predicted=lambda t: t["predicted"].map("{:.2%}".format),
        share=lambda t: [
            f"{s:.2%} ({a:.2%} to {b:.2%})" for s, a, b in zip(t["share"], t["low"], t["high"], strict=True)
        ],
    )
    named = {"bin": "probability", "predicted": "mean probability", "share": "share that fell (95 % interval)"}
    attacks = by_attack(held)[["attack", "norm", "unbroken", "in_doubt", "fell", "missed"]]
    return {
        "groups": len(bins),
        "within": int(bins["predicted"].between(bins["low"], bins["high"]).sum()),
        "below": int((bins["predicted"] < bins["low"]).sum()),
        "held": f"{len(held):,}",
        "held_networks": ", ".join(sorted(held["network"].unique())),
        "threats": ", ".join(sorted(threats.unique())),
        "bins": markdown(shown[["bin", "samples", "fell", "predicted", "share"]].rename(columns=named)),
        "by_attack": markdown(attacks.rename(columns={"in_doubt": "in doubt"})),
    }
