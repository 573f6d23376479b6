"""The self-test of an attack: it must find adversarial examples that were planted in the model under evaluation.

The same attack runs, with its settings, seed, norm, radius, query budget, surrogate and EOT, on the model with another
head. Records and keys of the run do not change: the result is stored beside them.
"""

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd
import torch

from robustassay.analysis import rates
from robustassay.attacks.attack import Attack
from robustassay.data import Dataset
from robustassay.errors import AssayError, Interrupted
from robustassay.evaluation.planting import Planted, plant
from robustassay.evaluation.prepare import PreparedEvaluation
from robustassay.evaluation.wave import Wave, run_wave
from robustassay.interrupt import StopRequest
from robustassay.results.self_test import SelfTest
from robustassay.rng import seeded
from robustassay.target import GradientAccess, Ledger, ScoreAccess, StartImages, TargetModel
from robustassay.threat import RandomTarget
from robustassay.threat.goals import labels_of

START_IMAGES: Final = 32
"""Images of the data that a decision attack may start from, labelled by the planted model."""


def choose_samples(records: pd.DataFrame, count: int) -> list[str]:
    """Choose samples for the self-test, spread over the data: unbroken ones first, as the attack failed on them."""
    unbroken = rates.unbroken(records)
    groups = (list(records["sample_id"][chosen]) for chosen in (unbroken, ~unbroken))
    return [sample for ids in groups for sample in spread(ids, count)][:count]


def spread(ids: Sequence[str], count: int) -> Sequence[str]:
    """Take at most this many, spread over all."""
    return ids[:: max(1, len(ids) // max(1, count))][:count]


def run_self_test(
    prepared: PreparedEvaluation, attack: Attack[Any], samples: Collection[str], stop: StopRequest
) -> SelfTest:
    """Plant an adversarial example for each of these samples and attack them; say why where that is impossible."""
    if prepared.target.is_remote:
        return SelfTest(asked=tuple(samples), not_examined="a service has no head that could be replaced")
    if not samples:
        return SelfTest(not_examined="no sample was left to examine")
    started = time.perf_counter()
    try:
        made = _plant_and_attack(prepared, attack, samples, stop)
    except Interrupted:
        raise
    except AssayError as error:
        made = SelfTest(not_examined=f"the model failed behind another head: {str(error).rstrip('.')}")
    return replace(made, asked=tuple(samples), seconds=time.perf_counter() - started)


def _plant_and_attack(
    prepared: PreparedEvaluation, attack: Attack[Any], samples: Collection[str], stop: StopRequest
) -> SelfTest:
    by_gradient = issubclass(attack.access, GradientAccess)
    planted = _plant_once(prepared, prepared.on_samples(samples).dataset, by_gradient)
    if planted.ids:
        found, forwards, backwards = _attack(prepared, attack, planted, stop)
        costs = planted.forwards + forwards, planted.backwards + backwards
        return SelfTest(found, (), "", *costs)
    why = "random changes of the images did not move the outputs enough to plant any example"
    return SelfTest(not_examined=why, forwards=planted.forwards, backwards=planted.backwards)


def _plant_once(prepared: PreparedEvaluation, chosen: Dataset, by_gradient: bool) -> Planted:
    """Plant examples, or return those of an earlier attack of this evaluation, which then cost nothing more."""
    target, norm = prepared.target, prepared.threat.norm
    key = ("planted", chosen.sha256, chosen.ids, norm, prepared.seed, by_gradient)
    known: Planted | None = prepared.model_ref.inspections.get(key)
    if known is not None and known.base is target:
        return replace(known, forwards=0, backwards=0)
    x0 = chosen.images(slice(None)).to(target.device)
    with seeded("self-test", target.device):
        planted = plant(target, norm, chosen.ids, x0, prepared.seed, by_gradient)
    prepared.model_ref.inspections[key] = planted
    return planted


def _attack(
    prepared: PreparedEvaluation, attack: Attack[Any], planted: Planted, stop: StopRequest
) -> tuple[dict[str, bool], int, int]:
    """Attack the planted model; return which samples fell, and the forward and backward passes."""
    threat = replace(prepared.threat, target=None if prepared.threat.target is None else RandomTarget())
    found: dict[str, bool] = {}
    forwards = backwards = 0

    def on_step(ledger: Ledger) -> None:
        if stop.asked:
            raise Interrupted("Stopped during the self-test: run the same command again to resume.")

    for rows in _waves(attack, planted):
        target = planted.target(rows)
        wave, asked = _wave(prepared, attack, planted, target, rows)
        with seeded(f"{prepared.seed}/{wave.ids[0]}", target.device):
            table, _ = run_wave(target, attack, threat, wave, prepared.seed, prepared.search.query_budget, on_step)
        records = table.to_pandas()
        found |= dict(zip(records["sample_id"], map(bool, records["success"]), strict=True))
        forwards += int(records["forwards"].sum()) + asked
        backwards += int(records["backwards"].sum())
    return found, forwards, backwards


def _waves(attack: Attack[Any], planted: Planted) -> list[list[int]]:
    """Attack all samples together, except by decision attacks, which start far away, and where balls overlap."""
    rows = list(range(len(planted.ids)))
    together = issubclass(attack.access, ScoreAccess) and planted.apart
    return [rows] if together else [[row] for row in rows]


def _wave(
    prepared: PreparedEvaluation, attack: Attack[Any], planted: Planted, target: TargetModel, rows: list[int]
) -> tuple[Wave, int]:
    """Return a wave of planted samples, and how many images were labelled for decision attacks to start from."""
    ids, x0 = [planted.ids[row] for row in rows], planted.x0[rows]
    start_images = None
    if not issubclass(attack.access, ScoreAccess):
        images = prepared.dataset.whole.images(slice(0, START_IMAGES)).to(target.device)
        start_images = StartImages.of(images, labels_of(target.exact.mean_logits(images)))
    labels = torch.zeros(len(rows), dtype=torch.int64, device=target.device)
    return Wave(ids, x0, labels, start_images), 0 if start_images is None else START_IMAGES * target.draws
