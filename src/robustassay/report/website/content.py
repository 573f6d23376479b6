"""Everything a site shows, gathered one model at a time so that no more than its records are in memory."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from robustassay.errors import BadRequest
from robustassay.report.checks import Check, checks
from robustassay.report.curves import Trace, trace
from robustassay.report.gallery import Curator, Selection, Wall, class_name, select
from robustassay.report.models import ReportedModel, reported_models
from robustassay.report.ranking import Contest, Outcome, Standing, assess, attack_labels, contests, read_off
from robustassay.report.runs import Run, find_runs, holds_runs
from robustassay.report.website.calibrations import Reliability, find_reliabilities
from robustassay.report.website.heat_maps import HeatMap, heat_maps
from robustassay.report.website.studies import StudyPage, find_studies

Watch = Callable[[int, int], None]
"""Is told how many of how many runs are read."""


@final
@dataclass(frozen=True, eq=False)
class Content:
    """What the pages are made of."""

    models: Mapping[str, ReportedModel]  # by `Run.model_id`
    outcomes: tuple[Outcome, ...]
    standings: tuple[Standing, ...]
    contests: tuple[Contest, ...]
    checks: tuple[Check, ...]
    traces: tuple[Trace, ...]
    walls: Mapping[str, tuple[Wall, ...]]  # by `Run.model_id`
    omissions: tuple[str, ...]  # a sentence for each picture that is missing
    classes: Mapping[str, Mapping[int, str]]  # names by the data's hash and the label
    heat_maps: tuple[HeatMap, ...]
    reliabilities: Mapping[str, Reliability]  # by the name of a model
    studies: tuple[StudyPage, ...]

    @property
    def to_look_at(self) -> int:
        """How many checks found something."""
        return sum(check.verdict == "look" for check in self.checks)


@final
@dataclass(eq=False)
class _Harvest:
    """What is kept of the runs that were read."""

    outcomes: list[Outcome]
    standings: list[Standing]
    traces: list[Trace]
    selections: list[Selection]


def gather(places: Sequence[Path], watch: Watch = lambda done, total: None) -> Content:
    """Read all runs, studies and analyses in these places or below them."""
    studies, reliabilities = find_studies(places), find_reliabilities(places)
    alone = {study.folder for study in studies}
    with_runs = [place for place in places if holds_runs(place) or not (_holds(place, alone) or reliabilities)]
    runs = find_runs(with_runs) if with_runs else ()
    if not (runs or studies):
        raise BadRequest("A report needs at least one run: give the folder named by --out of an evaluation.")
    labels, models = attack_labels(runs), reported_models(runs)
    harvest = _read(runs, labels, watch)
    curator = Curator(labels)
    walls: dict[str, list[Wall]] = defaultdict(list)
    for selection in harvest.selections:
        if (wall := curator.hang(selection)) is not None:
            walls[wall.model_id].append(wall)
    if runs and not harvest.selections:
        curator.omissions["No run kept its adversarial images: run it with --keep-images to see some here."] = None
    return Content(
        models=models,
        outcomes=tuple(harvest.outcomes),
        standings=tuple(harvest.standings),
        contests=contests(harvest.standings),
        checks=checks(harvest.outcomes, harvest.standings, models) if runs else (),
        traces=tuple(harvest.traces),
        walls={model: tuple(some) for model, some in walls.items()},
        omissions=tuple(curator.omissions),
        classes=_class_names(harvest.standings, curator),
        heat_maps=(*heat_maps(harvest.outcomes, models), *(one for study in studies for one in study.heat_maps())),
        reliabilities=reliabilities,
        studies=studies,
    )


def _holds(place: Path, studies: set[Path]) -> bool:
    return any(study == place or place in study.parents for study in studies)


def _read(runs: Sequence[Run], labels: Mapping[str, str], watch: Watch) -> _Harvest:
    harvest = _Harvest([], [], [], [])
    together: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        together[run.field, run.model_id].append(run)
    done = 0
    for some in together.values():
        frames = {}
        for run in some:
            frames[run.key] = run.read()
            done += 1
            watch(done, len(runs))
        by_arena: dict[str, list[Run]] = defaultdict(list)
        for run in some:
            by_arena[run.arena].append(run)
        for own in by_arena.values():
            outcomes = read_off(own, frames, labels)
            harvest.outcomes += outcomes
            if begun := [outcome for outcome in outcomes if outcome.summary.samples]:
                harvest.standings.append(assess(begun, {one.key: frames[one.key] for one in begun}))
            if (selection := select(own, frames)) is not None:
                harvest.selections.append(selection)
        if begun_runs := [run for run in some if len(frames[run.key])]:
            harvest.traces += trace(begun_runs, frames, labels)
    return harvest


def _class_names(standings: Sequence[Standing], curator: Curator) -> dict[str, dict[int, str]]:
    """Name the classes of each dataset that is at hand; a dataset that is not has only numbers."""
    told = dict(curator.omissions)
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for standing in standings:
        dataset = curator.dataset(standing.first)
        for label in standing.classes["label"]:
            found[standing.first.spec["data"]["sha256"]][int(label)] = class_name(dataset, int(label))
    curator.omissions.clear()
    curator.omissions.update(told)  # that a name is missing needs no sentence
    return dict(found)
