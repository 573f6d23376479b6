"""Heat maps of transfer: success rates of examples crafted on one model and shown to another."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from robustassay.registry import spell_setting
from robustassay.report.site.models import ReportedModel
from robustassay.results.models import AttackSummary

TRANSFER = "transfer"


@final
@dataclass(frozen=True)
class TransferRate:
    """The success rate from one source to one target, its interval where known, and the page of its run."""

    source: str
    target: str
    value: float
    low: float | None = None
    high: float | None = None
    page: str | None = None


@final
@dataclass(frozen=True)
class HeatMap:
    """Success rates by source and target model."""

    title: str
    cells: tuple[TransferRate, ...]

    def to_json(self, families: Mapping[str, str]) -> dict[str, Any]:
        """Return the map as plain data; `families` are those of the models, by which it can be sorted."""
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


def heat_maps(attacks: Sequence[AttackSummary], models: Mapping[str, ReportedModel]) -> list[HeatMap]:
    """Make one map per threat and crafting attack from the transfer runs."""
    found: dict[tuple[str, str], list[TransferRate]] = defaultdict(list)
    titles = {}
    for one in attacks:
        spec = one.run.spec["attack"]
        if one.run.attack != TRANSFER or not one.numbers.success.total:
            continue
        way = one.run.comparison_key, spell_setting(spec.get("attack"))
        titles[way] = f"{way[1]}, {one.run.threat} on {one.run.data}: attack success rate"
        low, high = one.numbers.success.interval()
        value = one.numbers.success.value
        target = models[one.run.model_id].label
        found[way].append(
            TransferRate(str(spec.get("source")), target, value, round(low, 4), round(high, 4), one.run.page)
        )
    return [HeatMap(titles[way], tuple(sorted(cells, key=_ends))) for way, cells in found.items()]


def _ends(cell: TransferRate) -> tuple[str, str]:
    return cell.source, cell.target
