"""Renders the site: one function per kind of page, each fills a template."""

import json
import re
import shlex
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from typing import Any, Final, final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

import robustassay as ra
from robustassay.report import formatting
from robustassay.report.site.board import boards, examples, near_miss
from robustassay.report.site.command import RepeatCommand, is_loadable, repeat, repeat_evaluation, with_attack
from robustassay.report.site.content import Content
from robustassay.report.site.curves import PLACES
from robustassay.report.site.graphs import CurveSheet, curve_sheets, fitted_law, missing_curves, trade_offs
from robustassay.report.site.references import references
from robustassay.report.site.run_role import role
from robustassay.report.site.samples import SampleTable
from robustassay.report.site.summary import costs, summary, title
from robustassay.report.site.table_file import table_file
from robustassay.report.site.verdicts import best_verdict, model_verdict, trust_in
from robustassay.results.labels import threat_fields
from robustassay.results.models import AttackSummary, ModelResult
from robustassay.results.runs import StoredRun
from robustassay.results.self_test import SelfTest

ASSETS: Final = (
    "style.css",
    "site.js",
    "charts.js",
    "scatter.js",
    "curves.js",
    "samples.js",
    "sample.js",
    "echarts.min.js",
    "echarts-LICENSE.txt",
    "echarts-NOTICE.txt",
)
LONGEST_LIST: Final = 12
"""Findings per check that the first page shows; the rest is on other pages."""
TABLE: Final = "results.csv"
REFERENCES: Final = "references.bib"

_INDENTED: Final = re.compile(r"\n\s+")

File = tuple[str, str | bytes]


@final
@dataclass(frozen=True, eq=False)
class _Site:
    """What the pages share."""

    content: Content
    sheets: tuple[CurveSheet, ...]

    @cached_property
    def environment(self) -> Environment:
        """Templates that escape everything that comes from a run."""
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
            formatting.unit,
            formatting.is_hash,
            formatting.flag,
            formatting.few_flags,
        )
        made.filters |= {writer.__name__: writer for writer in writers}
        made.filters["code"] = _code
        made.globals |= {"content": self.content, "version": ra.__version__, "title": title(self.content)}
        made.globals["nav"] = self.nav
        made.globals["longest_list"] = LONGEST_LIST
        return made

    @cached_property
    def nav(self) -> list[tuple[str, str]]:
        """The pages that this site has."""
        content = self.content
        found = [("index.html", "Overview")]
        found += [("curves.html", "Curves")] if self.sheets or missing_curves(content) else []
        found += [("tradeoff.html", "Trade-off")] if next(trade_offs(content), None) else []
        found += [("transfer.html", "Transfer")] if content.heat_maps else []
        found += [("runs.html", "Runs")] if content.attacks else []
        return [*found, *([("studies.html", "Studies")] if content.studies else [])]

    @cached_property
    def loadable(self) -> dict[str, bool]:
        """Whether `assay eval` loads a model by its name, by `StoredRun.model_id`."""
        return {identity: is_loadable(json.loads(identity)) for identity in self.content.models}

    def command(self, run: StoredRun, attack: str) -> str:
        """Write the command that runs another attack on the model and the samples of a run."""
        return with_attack(run, self.content.samples[run.key].total, self.loadable[run.model_id], attack)

    def page(self, name: str, template: str, **values: Any) -> File:
        """Fill a template; links in it are relative to the page."""
        root = "../" * name.count("/")
        text = self.environment.get_template(f"{template}.html.jinja").render(root=root, here=name, **values)
        return name, text if template == "study" else _INDENTED.sub("\n", text)  # a study may show code


def pages(content: Content) -> Iterator[File]:
    """Render every file of the site."""
    site = _Site(content, tuple(curve_sheets(content)))
    for name in ASSETS:
        yield f"assets/{name}", (resources.files("robustassay.report") / "assets" / name).read_bytes()
    yield _overview(site)
    if content.rankings:
        names = dict.fromkeys(attack.run.attack for attack in content.attacks)
        day = max(attack.run.date for attack in content.attacks)
        yield TABLE, table_file(content)
        yield REFERENCES, references(title(content), day, ra.__version__, names)
    yield from _curves(site)
    yield from _comparisons(site)
    yield from _models(site)
    yield from _runs(site)
    yield from _studies(site)


def _overview(site: _Site) -> File:
    content = site.content
    return site.page(
        "index.html",
        "overview",
        summary=summary(content),
        verdict=best_verdict(content),
        boards=boards(content),
        examples=examples(content),
        near_miss=near_miss(content),
        costs=costs(content.attacks),
        pages={attack.key: attack.run.page for attack in content.attacks},
    )


def _curves(site: _Site) -> Iterator[File]:
    content = site.content
    missing = [
        (
            one.text,
            with_attack(one.run, content.samples[one.run.key].total, site.loadable[one.run.model_id], one.attack),
        )
        for one in missing_curves(content)
    ]
    if not (site.sheets or missing):
        return
    for sheet in site.sheets:
        yield sheet.file, f"assay.receive({_script(sheet.name)}, {_script(sheet.curves)});\n"
    models = [{"name": one.label, "page": one.page} for one in content.models.values()]
    index = {"kind": "curves", "sheets": [sheet.entry for sheet in site.sheets], "models": models}
    yield site.page("curves.html", "curves", index=index, missing=missing, places=PLACES)


def _comparisons(site: _Site) -> Iterator[File]:
    content = site.content
    if found := list(trade_offs(content)):
        yield site.page(
            "tradeoff.html", "tradeoff", found=[(ranking, data, fitted_law(one)) for ranking, data, one in found]
        )
    if content.heat_maps:
        families = {one.label: one.family for one in content.models.values()}
        yield site.page("transfer.html", "transfer", maps=[one.to_json(families) for one in content.heat_maps])


def _models(site: _Site) -> Iterator[File]:
    content = site.content
    own: dict[str, list[ModelResult]] = defaultdict(list)
    shared = {ranking.comparison_key: len(ranking.models) for ranking in content.rankings}
    for result in sorted(content.results, key=lambda one: -shared[one.first.comparison_key]):
        own[result.model_id].append(result)
    for identity, model in content.models.items():
        yield site.page(
            model.page,
            "model",
            model=model,
            spec=json.loads(identity),
            loaded_by=shlex.quote(model.name) if site.loadable[identity] else "MODEL",
            results=[
                (one, model_verdict(one), trust_in(one), content.breakdowns[one.first.key]) for one in own[identity]
            ],
            galleries=sorted(content.galleries.get(identity, ()), key=lambda one: -shared[one.comparison_key]),
            reliability=content.reliabilities.get(model.name),
        )


def _runs(site: _Site) -> Iterator[File]:
    content = site.content
    if not content.attacks:
        return
    yield site.page("runs.html", "runs")
    standing_of = {one.key: result for result in content.results for one in result.attacks}
    for attack in content.attacks:
        yield _run(site, attack, standing_of.get(attack.key))
    for table in content.samples.values():
        found = _named({**table.to_json(), **content.pictures.to_json(table)})
        yield table.file, f"assay.receive({_script(found)});\n"
        for file, details in table.detail_files():
            yield file, f"assay.receiveDetails({_script(details)});\n"
    yield from content.pictures.files.items()


def _run(site: _Site, attack: AttackSummary, result: ModelResult | None) -> File:
    run, model = attack.run, site.content.models[attack.run.model_id]
    counted = result is not None and attack in result.counted
    table, self_test = site.content.samples.get(attack.key), SelfTest.of(run.manifest)
    failed = self_test.examined and not self_test.passed
    return site.page(
        run.page,
        "run",
        one=attack,
        run=run,
        model=model,
        repeated=_repeated(site, attack, result),
        counted=counted,
        role=role(attack, result),
        parts={
            part: threat_fields(run.spec[part]) if part == "threat" else run.spec[part]
            for part in ("model", "data", "threat", "attack")
        },
        table=table,
        counts=_counts(table, failed) if table else [],
        failed=failed,
        self_test=self_test,
    )


def _named(sent: dict[str, Any]) -> dict[str, Any]:
    """Leave out the names of attacks that no sample of the list refers to."""
    used = set(sent.get("other", ()))
    return {**sent, "others": [name if at in used else "" for at, name in enumerate(sent["others"])]}


def _counts(table: SampleTable, failed: bool) -> list[tuple[str, int]]:
    """Count the samples by outcome, for the filters; after a failed self-test, none in doubt does not mean no doubt."""
    return [(letter, many) for letter, many in table.counts.items() if letter != "d" or many or not failed]


def _repeated(site: _Site, attack: AttackSummary, result: ModelResult | None) -> RepeatCommand:
    """Write the command that repeats a run, or the evaluation that a run on part of the samples belongs to."""
    loadable, others = site.loadable[attack.run.model_id], result.attacks if result is not None else ()
    before = [one for one in others if one.key in attack.run.confirms]
    if before:
        return repeat_evaluation(attack.run, [one.run for one in before], before[0].numbers.samples, loadable)
    return repeat(attack.run, attack.numbers.samples, loadable)


def _studies(site: _Site) -> Iterator[File]:
    studies = site.content.studies
    if studies:
        yield site.page("studies.html", "studies")
    for study in studies:
        yield site.page(study.page, "study", study=study, html=study.html())
        for file in study.files():
            yield f"studies/{study.name}/{file.as_posix()}", (study.folder / file).read_bytes()


def _code(text: str) -> Markup:
    """Mark what stands between backticks in a sentence as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _script(value: object) -> str:
    """Write a value as JavaScript that contains no HTML."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
