"""Writes the report: one page that needs no network, no script and no other file."""

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import final

from jinja2 import Environment, PackageLoader, StrictUndefined

import assay
from assay.errors import BadRequest, StoreFailed
from assay.report import words
from assay.report.checks import Check, checks
from assay.report.command import Recipe, repeat
from assay.report.gallery import Gallery, hang
from assay.report.runs import Run, read_runs
from assay.report.standings import Contest, contests
from assay.report.subjects import Subject, subjects


@final
@dataclass(frozen=True, eq=False)
class Page:
    """Everything the template shows."""

    title: str
    summary: str
    version: str
    models: dict[str, Subject]
    contests: tuple[Contest, ...]
    checks: tuple[Check, ...]
    runs: tuple[Run, ...]
    recipes: dict[str, Recipe]
    gallery: Gallery

    @property
    def groups(self) -> list[list[Run]]:
        """The runs of each model under each threat."""
        return [list(together) for _, together in groupby(self.runs, key=lambda run: (run.arena, run.model_id))]

    @property
    def to_look_at(self) -> int:
        """How many checks found something."""
        return sum(check.verdict == "look" for check in self.checks)


def build(runs: Sequence[Path], out: Path) -> Path:
    """Write a page about these runs, or all runs below these folders, and return its path."""
    text = render(compose(read_runs([Path(folder) for folder in runs])))
    index = Path(out) / "index.html"
    try:
        index.parent.mkdir(parents=True, exist_ok=True)
        temporary = index.with_name(f".{uuid.uuid4().hex}.tmp")
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, index)
    except (FileExistsError, NotADirectoryError) as error:
        raise BadRequest(f"{out} is a file: choose a folder for the report.") from error
    except OSError as error:
        raise StoreFailed(f"The report cannot be written to {out} ({error.strerror}): choose another.") from error
    return index


def compose(runs: tuple[Run, ...]) -> Page:
    """Work out everything the page shows."""
    models, groups = subjects(runs), contests(runs)
    standings = [standing for contest in groups for standing in contest.standings]
    names = [subject.label for subject in models.values()]
    return Page(
        title=f"Robustness of {names[0] if len(names) == 1 else words.count(len(names), 'model')}",
        summary=summary(runs),
        version=assay.__version__,
        models=models,
        contests=groups,
        checks=checks(runs, standings, models),
        runs=runs,
        recipes={run.key: repeat(run, embedded=models[run.model_id].card is not None) for run in runs},
        gallery=hang(standings, models),
    )


def render(page: Page) -> str:
    """Fill the template; everything that comes from a run is escaped."""
    environment = Environment(
        loader=PackageLoader("assay.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    writers = (words.percent, words.bare_percent, words.span, words.points, words.fixed, words.distance, words.signed)
    environment.filters |= {writer.__name__: writer for writer in writers}
    return environment.get_template("index.html.jinja").render(page=page)


def summary(runs: Sequence[Run]) -> str:
    """Say in one sentence what was measured."""
    models = len({run.model_id for run in runs})
    attacks = len({(run.attack, run.settings) for run in runs})
    threats = list(dict.fromkeys(run.threat for run in runs))
    samples: dict[str, set[str]] = {}
    for run in runs:
        samples.setdefault(run.data, set()).update(run.records["sample_id"])
    measured = words.listed([f"{words.count(len(ids), 'sample')} of {data}" for data, ids in samples.items()])
    days = sorted({run.date for run in runs})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return (
        f"{words.count(models, 'model')} met {words.count(attacks, 'attack')} under "
        f"{words.count(len(threats), 'threat')} ({words.listed(threats)}) on {measured}, measured {when}."
    )
