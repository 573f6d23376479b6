"""The paper's statements about its leaderboards, tested on the published entries themselves."""

from typing import Final

import pandas as pd

from robustassay.analysis.rates import Rate
from robustassay.leaderboard.published import SNAPSHOT, published_corruptions, published_table
from robustassay.studies.page import Verdict
from robustassay.studies.robustbench2021.answers import LEVEL, Claim, Outcome, percent

PAPER_YEAR: Final = 2021
"""Entries up to this year are those that the paper speaks of."""

HIGH: Final = 10.0
"""Percentage points by which a reported accuracy is called highly overestimated; ours, the paper gives none."""

CLOSE: Final = 0.5
"""Percentage points within which AutoAttack is called accurate; ours, the paper gives none."""

ALMOST_ALL: Final = 0.9
NOTICEABLE: Final = 1.0
"""Percentage points of clean accuracy."""

STANDARD: Final = "Standard"
OTHERWISE: Final = "corruptions or otherwise"


def linf_entries(year: int | None = PAPER_YEAR) -> pd.DataFrame:
    """Return the CIFAR-10 L∞ entries up to a year, without the standard model; best known where stated."""
    table = with_years(published_table())
    own = table[(table["dataset"] == "cifar10") & (table["threat"] == "Linf") & (table["model"] != STANDARD)]
    return own if year is None else own[own["year"] <= year]


def with_years(table: pd.DataFrame) -> pd.DataFrame:
    """Add the year in the venue, the best known accuracy, and the overestimation, all in percent."""
    years = table["venue"].str.extract(r"\b((?:19|20)\d\d)\b", expand=False).astype(float)
    best = table["best_known_accuracy"].fillna(table["autoattack_accuracy"])
    return table.assign(year=years, best=best, overestimated=table["reported_accuracy"] - table["autoattack_accuracy"])


def corruption_scores() -> pd.DataFrame:
    """Return the mean accuracy under corruptions of CIFAR-10 entries, and what each was trained against."""
    means = published_corruptions("cifar10").groupby("model")["accuracy"].mean()
    table = published_table()
    known = {norm: set(table[table["threat"] == norm]["model"]) - {STANDARD} for norm in ("Linf", "L2")}
    rows = [
        {"model": name, "trained_against": _trained_against(str(name), known), "corruption_accuracy": 100 * value}
        for name, value in means.items()
    ]
    return pd.DataFrame(rows).sort_values("corruption_accuracy", ascending=False, ignore_index=True)


def _trained_against(name: str, known: dict[str, set[str]]) -> str:
    if name == STANDARD:
        return "nothing"
    for norm in ("L2", "Linf"):
        if name.endswith(f"_{norm}") or (not name.endswith(("_L2", "_Linf")) and name in known[norm]):
            return norm
    return OTHERWISE


def _overestimated(_: object) -> Outcome:
    entries, later = linf_entries(), linf_entries(None)
    high, all_high = entries[entries["overestimated"] > HIGH], later[later["overestimated"] > HIGH]
    worst = high.sort_values("overestimated", ascending=False)
    xiao = entries.set_index("model").loc["Xiao2020Enhancing"]
    reasons = [
        f"{row['model']} ({row['venue']}): reported {row['reported_accuracy']:.2f} %, AutoAttack "
        f"{row['autoattack_accuracy']:.2f} %."
        for row in worst.to_dict("records")
    ]
    reasons.append(f"In the whole snapshot ({SNAPSHOT}): {len(all_high)} of {len(later)} entries.")
    measured = (
        f"{len(high)} of {len(entries)} entries lose more than {HIGH:.0f} points; Xiao et al. "
        f"{xiao['reported_accuracy']:.1f} → {xiao['autoattack_accuracy']:.1f} %"
    )
    return Outcome("holds" if len(high) > 1 else "does not hold", measured, "several entries, not one", tuple(reasons))


def _almost_all(_: object) -> Outcome:
    entries = linf_entries()
    differ = entries[entries["overestimated"] != 0]
    lower = Rate(int((differ["overestimated"] > 0).sum()), len(differ))
    low, high = lower.interval()
    early = differ[differ["year"] <= PAPER_YEAR - 1]
    reasons = (
        f"{len(entries) - len(differ)} of {len(entries)} entries report AutoAttack's own number and are not counted.",
        f"Where AutoAttack is higher, it is so by at most {-differ['overestimated'].min():.2f} points.",
        f"Up to {PAPER_YEAR - 1}: AutoAttack is lower in {int((early['overestimated'] > 0).sum())} of {len(early)}.",
        f"'Almost all' is read as {ALMOST_ALL:.0%} or more.",
    )
    verdict: Verdict = "holds" if low >= ALMOST_ALL else "does not hold" if high < ALMOST_ALL else "cannot be said"
    because = "the others are higher by fractions of a point" if verdict != "holds" else "lower in 90 % or more"
    return Outcome(verdict, f"AutoAttack is lower in {percent(lower)} entries that differ", because, reasons)


def _reliable(_: object) -> Outcome:
    table = with_years(published_table())
    entries = table[table["threat"].isin(("Linf", "L2")) & (table["model"] != STANDARD)]
    taken = entries["autoattack_accuracy"] - entries["best"]
    near = Rate(int((taken <= CLOSE).sum()), len(entries))
    far = entries.assign(taken=taken)[taken > CLOSE].sort_values("taken", ascending=False)
    flagged = entries[entries["unreliable"].fillna(False).astype(bool)]["model"].tolist()
    reasons = [
        f"{row['dataset']} {row['threat']}, {row['model']}: AutoAttack {row['autoattack_accuracy']:.2f} %, best known "
        f"{row['best']:.2f} %."
        for row in far.to_dict("records")
    ]
    reasons.append(f"Entries without a lower evaluation by others count as near: nobody may have tried ({len(taken)}).")
    reasons.append(f"Flagged as potentially unreliable: {', '.join(flagged)}.")
    measured = (
        f"best known within {CLOSE} points of AutoAttack in {percent(near)} entries; at most {taken.max():.1f} points "
        f"lower; {len(flagged)} flagged"
    )
    verdict: Verdict = (
        "holds" if near.interval()[0] > 0.5 else "does not hold" if near.interval()[1] < 0.5 else "cannot be said"
    )
    return Outcome(verdict, measured, "most entries, as far as others tried", tuple(reasons))


def _trade_off(_: object) -> Outcome:
    entries, later = linf_entries(), linf_entries(None)
    table = published_table()
    standard = float(table[(table["model"] == STANDARD) & (table["threat"] == "Linf")]["clean_accuracy"].iloc[0])
    top = entries.nlargest(10, "best")
    loss = standard - top["clean_accuracy"]
    now = later[later["clean_accuracy"] > standard]
    reasons = [
        f"{row['model']}: clean {row['clean_accuracy']:.2f} %, best known {row['best']:.2f} %."
        for row in top.to_dict("records")
    ]
    above = ", ".join(now["model"]) or "none"
    reasons.append(f"Entries of any year above the standard model's {standard:.2f} %: {above}.")
    measured = (
        f"the ten most robust up to {PAPER_YEAR}: {loss.min():.1f} to {loss.max():.1f} points below the standard "
        f"model ({standard:.1f} %); {SNAPSHOT}: {len(now)} of {len(later)} above it"
    )
    verdict: Verdict = "holds" if loss.min() >= NOTICEABLE else "does not hold"
    because = f"each loses {NOTICEABLE:.0f} point or more" + (", but not all later ones do" if len(now) else "")
    return Outcome(verdict, measured, because if verdict == "holds" else "one of them loses less", tuple(reasons))


def _extra_data(_: object) -> Outcome:
    from scipy.stats import mannwhitneyu

    entries = linf_entries()
    extra = entries["additional_data"].astype(bool)
    chances, texts = [], []
    for column, name in (("clean_accuracy", "clean"), ("best", "robust")):
        one, two = entries[extra][column], entries[~extra][column]
        chances.append((float(mannwhitneyu(one, two).pvalue), one.median() > two.median()))
        texts.append(f"{name} {one.median():.1f} against {two.median():.1f} % (p = {chances[-1][0]:.1g})")
    sure = all(chance < LEVEL for chance, _ in chances)
    verdict: Verdict = "holds" if sure and all(up for _, up in chances) else "cannot be said"
    if sure and not any(up for _, up in chances):
        verdict = "does not hold"
    counts = f"n = {int(extra.sum())} with extra data, {int((~extra).sum())} without"
    reasons = (
        f"Medians with and without extra data: {'; '.join(texts)}; {counts} (Mann-Whitney).",
        "Methods and architectures differ too: this is an association, as in the paper.",
    )
    return Outcome(verdict, f"medians: {'; '.join(texts)}; {counts}", "both are higher with extra data", reasons)


def _corruptions(_: object) -> Outcome:
    scores = corruption_scores().set_index("model")
    standard = float(scores["corruption_accuracy"][STANDARD])
    own = {norm: scores[scores["trained_against"] == norm]["corruption_accuracy"] for norm in ("Linf", "L2")}
    pairs = [
        (name, value, own["Linf"][str(name).removesuffix("L2") + "Linf"])
        for name, value in own["L2"].items()
        if str(name).removesuffix("L2") + "Linf" in own["Linf"]
    ]
    above = all((values > standard).all() for values in own.values())
    measured = (
        f"standard {standard:.1f} %; trained against Linf {own['Linf'].min():.1f}–{own['Linf'].max():.1f} % "
        f"(n = {len(own['Linf'])}), L2 {own['L2'].min():.1f}–{own['L2'].max():.1f} % (n = {len(own['L2'])})"
    )
    reasons = tuple(f"{name}: {l2:.2f} %, its L∞ sibling {linf:.2f} %." for name, l2, linf in pairs)
    verdict: Verdict = "holds" if above and pairs and all(l2 > linf for _, l2, linf in pairs) else "does not hold"
    return Outcome(verdict, measured, "all are above it; each L2 entry above its sibling", reasons)


CLAIMS: Final[tuple[Claim[object], ...]] = (
    Claim(
        "For several published defenses the reported robust accuracy is highly overestimated",
        "Figure 2; Xiao et al.: 52.4 % reported, 18.50 % under AutoAttack",
        _overestimated,
    ),
    Claim(
        "AutoAttack improves on the reported results of almost all models", "almost all (Figure 2, no number)",
        _almost_all,
    ),
    Claim(
        "AutoAttack is reliable and accurate for most models",
        "no number; one of 63 entries flagged: 18.50 %, and 7.40 % by an adaptive attack",
        _reliable,
    ),
    Claim(
        "All models of high robustness lose noticeable clean accuracy against standard training",
        "Figure 2, no number",
        _trade_off,
    ),
    Claim("Extra data alleviates the trade-off between robustness and accuracy", "Figure 2, no number", _extra_data),
    Claim(
        "Under common corruptions, robust models improve on the standard model, those for L2 most",
        "Figure 3, no number",
        _corruptions,
    ),
)  # fmt: skip
