"""Pictures as data: what analyses have to show, drawn by `report.panels`."""

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


@final
@dataclass(frozen=True, eq=False)
class Bars:
    """Some numbers of each model, side by side: a frame with a row a model and a column a number."""

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
    """A line a model over an axis of names or numbers; `solid` and `dotted` have the same rows and columns."""

    solid: pd.DataFrame = field(repr=False)  # an index of places, a column a model
    x: str
    y: str
    dotted: pd.DataFrame | None = None
    meaning: tuple[str, str] = ("", "")  # of solid and dotted lines
    note: str = ""
    percent: bool = True
    logarithmic: bool = False


Content = Points | Bars | Reliabilities | Lines


@final
@dataclass(frozen=True, eq=False)
class Panel:
    """One picture: the name of its file, a title, and what it shows."""

    name: str
    title: str
    content: Content
