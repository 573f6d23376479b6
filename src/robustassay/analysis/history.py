"""Robustness over time: the accuracy of each year's methods, and how far reported numbers were too high."""

import pandas as pd


def over_time(entries: pd.DataFrame) -> pd.DataFrame:
    """Order entries (name, year, venue, clean, best_known, reported) by year, without those of unknown year.

    Adds `best_so_far`, the highest best known accuracy up to each year's end, and `overestimate`, what was reported
    less what is known now.
    """
    dated = entries[entries["year"].notna()].sort_values(["year", "best_known"], kind="stable")
    yearly = dated.groupby("year")["best_known"].max().cummax().rename("best_so_far")
    found = dated.join(yearly, on="year").reset_index(drop=True)
    return found.assign(year=found["year"].astype(int), overestimate=found["reported"] - found["best_known"])


def by_venue(entries: pd.DataFrame) -> pd.DataFrame:
    """Return one row per venue, without its year: number of entries, their median and best known accuracy."""
    named = entries[entries["venue"].fillna("") != ""]
    place = named["venue"].str.replace(r"[,\s]*(?:[A-Z][a-z]{2}\s+)?(?:19|20)\d\d$", "", regex=True).rename("venue")
    return named["best_known"].groupby(place).agg(entries="size", median="median", best="max").reset_index()
