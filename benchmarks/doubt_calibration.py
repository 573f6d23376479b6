"""Fits the probability that an unbroken sample falls to AutoAttack, and reports it on networks left out of the fit.

    python -m benchmarks.doubt_calibration DIR... [--fit resnet20-pgd,resnet18-linf] [--write]

A folder is the `--out` of `benchmarks/express_agreement.py`. Of every pair of network and threat it holds, each attack
gives one row per unbroken sample: its record, and whether AutoAttack broke the sample. AutoAttack's own unbroken
samples are judged by a second AutoAttack with another seed, where there is one; where there is no AutoAttack, the
attack `express-wide` judges. The model is fitted on the networks of
`--fit` and reported on all others. `--write` puts the coefficients into `src/robustassay/analysis/doubt.py` and the
report into `docs/doubt.md`, with its diagram. Without `--fit`, the package's own coefficients are reported on all
networks, and `--write` puts that into the last section of the page: for networks that came after the fit.
"""

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from benchmarks.doubt_page import LATER, bins_of, draw, page, section
from benchmarks.express_agreement import AGAIN
from benchmarks.page_section import replace_section
from robustassay.analysis import doubt
from robustassay.evaluation import Result
from robustassay.results.evidence import STANDARD

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURES: Final = ROOT / "docs/pictures"
PENALTY: Final = 0.1
"""Weight of the squared coefficients, so that a fit on rows without a fall has an end."""

CANDIDATE: Final = "express-wide"

EARLIER: Final = (-2.856, -1.83, -0.332, 0.151, -2.463, 0.0)
"""Coefficients that were fitted on 5,843 unbroken samples of resnet18-l1, resnet18-l2 and resnet18-linf. They stay; new
networks add to that of 1, for attacks other than express and AutoAttack, and to that of `behind`."""

SETS: Final = {"as before": (), "1": (0,), "behind": (1,), "1 and behind": (0, 1)}
"""What may be added to, among which the fit chooses."""


def rows_of(folder: Path, express: str = "express") -> Iterator[pd.DataFrame]:
    """Yield, for every attack of a network under a threat, its unbroken samples and whether each fell.

    The attack named `express` counts as express; of express and its candidate, the other one is left out.
    """
    for threat in sorted((folder / "runs").glob("*/*")):
        runs = {path.name: Result.load(path).records.set_index("sample_id") for path in threat.iterdir()}
        for run, records in runs.items():
            by = "autoattack" if "autoattack" in runs else CANDIDATE
            judge = runs.get(AGAIN if run == "autoattack" else by)
            if judge is None or run in {AGAIN, "express", CANDIDATE} - {express}:
                continue
            attack = "express" if run == express else run
            judged = records.loc[records.index.intersection(judge.index)]  # a run may have been stopped
            stands = (judged["clean_ok"] & ~judged["success"]).to_numpy(bool)
            traits = doubt.AttackTraits("L1" if threat.name.startswith("l1-") else None, attack in STANDARD)
            rows = doubt.described(judged, traits)[stands]
            places = {
                "judge": by,
                "network": threat.parent.name,
                "threat": threat.name.rpartition("-")[0],
                "attack": attack,
            }
            yield rows.assign(**places, fell=judge.loc[rows.index, "success"].to_numpy(bool))


def fit(rows: pd.DataFrame, added: Sequence[int] = (0, 1)) -> np.ndarray:
    """Return the earlier coefficients with what these rows add to them: for 1, and for `behind`."""
    known = rows[rows["left"] <= doubt.UNMOVED]
    x, y = doubt.features(known), known["fell"].to_numpy(float)
    offset, moves = x @ EARLIER, additions(added)
    x = x @ moves.T

    def cost(beta: np.ndarray) -> tuple[float, np.ndarray]:
        log_odds = offset + x @ beta
        loss = (np.logaddexp(0, log_odds) - y * log_odds).sum() + PENALTY / 2 * np.square(beta).sum()
        return float(loss), x.T @ (1 / (1 + np.exp(-log_odds)) - y) + PENALTY * beta

    if not len(moves):
        return np.asarray(EARLIER)
    return np.asarray(EARLIER + minimize(cost, np.zeros(len(moves)), jac=True, method="BFGS").x @ moves)


def additions(added: Sequence[int]) -> np.ndarray:
    """Return the directions in which coefficients move: 1 without express and AutoAttack, whose sum stays; `behind`."""
    return np.array([[1, 0, 0, 0, -1, 0], [0, 0, 0, 0, 0, 1]], float)[list(added)].reshape(-1, len(EARLIER))


def chosen_features(rows: pd.DataFrame) -> dict[str, float]:
    """Return the mean loss of each set of additions on networks left out one by one, the lowest first."""
    known = rows[rows["left"] <= doubt.UNMOVED]
    losses = {}
    for name, added in SETS.items():
        loss = 0.0
        for network in known["network"].unique():
            out = known["network"] == network
            log_odds = doubt.features(known[out]) @ fit(known[~out], added)
            loss += float((np.logaddexp(0, log_odds) - known["fell"][out].to_numpy(float) * log_odds).sum())
        losses[name] = loss / len(known)
    return dict(sorted(losses.items(), key=lambda entry: entry[1]))


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
    text = page(fitted, held, coefficients, losses, EARLIER)
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
