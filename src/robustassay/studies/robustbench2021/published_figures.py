"""Figure 2 and its neighbours, drawn from the published entries."""

import re
from typing import Final

import pandas as pd

from robustassay.analysis.panels import Panel, Points
from robustassay.leaderboard.published import SNAPSHOT, published_table
from robustassay.studies.page import Figure, Table
from robustassay.studies.robustbench2021.published_entries import PAPER_YEAR, corruption_scores, linf_entries

GROUP: Final = f"Published entries, CIFAR-10, {SNAPSHOT} (as Figure 2)"
TABLE_ONE: Final = {
    ("cifar10", "Linf"): 63,
    ("cifar10", "L2"): 18,
    ("cifar10", "corruptions"): 15,
    ("cifar100", "Linf"): 14,
    ("cifar100", "corruptions"): 4,
    ("imagenet", "Linf"): 6,
    ("imagenet", "corruptions"): 7,
}
"""Entries of the leaderboards in the paper's Table 1."""


def published_figures() -> list[Figure]:
    """Return the figures."""
    return [Figure(panel.name, panel.title, panel.content, GROUP) for panel in _panels()]


def _panels() -> list[Panel]:
    entries = linf_entries(None)
    entries = entries.assign(taken=entries["autoattack_accuracy"] - entries["best"])
    when = [f"up to {PAPER_YEAR}" if year <= PAPER_YEAR else f"after {PAPER_YEAR}" for year in entries["year"]]
    extra = ["extra data" if flag else "no extra data" for flag in entries["additional_data"]]
    lowered = entries[entries["taken"] > 0]
    of_lowered = [group for group, taken in zip(when, entries["taken"], strict=True) if taken > 0]
    low, top, clean = (set(entries.nlargest(count, column)["model"]) for count, column in
                       ((6, "overestimated"), (1, "best"), (1, "clean_accuracy")))  # fmt: skip
    robust = "best known robust accuracy"
    return [
        Panel("published-reported", "Reported robust accuracy and AutoAttack",
              _points(entries, when, ("reported_accuracy", "autoattack_accuracy"), low, "reported robust accuracy",
                      "under AutoAttack, Linf 8/255", diagonal=True)),
        Panel("published-adaptive", "AutoAttack and the best known evaluation, where others lowered it",
              _points(lowered, of_lowered, ("autoattack_accuracy", "best"), set(lowered.nlargest(3, "taken")["model"]),
                      "under AutoAttack, Linf 8/255", "best known", diagonal=True)),
        Panel("published-time", "Robustness by year of the venue",
              _points(entries, extra, ("year", "best"), {*top, "Xiao2020Enhancing"}, "year", robust)),
        Panel("published-trade-off", "Accuracy and robustness",
              _points(entries, extra, ("clean_accuracy", "best"), top | clean, "clean accuracy", robust)),
        Panel("published-corruptions", "Accuracy under corruptions", _corruption_points()),
    ]  # fmt: skip


def _points(
    entries: pd.DataFrame, group: list[str], columns: tuple[str, str], named: set[str], x: str, y: str,
    diagonal: bool = False,
) -> Points:  # fmt: skip
    """Plot two columns; only some entries are named, and briefly, as a hundred names would hide the points."""
    labels = [_short(model) if model in named else "" for model in entries["model"]]
    years = columns[0] == "year"
    frame = pd.DataFrame(
        {
            "model": labels,
            "group": pd.Categorical(group, categories=sorted(set(group), reverse=True)),
            "x": entries[columns[0]] / (1 if years else 100),
            "y": entries[columns[1]] / 100,
        }
    )
    note = f"{len(entries)} entries" + ("; dotted: equal" if diagonal else "")
    return Points(frame, x, y, note, (not years, True), diagonal=diagonal, named=frozenset(filter(None, labels)))


def _short(model: str) -> str:
    found = re.match(r"[A-Za-z]+\d{4}", model)
    return found[0] if found else model


def _corruption_points() -> Points:
    """Plot accuracy under corruptions over the clean accuracy of the same model."""
    table = published_table()
    clean = table[(table["dataset"] == "cifar10") & (table["threat"] == "corruptions")]
    own = corruption_scores().merge(clean[["model", "clean_accuracy"]], on="model")
    group = [f"trained against {kind}" if kind != "nothing" else "standard" for kind in own["trained_against"]]
    return _points(own, group, ("clean_accuracy", "corruption_accuracy"), {"Standard"}, "clean accuracy",
                   "mean accuracy, 15 corruptions at 5 severities")  # fmt: skip


def published_tables() -> list[Table]:
    """Return how many entries there are, progress by year, and the numbers of the figures."""
    entries = linf_entries(None)
    years = entries.groupby("year").agg(entries=("model", "size"), best=("best", "max"), median=("best", "median"))
    years = years.assign(best_so_far=years["best"].cummax()).reset_index().astype({"year": int})
    counts = published_table().groupby(["dataset", "threat"]).size()
    rows = [
        {"dataset": dataset, "threat": threat, "paper": TABLE_ONE.get((dataset, threat), 0), "here": number}
        for dataset, threat, number in counts.reset_index().itertuples(index=False, name=None)
    ]
    columns = ["model", "venue", "year", "architecture", "additional_data", "clean_accuracy", "reported_accuracy",
               "autoattack_accuracy", "best", "overestimated", "unreliable"]  # fmt: skip
    return [
        _table("published-counts", f"Entries of the leaderboards: the paper's Table 1 and {SNAPSHOT}",
               pd.DataFrame(rows)),
        _table("published-years", "CIFAR-10 Linf: best known robust accuracy by year of the venue, %", years),
        _table("published-corruptions", "CIFAR-10: accuracy under corruptions of published models, %",
               corruption_scores()),
        Table("published-linf", "CIFAR-10 Linf: all published entries", (), (), entries[columns], printed=False),
    ]  # fmt: skip


def _table(name: str, title: str, frame: pd.DataFrame) -> Table:
    lines = tuple(tuple(_cell(value) for value in row) for row in frame.itertuples(index=False))
    return Table(name, title, tuple(str(column) for column in frame), lines, frame, printed=False)


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
