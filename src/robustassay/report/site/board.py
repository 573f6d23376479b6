"""The table of the first page: one row per model, one column per threat."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

from robustassay.analysis.rates import Rate
from robustassay.report.site.content import Content
from robustassay.report.site.gallery import GalleryItem
from robustassay.results.models import ModelResult, ThreatRanking

COLUMNS: Final = 4
"""Threats side by side; more of them make another table, since columns must not leave the screen."""


@final
@dataclass(frozen=True, eq=False)
class BoardCell:
    """One model under one threat."""

    result: ModelResult
    rank: str  # a range where the samples do not decide; empty where the model was not compared
    group: str  # models that share a letter do not differ significantly

    @property
    def attacks(self) -> list[tuple[str, str, float]]:
        """Label, page and robust accuracy of each attack, the strongest first."""
        return [(one.label, one.run.page, one.numbers.robust.value) for one in reversed(self.result.attacks)]


@final
@dataclass(frozen=True, eq=False)
class BoardRow:
    """One model under all threats of the table."""

    model_id: str
    cells: tuple[BoardCell | None, ...]

    @property
    def clean(self) -> Rate:
        """The clean accuracy on the most samples."""
        return max((cell.result.clean for cell in self.cells if cell), key=lambda rate: rate.total)

    @property
    def flagged(self) -> bool:
        """Whether a number of this row may be too high; zero cannot."""
        return any(cell.result.warnings and cell.result.robust.count for cell in self.cells if cell)


@final
@dataclass(frozen=True, eq=False)
class Board:
    """One dataset, and some of the threats on it."""

    data: str
    rankings: tuple[ThreatRanking, ...]
    rows: tuple[BoardRow, ...]

    @property
    def is_ranked(self) -> bool:
        """Whether ranks were computed for two models or more."""
        return any(ranking.ranks and len(ranking.models) > 1 for ranking in self.rankings)


def boards(content: Content) -> list[Board]:
    """Lay out one table per dataset, with the threats that most models were evaluated under first."""
    by_data: dict[str, list[ThreatRanking]] = defaultdict(list)
    for ranking in content.rankings:
        by_data[ranking.models[0].first.spec["data"]["sha256"]].append(ranking)
    groups = sorted(by_data.values(), key=lambda some: -max(len(one.models) for one in some))
    return [
        _board(tuple(ordered[start : start + COLUMNS]))
        for ordered in map(by_models, groups)
        for start in range(0, len(ordered), COLUMNS)
    ]


def by_models(rankings: Sequence[ThreatRanking]) -> list[ThreatRanking]:
    """Order threats by the number of models, then as they come."""
    return sorted(rankings, key=lambda ranking: -len(ranking.models))


def _board(rankings: tuple[ThreatRanking, ...]) -> Board:
    cells = [{result.model_id: _cell(ranking, result) for result in ranking.models} for ranking in rankings]
    order = dict.fromkeys(model_id for column in cells for model_id in column)
    rows = tuple(BoardRow(model_id, tuple(column.get(model_id) for column in cells)) for model_id in order)
    return Board(rankings[0].data, rankings, rows)


def _cell(ranking: ThreatRanking, result: ModelResult) -> BoardCell:
    alone = len(ranking.models) == 1  # nothing to be compared with
    best, worst = (0, 0) if alone else ranking.rank_ranges.get(result.model_id, (0, 0))
    rank = "" if not best else str(best) if best == worst else f"{best}–{worst}"
    return BoardCell(result, rank, ranking.letters.get(result.model_id, ""))


def examples(content: Content, most: int = 3) -> list[tuple[str, GalleryItem]]:
    """Choose adversarial examples for the first page: the most robust models first, one each, then further ones."""
    return [found for found, _ in zip(_examples(content), range(most), strict=False)]


def near_miss(content: Content) -> tuple[str, GalleryItem] | None:
    """Return a sample that nearly fell: of the most robust model that has one, and the model it is of."""
    found = (
        (model_id, item)
        for model_id in _by_rank(content)
        for gallery in content.galleries.get(model_id, ())
        for item in gallery.items
        if item.pictures.change is None
    )
    return next(found, None)


def _by_rank(content: Content) -> list[str]:
    """List the models, the most robust under the threat that most of them share first."""
    rankings = by_models(content.rankings)
    return list(dict.fromkeys(result.model_id for ranking in rankings for result in ranking.models))


def _examples(content: Content) -> Iterator[tuple[str, GalleryItem]]:
    broken = {
        model_id: [
            item for gallery in content.galleries.get(model_id, ()) for item in gallery.items if item.pictures.change
        ]
        for model_id in _by_rank(content)
    }
    for at in range(max(map(len, broken.values()), default=0)):
        yield from ((model_id, items[at]) for model_id, items in broken.items() if at < len(items))
