"""What every analysis returns: tables, figures and sentences; and the groups of models."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

import pandas as pd

from robustassay.analysis.panels import Panel
from robustassay.errors import StoreFailed
from robustassay.studies.analyses.model_measurements import card_of

NATURAL, ADVERSARIAL, OTHER = "natural training", "trained against L∞ attacks", "other defenses and models"
L2_TRAINED: Final = "trained against L2 attacks"
ENDS: Final = "of natural models the highest and the lowest are named"
"""What figures say whose names `to_name` chooses."""
_ADVERSARIAL_RECIPES: Final = frozenset({"pgd", "trades", "alp", "ibp"})


@final
@dataclass(frozen=True, eq=False)
class Analysis:
    """One analysis of a set of models; the first table is the one to print."""

    name: str
    title: str
    tables: Mapping[str, pd.DataFrame] = field(repr=False)
    panels: tuple[Panel, ...] = field(repr=False)
    notes: tuple[str, ...]

    @property
    def table(self) -> pd.DataFrame:
        """The table with one row per model."""
        return next(iter(self.tables.values()))

    def write(self, out: Path) -> None:
        """Write the tables."""
        try:
            out.mkdir(parents=True, exist_ok=True)
            for name, frame in self.tables.items():
                frame.to_csv(out / f"{name}.csv", index=False)
        except OSError as error:
            raise StoreFailed(f"{out} cannot be written ({error.strerror or error}): choose another place.") from error


def groups(models: Iterable[str]) -> "pd.Categorical[str]":
    """Return how models were trained; the fixed order gives each group one colour everywhere."""
    return pd.Categorical([group(model) for model in models], categories=[NATURAL, ADVERSARIAL, OTHER, L2_TRAINED])


def to_name(models: Sequence[str], values: Sequence[float]) -> frozenset[str]:
    """Choose the models to name in a figure: of natural ones, which lie close together, the highest and the lowest."""
    natural = sorted((value, model) for model, value in zip(models, values, strict=True) if group(model) == NATURAL)
    ends = {model for _, model in (*natural[:1], *natural[-1:])}
    return frozenset(ends | {model for model in models if group(model) != NATURAL})


def group(model: str) -> str:
    """Return how a model was trained, by its card; one of RobustBench by its name and threat."""
    card = card_of(model)
    if card is None:
        return _robustbench_group(model)
    if card.recipe == "natural":
        return NATURAL
    return L2_TRAINED if card.recipe == "pgd-l2" else ADVERSARIAL if card.recipe in _ADVERSARIAL_RECIPES else OTHER


def _robustbench_group(model: str) -> str:
    """Return the group of `robustbench:NAME[:[DATASET/]THREAT]`; all but the standard models are trained for it."""
    source, _, rest = model.partition(":")
    name, _, place = rest.partition(":")
    if source != "robustbench":
        return OTHER
    threat = place.rpartition("/")[2] or "Linf"
    return NATURAL if name == "Standard" else {"Linf": ADVERSARIAL, "L2": L2_TRAINED}.get(threat, OTHER)
