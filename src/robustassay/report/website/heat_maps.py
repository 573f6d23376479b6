"""Transfer as heat maps: what examples made on one model do to others, from runs and from studies."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from robustassay.report.models import ReportedModel
from robustassay.report.ranking import Outcome

TRANSFER = "transfer"


@final
@dataclass(frozen=True)
class Cell:
    """One source and target: the rate, its interval where it is known, and the page of its run."""

    source: str
    target: str
    value: float
    low: float | None = None
    high: float | None = None
    page: str | None = None


@final
@dataclass(frozen=True)
class HeatMap:
    """Rates of examples made on one model and shown to another."""

    title: str
    cells: tuple[Cell, ...]

    def to_json(self, families: Mapping[str, str]) -> dict[str, Any]:
        """Write the map for the page; `families` lets it be sorted by them."""
        sources, targets = ([*dict.fromkeys(getattr(one, end) for one in self.cells)] for end in ("source", "target"))
        return {
            "kind": "heat",
            "title": self.title,
            "sources": [{"name": name, "family": families.get(name, "other")} for name in sources],
            "targets": [{"name": name, "family": families.get(name, "other")} for name in targets],
            "cells": [
                [targets.index(c.target), sources.index(c.source), round(c.value, 4), c.low, c.high, c.page]
                for c in self.cells
            ],
        }


def heat_maps(outcomes: Sequence[Outcome], models: Mapping[str, ReportedModel]) -> list[HeatMap]:
    """Make a map of the transfer attacks under each threat: one a way of making the examples."""
    found: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    titles = {}
    for one in outcomes:
        spec = one.run.spec["attack"]
        if one.run.attack != TRANSFER or not one.summary.success.total:
            continue
        way = one.run.arena, str(spec.get("attack"))
        titles[way] = f"{spec.get('attack')}, {one.run.threat} on {one.run.data}: attack success rate"
        low, high = one.summary.success.interval()
        value = one.summary.success.value
        target = models[one.run.model_id].label
        found[way].append(Cell(str(spec.get("source")), target, value, round(low, 4), round(high, 4), one.run.page))
    return [HeatMap(titles[way], tuple(sorted(cells, key=_ends))) for way, cells in found.items()]


def _ends(cell: Cell) -> tuple[str, str]:
    return cell.source, cell.target
