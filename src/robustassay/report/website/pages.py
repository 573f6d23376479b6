"""Renders the site: one function a kind of page, each a template filled with what was gathered."""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from typing import Any, Final, final

from jinja2 import Environment, PackageLoader, StrictUndefined

import robustassay as ra
from robustassay.report import formatting
from robustassay.report.command import repeat
from robustassay.report.ranking import Contest, Outcome, Standing
from robustassay.report.website.content import Content
from robustassay.report.website.graphs import CurveSheet, curve_sheets, trade_offs
from robustassay.report.website.summary import costs, summary, title

ASSETS: Final = (
    "style.css",
    "site.js",
    "charts.js",
    "curves.js",
    "echarts.min.js",
    "echarts-LICENSE.txt",
    "echarts-NOTICE.txt",
)
LONGEST_LIST: Final = 12
"""Findings of a check, and models of a headline, that the first page shows; the rest is one click away."""

File = tuple[str, str | bytes]


@final
@dataclass(frozen=True, eq=False)
class _Site:
    """What the pages share."""

    content: Content
    sheets: tuple[CurveSheet, ...]

    @cached_property
    def environment(self) -> Environment:
        """Templates that escape everything which comes from a run."""
        made = Environment(
            loader=PackageLoader("robustassay.report"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        writers = (
            formatting.percent,
            formatting.bare_percent,
            formatting.span,
            formatting.points,
            formatting.fixed,
            formatting.distance,
            formatting.signed,
            formatting.count,
            formatting.short,
            formatting.brief,
        )
        made.filters |= {writer.__name__: writer for writer in writers}
        made.globals |= {"content": self.content, "version": ra.__version__, "title": title(self.content)}
        made.globals["nav"] = self.nav
        made.globals["longest_list"] = LONGEST_LIST
        return made

    @cached_property
    def nav(self) -> list[tuple[str, str]]:
        """The pages that this site has."""
        content = self.content
        found = [("index.html", "Overview")]
        if content.contests:
            found += [("leaderboard.html", "Leaderboard")]
        found += [("curves.html", "Curves")] if self.sheets else []
        found += [("tradeoff.html", "Trade-off")] if next(trade_offs(content), None) else []
        found += [("transfer.html", "Transfer")] if content.heat_maps else []
        found += [("runs.html", "Runs")] if content.outcomes else []
        return [*found, *([("studies.html", "Studies")] if content.studies else [])]

    def page(self, name: str, template: str, **told: Any) -> File:
        """Fill a template; links in it start from where the page lies."""
        root = "../" * name.count("/")
        text = self.environment.get_template(f"{template}.html.jinja").render(root=root, here=name, **told)
        return name, text


def pages(content: Content) -> Iterator[File]:
    """Render every file of the site."""
    site = _Site(content, tuple(curve_sheets(content)))
    for name in ASSETS:
        yield f"assets/{name}", (resources.files("robustassay.report") / "assets" / name).read_bytes()
    yield _overview(site)
    if content.contests:
        yield site.page("leaderboard.html", "leaderboard", boards=[_board(contest) for contest in content.contests])
    yield from _curves(site)
    yield from _comparisons(site)
    yield from _models(site)
    yield from _runs(site)
    yield from _studies(site)


def _overview(site: _Site) -> File:
    content = site.content
    pages = {outcome.key: outcome.run.page for outcome in content.outcomes}
    return site.page("index.html", "overview", summary=summary(content), costs=costs(content.outcomes), pages=pages)


def _board(contest: Contest) -> dict[str, Any]:
    """Lay out one table of the leaderboard: a column an attack, in the order of how much they break."""
    broke: dict[str, int] = defaultdict(int)
    for standing in contest.standings:
        for outcome in standing.outcomes:
            broke[outcome.label] += outcome.broke
    return {
        "contest": contest,
        "letters": contest.letters(),
        "places": {place.name: (place.best, place.worst) for place in (contest.ranks.places if contest.ranks else ())},
        "attacks": sorted(broke, key=lambda label: -broke[label]),
        "by_attack": {one.model_id: {found.label: found for found in one.outcomes} for one in contest.standings},
    }


def _curves(site: _Site) -> Iterator[File]:
    if not site.sheets:
        return
    for sheet in site.sheets:
        yield sheet.file, f"assay.receive({_script(sheet.name)}, {_script(sheet.curves)});\n"
    models = [{"name": one.label, "page": one.page} for one in site.content.models.values()]
    yield site.page(
        "curves.html", "curves", index={"kind": "curves", "sheets": [s.entry for s in site.sheets], "models": models}
    )


def _comparisons(site: _Site) -> Iterator[File]:
    content = site.content
    if found := list(trade_offs(content)):
        yield site.page("tradeoff.html", "tradeoff", found=found)
    if content.heat_maps:
        families = {one.label: one.family for one in content.models.values()}
        yield site.page("transfer.html", "transfer", maps=[one.to_json(families) for one in content.heat_maps])


def _models(site: _Site) -> Iterator[File]:
    content = site.content
    own: dict[str, list[Standing]] = defaultdict(list)
    for standing in content.standings:
        own[standing.model_id].append(standing)
    for identity, model in content.models.items():
        yield site.page(
            model.page,
            "model",
            model=model,
            spec=json.loads(identity),
            standings=own[identity],
            walls=content.walls.get(identity, ()),
            reliability=content.reliabilities.get(model.name),
        )


def _runs(site: _Site) -> Iterator[File]:
    content = site.content
    if not content.outcomes:
        return
    yield site.page("runs.html", "runs")
    standing_of = {one.key: standing for standing in content.standings for one in standing.outcomes}
    for outcome in content.outcomes:
        yield _run(site, outcome, standing_of.get(outcome.key))


def _run(site: _Site, outcome: Outcome, standing: Standing | None) -> File:
    model = site.content.models[outcome.run.model_id]
    recipe = repeat(outcome.run, outcome.summary.samples, embedded=model.card is not None)
    counted = standing is not None and outcome in standing.counted
    return site.page(outcome.run.page, "run", one=outcome, run=outcome.run, model=model, recipe=recipe, counted=counted)


def _studies(site: _Site) -> Iterator[File]:
    studies = site.content.studies
    if studies:
        yield site.page("studies.html", "studies")
    for study in studies:
        yield site.page(study.page, "study", study=study, html=study.html())
        for file in study.files():
            yield f"studies/{study.name}/{file.as_posix()}", (study.folder / file).read_bytes()


def _script(value: object) -> str:
    """Write a value as JavaScript that no browser can take for markup."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
