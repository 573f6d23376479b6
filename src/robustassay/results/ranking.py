"""Ranks of models on the samples that most of them share."""

from collections import Counter
from collections.abc import Mapping

import pandas as pd

from robustassay.analysis.ranks import Ranks, rank


def rank_on_shared_samples(robust: Mapping[str, pd.Series]) -> tuple[Ranks | None, int]:
    """Rank models by which samples are robust (true or false by sample id), and count the samples compared.

    The samples are those that most models have; a model that lacks some of them is not ranked.
    """
    if not robust:
        return None, 0
    held = Counter(frozenset(series.index) for series in robust.values())
    common = max(held, key=lambda ids: (held[ids], len(ids)))
    order = sorted(common)
    compared = {name: series.loc[order] for name, series in robust.items() if common <= set(series.index)}
    return (rank(compared), len(order)) if order else (None, 0)
