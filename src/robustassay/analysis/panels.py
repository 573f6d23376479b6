"""The figures of analyses as data; the report draws them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

import pandas as pd


@final
@dataclass(frozen=True, eq=False)
class Points:
    """Models by two numbers: a frame with model, group, x, y and, where known, the ends of y's interval."""

    frame: pd.DataFrame = field(repr=False)
    x: str
    y: str
    note: str = ""
    percent: tuple[bool, bool] = (True, True)
    level: float | None = None  # a line across: chance, or a value that parts two kinds
    diagonal: bool = False
    named: frozenset[str] | None = None  # the models whose names are shown; all by default


@final
@dataclass(frozen=True, eq=False)
class HeatMap:
    """Rates in percent, rows and columns named by models."""

    frame: pd.DataFrame = field(repr=False)
    rows: str  # what rows are
    columns: str
    note: str = ""


@final
@dataclass(frozen=True, eq=False)
class Bars:
    """Bars of several numbers per model: a frame with one row per model and one column per number."""

    frame: pd.DataFrame = field(repr=False)
    axis: str
    note: str = ""
    percent: bool = True
    level: float | None = None


@final
@dataclass(frozen=True, eq=False)
class Reliabilities:
    """Reliability diagrams, by model: frames with low, high, images, confidence and accuracy."""

    bins: Mapping[str, pd.DataFrame] = field(repr=False)
    errors: Mapping[str, float]  # ECE
    note: str = ""


@final
@dataclass(frozen=True, eq=False)
class Lines:
    """One line per model over an axis of names or numbers; `solid` and `dotted` have the same shape."""

    solid: pd.DataFrame = field(repr=False)  # an index of places, a column a model
    x: str
    y: str
    dotted: pd.DataFrame | None = None
    meaning: tuple[str, str] = ("", "")  # of solid and dotted lines
    note: str = ""
    percent: bool = True
    logarithmic: bool = False
    groups: tuple[str, ...] = ()  # of each model: models of one group share a colour


Content = Points | Bars | Reliabilities | Lines | HeatMap


@final
@dataclass(frozen=True, eq=False)
class Panel:
    """One figure: the name of its file, a title, and its content."""

    name: str
    title: str
    content: Content
