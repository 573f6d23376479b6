"""Fits the probability that an unbroken sample falls to AutoAttack, and reports it on networks left out of the fit.

    python -m benchmarks.doubt_calibration DIR... [--fit resnet20-pgd,resnet18-linf] [--write]

A folder is the `--out` of `benchmarks/express_agreement.py`. Of every pair of network and threat it holds, each attack
gives one row per unbroken sample: its record, and whether AutoAttack broke the sample. AutoAttack's own unbroken
samples are judged by a second AutoAttack with another seed, where there is one. The model is fitted on the networks of
`--fit` and reported on all others. `--write` puts the coefficients into `src/robustassay/analysis/doubt.py` and the
report into `docs/doubt.md`, with its diagram. Without `--fit`, the package's own coefficients are reported on all
networks, and `--write` puts that into the last section of the page: for networks that came after the fit.
"""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from benchmarks.express_agreement import AGAIN
from benchmarks.page_section import replace_section
from robustassay.analysis import doubt
from robustassay.analysis.intervals import wilson
from robustassay.evaluation import Result
from robustassay.evaluation.spec import SPEC_VERSION
from robustassay.results.evidence import STANDARD

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURES: Final = ROOT / "docs/pictures"
EDGES: Final = (0.0, 0.001, 0.01, 0.05, 0.2, 0.5, 1.0)
PENALTY: Final = 0.1
"""Weight of the squared coefficients, so that a fit on rows without a fall has an end."""

CANDIDATE: Final = "express-wide"

SETS: Final = {"margin": 5, "margin and its late fall": 6, "margins of the run as well": 8}
"""Features among which the fit chooses: the first so many of `doubt.features`."""

PAGE: Final = """# How probable is a fall?

An unbroken sample has a probability of falling to AutoAttack; above {limit:.0%} it is in doubt. The probability comes
from a logistic model of

- the part of the clean margin that is left,
- the gradients spent, of which five under L1 count as one,
- whether express or AutoAttack was among the attacks,
- how much of the margin that was left after {early} queries (five times as many under L1) went later: `late` is the
  logarithm of the quotient,
- how much of it went later on all samples of the run: `rough` is the mean part, over samples of which more than
  {clear:.0%} was left after these queries (a broken sample counts as 1; {weight} samples of {smooth:.0%} are added). It
  is low where short attacks end where longer ones do, and higher on networks with bumps.

Its coefficients, for 1, the log-odds of the part left, log(1 + gradients), their product, express or AutoAttack,
late, log(rough / {smooth:.0%}), and its product with the log-odds, are {coefficients}.
Where less than {unmoved:.0%} of the margin was removed, or a flag says that gradients may mislead, it is 1; such
samples are not in the first table.

The model was fitted on {fitted} unbroken samples of {fit_networks}, and is reported here on {held} of networks of
other architectures: {held_networks}.
The fit chose among sets of features by the mean loss on its networks left out one by one: {losses}.
The limit and the factor for L1 were chosen by hand on older networks. All networks saw the same images, on which
nothing else was chosen. Run format {version}, {date}.
Threats: {threats}. Attacks: {attacks}.
Made by `python -m benchmarks.doubt_calibration`.

![Predicted probability and share that fell](pictures/doubt.svg)

{bins}

## By attack, on the held-out networks

{by_attack}

"Missed" samples fell to AutoAttack and were not in doubt.
"""

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


def rows_of(folder: Path, express: str = "express") -> Iterator[pd.DataFrame]:
    """Yield, for every attack of a network under a threat, its unbroken samples and whether each fell.

    The attack named `express` counts as express; of express and its candidate, the other one is left out.
    """
    for threat in sorted((folder / "runs").glob("*/*")):
        runs = {path.name: Result.load(path).records.set_index("sample_id") for path in threat.iterdir()}
        for run, records in runs.items():
            judge = runs.get(AGAIN if run == "autoattack" else "autoattack")
            if judge is None or run in {AGAIN, "express", CANDIDATE} - {express}:
                continue
            attack = "express" if run == express else run
            judged = records.loc[records.index.intersection(judge.index)]  # a run may have been stopped
            stands = (judged["clean_ok"] & ~judged["success"]).to_numpy(bool)
            traits = doubt.AttackTraits("L1" if threat.name.startswith("l1-") else None, attack in STANDARD)
            rows = doubt.described(judged, traits)[stands]
            places = {"network": threat.parent.name, "threat": threat.name.rpartition("-")[0], "attack": attack}
            yield rows.assign(**places, fell=judge.loc[rows.index, "success"].to_numpy(bool))


def fit(rows: pd.DataFrame, columns: int = len(doubt.COEFFICIENTS)) -> np.ndarray:
    """Fit the logistic model on the first so many features; the coefficients of the others are zero."""
    known = rows[rows["left"] <= doubt.UNMOVED]
    x, y = doubt.features(known)[:, :columns], known["fell"].to_numpy(float)

    def cost(beta: np.ndarray) -> tuple[float, np.ndarray]:
        log_odds = x @ beta
        loss = (np.logaddexp(0, log_odds) - y * log_odds).sum() + PENALTY / 2 * np.square(beta).sum()
        return float(loss), x.T @ (1 / (1 + np.exp(-log_odds)) - y) + PENALTY * beta

    beta = np.asarray(minimize(cost, np.zeros(columns), jac=True, method="BFGS").x)
    return np.append(beta, np.zeros(len(doubt.COEFFICIENTS) - columns))


def chosen_features(rows: pd.DataFrame) -> dict[str, float]:
    """Return the mean loss of each set of features on networks left out one by one, the lowest first."""
    known = rows[rows["left"] <= doubt.UNMOVED]
    losses = {}
    for name, columns in SETS.items():
        loss = 0.0
        for network in known["network"].unique():
            out = known["network"] == network
            log_odds = doubt.features(known[out]) @ fit(known[~out], columns)
            loss += float((np.logaddexp(0, log_odds) - known["fell"][out].to_numpy(float) * log_odds).sum())
        losses[name] = loss / len(known)
    return dict(sorted(losses.items(), key=lambda entry: entry[1]))


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


def page(fitted: pd.DataFrame, held: pd.DataFrame, coefficients: Sequence[float], losses: Mapping[str, float]) -> str:
    """Write the report of a fit."""
    return PAGE.format(
        early=doubt.EARLY,
        clear=doubt.CLEAR,
        smooth=doubt.SMOOTH,
        weight=doubt.SMOOTH_WEIGHT,
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
    bins = bins_of(held)
    return SECTION.format(
        version=SPEC_VERSION,
        date=datetime.now(UTC).date(),
        groups=len(bins),
        within=int(bins["predicted"].between(bins["low"], bins["high"]).sum()),
        below=int((bins["predicted"] < bins["low"]).sum()),
        **described(held, held["threat"]),
    )


def described(held: pd.DataFrame, threats: pd.Series) -> dict[str, str]:
    """Return what every report says of the samples that were held out."""
    shown = bins_of(held).assign(
        predicted=lambda t: t["predicted"].map("{:.2%}".format),
        share=lambda t: [
            f"{s:.2%} ({a:.2%} to {b:.2%})" for s, a, b in zip(t["share"], t["low"], t["high"], strict=True)
        ],
    )
    named = {"bin": "probability", "predicted": "mean probability", "share": "share that fell (95 % interval)"}
    attacks = by_attack(held)[["attack", "norm", "unbroken", "in_doubt", "fell", "missed"]]
    return {
        "held": f"{len(held):,}",
        "held_networks": ", ".join(sorted(held["network"].unique())),
        "threats": ", ".join(sorted(threats.unique())),
        "bins": markdown(shown[["bin", "samples", "fell", "predicted", "share"]].rename(columns=named)),
        "by_attack": markdown(attacks.rename(columns={"in_doubt": "in doubt"})),
    }


def main(words: Sequence[str] | None = None) -> None:
    """Fit, report, and write where asked."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folders", nargs="+", type=Path)
    options.add_argument("--fit", help="networks to fit on, separated by commas; the others are held out")
    options.add_argument("--write", action="store_true", help="write coefficients, page and diagram")
    options.add_argument("--express", default="express", help=f"{CANDIDATE} where that became express")
    chosen = options.parse_args(words)
    parts = [part for folder in chosen.folders for part in rows_of(folder, chosen.express)]
    rows = pd.concat(parts, ignore_index=True)
    if chosen.fit:
        report_fit(rows, chosen.fit.split(","), write=chosen.write)
    else:
        report_later(rows.assign(p=doubt.probability_of(rows)), write=chosen.write)


def report_fit(rows: pd.DataFrame, networks: Sequence[str], *, write: bool) -> None:
    """Fit on some networks, report on the others, and write coefficients, page and diagram where asked."""
    seen = rows["network"].isin(networks)
    losses = chosen_features(rows[seen])
    print("loss on networks left out one by one:", losses)
    coefficients = tuple(round(float(value), 3) for value in fit(rows[seen], SETS[next(iter(losses))]))
    rows = rows.assign(p=doubt.probability_of(rows, coefficients))
    fitted, held = rows[seen], rows[~seen]
    text = page(fitted, held, coefficients, losses)
    print(f"coefficients {coefficients}", text, sep="\n")
    if write:
        source = ROOT / "src/robustassay/analysis/doubt.py"
        source.write_text(
            re.sub(r"COEFFICIENTS: Final = \([^)]*\)", f"COEFFICIENTS: Final = {coefficients}", source.read_text())
        )
        (ROOT / "docs/doubt.md").write_text(text)
        draw({"fitted networks": bins_of(fitted), "held-out networks": bins_of(held)}, PICTURES / "doubt.svg")


def report_later(held: pd.DataFrame, *, write: bool) -> None:
    """Report the package's coefficients on networks that came after the fit."""
    text = section(held)
    print(text)
    if write:
        replace_section(ROOT / "docs/doubt.md", LATER, text)
        draw({"networks after the fit": bins_of(held)}, PICTURES / "doubt-later.svg")


if __name__ == "__main__":
    main()
