"""Collects everything a site shows, one model at a time, so that only one model's records are in memory."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from robustassay.errors import BadRequest
from robustassay.report.site.breakdown import Breakdown, break_down
from robustassay.report.site.calibrations import Reliability, find_reliabilities
from robustassay.report.site.checks import check_all
from robustassay.report.site.curves import SiteCurve, site_curves
from robustassay.report.site.gallery import Gallery, GalleryBuilder, GallerySelection, class_name, select
from robustassay.report.site.heat_maps import HeatMap, heat_maps
from robustassay.report.site.models import ReportedModel, reported_models
from robustassay.report.site.sample_pictures import SamplePictures
from robustassay.report.site.samples import SampleTable, rows_each, sample_table
from robustassay.report.site.showcase import ShownCase, chosen_labels, find_showcase, link_runs
from robustassay.report.site.studies import StudyPage, find_studies
from robustassay.report.site.trust_check import TrustCheck
from robustassay.results.discovery import holds_runs
from robustassay.results.labels import attack_labels
from robustassay.results.models import (
    AttackSummary,
    ModelResult,
    ThreatRanking,
    combine_attacks,
    rank_models,
    summarise_attacks,
)
from robustassay.results.runs import StoredRun, find_runs

Watch = Callable[[int, int], None]
"""Is called with the number of runs read so far, and of all runs."""


@final
@dataclass(frozen=True, eq=False)
class Content:
    """What the pages are made of."""

    models: Mapping[str, ReportedModel]  # by `StoredRun.model_id`
    attacks: tuple[AttackSummary, ...]
    results: tuple[ModelResult, ...]
    rankings: tuple[ThreatRanking, ...]
    checks: tuple[TrustCheck, ...]
    curves: tuple[SiteCurve, ...]
    galleries: Mapping[str, tuple[Gallery, ...]]  # by `StoredRun.model_id`
    omissions: tuple[str, ...]  # a sentence for each picture that is missing
    classes: Mapping[str, Mapping[int, str]]  # names by the data's hash and the label
    heat_maps: tuple[HeatMap, ...]
    reliabilities: Mapping[str, Reliability]  # by the name of a model
    studies: tuple[StudyPage, ...]
    breakdowns: Mapping[str, Breakdown]  # by the key of the first run of a result
    samples: Mapping[str, SampleTable]  # by the key of a run
    pictures: SamplePictures
    showcase: ShownCase | None  # of `assay run`

    @property
    def failed_checks(self) -> int:
        """How many checks found a warning."""
        return sum(check.status == "warning" for check in self.checks)


@final
@dataclass(eq=False)
class _Collected:
    """What is kept of the runs that were read."""

    attacks: list[AttackSummary]
    results: list[ModelResult]
    curves: list[SiteCurve]
    selections: list[GallerySelection]
    breakdowns: dict[str, Breakdown]
    samples: dict[str, SampleTable]


def collect(places: Sequence[Path], watch: Watch = lambda done, total: None) -> Content:
    """Read all runs, studies and analyses in these places or below them."""
    studies, reliabilities = find_studies(places), find_reliabilities(places)
    folders = {study.folder for study in studies}
    with_runs = [place for place in places if holds_runs(place) or not (_holds(place, folders) or reliabilities)]
    runs = find_runs(with_runs) if with_runs else ()
    if not (runs or studies):
        raise BadRequest("A report needs at least one run: give the folder named by --out of an evaluation.")
    showcase = find_showcase(places)
    labels, models = attack_labels(runs), reported_models(runs, chosen_labels(showcase[1]) if showcase else {})
    collected = _read(runs, labels, watch)
    builder = GalleryBuilder(labels)
    galleries: dict[str, list[Gallery]] = defaultdict(list)
    for selection in collected.selections:
        if (gallery := builder.build(selection)) is not None:
            galleries[gallery.model_id].append(gallery)
    pictures = SamplePictures(builder)
    pictures.draw(list(collected.samples.values()))
    if runs and not collected.selections:
        builder.omissions["No run kept its adversarial images: run it with --keep-images to see some here."] = None
    return Content(
        models=models,
        attacks=tuple(collected.attacks),
        results=tuple(collected.results),
        rankings=rank_models(collected.results),
        checks=check_all(collected.attacks, collected.results, models) if runs else (),
        curves=tuple(collected.curves),
        galleries={model: tuple(some) for model, some in galleries.items()},
        omissions=tuple(builder.omissions),
        classes=_class_names(collected, builder),
        heat_maps=(*heat_maps(collected.attacks, models), *(one for study in studies for one in study.heat_maps())),
        reliabilities=reliabilities,
        studies=studies,
        breakdowns=collected.breakdowns,
        samples=collected.samples,
        pictures=pictures,
        showcase=link_runs(*showcase, collected.attacks) if showcase else None,
    )


def _holds(place: Path, studies: set[Path]) -> bool:
    return any(study == place or place in study.parents for study in studies)


def _read(runs: Sequence[StoredRun], labels: Mapping[str, str], watch: Watch) -> _Collected:
    collected = _Collected([], [], [], [], {}, {})
    most = rows_each(len(runs))
    groups: dict[tuple[str, str], list[StoredRun]] = defaultdict(list)
    for run in runs:
        groups[run.eps_axis_key, run.model_id].append(run)
    done = 0
    for group in groups.values():
        frames = {}
        for run in group:
            frames[run.key] = run.read()
            done += 1
            watch(done, len(runs))
        by_threat: dict[str, list[StoredRun]] = defaultdict(list)
        for run in group:
            by_threat[run.comparison_key].append(run)
        for own in by_threat.values():
            attacks = summarise_attacks(own, frames, labels)
            collected.attacks += attacks
            if begun := [attack for attack in attacks if attack.numbers.samples]:
                result = combine_attacks(begun, {one.key: frames[one.key] for one in begun})
                collected.results.append(result)
                collected.breakdowns[result.first.key] = break_down(result, frames)
                collected.samples |= {one.key: sample_table(one, result, frames, most) for one in begun}
            if (selection := select(own, frames)) is not None:
                collected.selections.append(selection)
        if begun_runs := [run for run in group if len(frames[run.key])]:
            collected.curves += site_curves(begun_runs, frames, labels)
    return collected


def _class_names(collected: _Collected, builder: GalleryBuilder) -> dict[str, dict[int, str]]:
    """Name the classes of each dataset that can be loaded; those of other datasets are numbers."""
    omissions = dict(builder.omissions)
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for result in collected.results:
        dataset = builder.dataset(result.first)
        labels = {int(label) for label in result.classes["label"]}
        labels |= {one.predicted for one in collected.breakdowns[result.first.key].confusions}
        found[result.first.spec["data"]["sha256"]] |= {label: class_name(dataset, label) for label in sorted(labels)}
    builder.omissions.clear()
    builder.omissions.update(omissions)  # a missing class name needs no sentence
    return dict(found)
