"""Crafting of adversarial examples for transfer: all steps of an attack on one model or an ensemble.

`evaluate` stops at a sample's first success and keeps no image of a failure. Transfer needs more: success on the
source is no reason to stop, and what fails there may still transfer. Here an attack runs all its steps, the last image
of every sample is kept, and its effect on the source is verified and recorded. The folder is a run's, so finished
samples are never crafted again.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, final, get_args

import pyarrow as pa
import torch
from torch import Tensor

from robustassay.analysis.rates import Rate
from robustassay.attacks.attack import Attack
from robustassay.attacks.gradient.liu import Liu
from robustassay.data import Dataset
from robustassay.data.frame import Frame
from robustassay.errors import BadRequest, Interrupted
from robustassay.evaluation.manifest import write_manifest
from robustassay.evaluation.model_ref import ModelRef
from robustassay.evaluation.progress import Progress, ProgressMeter
from robustassay.evaluation.spec import RunSpec
from robustassay.evaluation.verify import ClaimedImages, verify
from robustassay.interrupt import graceful_interrupt
from robustassay.records import SCHEMA
from robustassay.registry import describe, name_of
from robustassay.rng import Streams
from robustassay.store import Store
from robustassay.studies.measures.transfer_matrix import Examples
from robustassay.studies.photographs import frame_once
from robustassay.target import EnsembleModel, GradientAccess, Join, Ledger, LocalModel, TargetModel
from robustassay.target.batching import LARGE_IMAGE
from robustassay.threat import Ball, Goal, Targeted, ThreatModel, labels_of

Updates = Literal["updates", "updates on the loss of the mean"]
UPDATES: Final = get_args(Updates)
"""How the attack of Liu et al. joins models: by the sum of their Adam updates."""

WAVE: Final = {"cpu": 32, "cuda": 1024}
"""Samples per wave: an attack on several models is slow, and an interrupt loses the wave in progress."""

PHOTOGRAPHS: Final = 16
"""The same on a CPU for large images, and, with one thread, images per call. The moments of Adam on three models then
fit into blocks of memory that are kept, not returned to the system at every step: an ensemble takes 0.6 of the time."""


PHOTOGRAPHS_ON_GPU: Final = 64
"""Large images per wave on a GPU: two full lanes, and an interrupt loses less than a thousand images."""


@final
@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model that examples are crafted or tested on."""

    name: str
    target: TargetModel = field(repr=False)
    identity: dict[str, Any]

    @classmethod
    def of(cls, model: str, name: str, classes: int, device: torch.device, frame: Frame | None = None) -> "LoadedModel":
        """Load a model; with a frame, it takes photographs that have this frame and does not cut them again."""
        model_ref = ModelRef.of(model, name)
        if frame is None:
            return cls(name, LocalModel(model_ref.module, classes, device), dict(model_ref.identity))
        identity = {**model_ref.identity, "framed once": str(frame)}
        per_call = PHOTOGRAPHS if device.type == "cpu" and torch.get_num_threads() == 1 else None
        return cls(name, LocalModel(frame_once(model_ref.module, frame), classes, device, per_call), identity)


@final
@dataclass(frozen=True, eq=False)
class Crafting:
    """One attack on one source, for some samples.

    A source of several models is an ensemble, and `join` says how: by the mean of probabilities, logits or losses; or,
    for the attack of Liu et al. only, by the sum of each model's Adam updates, on its own loss ("updates") or on its
    part of the loss of the mean.
    """

    source: str
    models: tuple[LoadedModel, ...]
    attack: Attack[Any]
    threat: ThreatModel
    dataset: Dataset = field(repr=False)
    seed: int = 0
    join: Join | Updates = "probabilities"

    def __post_init__(self) -> None:
        if self.join in UPDATES and not isinstance(self.attack, Liu):
            raise BadRequest("Only the attack liu sums the updates of several models: join probabilities instead.")

    @property
    def spec(self) -> RunSpec:
        """Return what the examples depend on."""
        rule, several = self.threat.target, len(self.models) > 1
        return RunSpec(
            model={
                "name": self.source,
                "members": [{"name": model.name, **model.identity} for model in self.models],
                "join": self.join if several else None,
            },
            data={"name": self.dataset.name, "sha256": self.dataset.sha256},
            threat={
                "norm": self.threat.norm.name,
                "eps": self.threat.norm.eps,
                "target": rule.identity if rule else None,
                "query_budget": None,
            },
            attack={**describe("attack", self.attack), "all_steps": True},
            seed=self.seed,
        )

    @property
    def title(self) -> str:
        """Title of the run."""
        goal = "targeted " if self.threat.target else ""
        return f"{goal}{name_of('attack', type(self.attack))} examples on {self.source}"

    def missing(self, folder: Path) -> list[int]:
        """Return the rows of the dataset that have no example in this folder yet."""
        store = Store(folder)
        done = store.done(with_images=True) if store.exists() else frozenset()
        return [row for row, sample in enumerate(self.dataset.ids) if sample not in done]

    def examples(self, folder: Path, progress: Progress) -> Examples:
        """Craft what is missing, and return all examples."""
        device = self.models[0].target.device
        about = write_manifest(self.spec, self.title, device) | {"flags": {}, "stages": [], "probe": []}
        store = Store.open(folder, about)
        missing = self.missing(folder)
        progress.start(self.title, len(self.dataset), len(self.dataset) - len(missing))
        meter = ProgressMeter(progress, len(self.dataset), missing)
        size = self._wave_size(device)
        try:
            with graceful_interrupt() as stop:
                for start in range(0, len(missing), size):
                    rows = missing[start : start + size]
                    records, x_adv = self._wave(rows, meter.on_step(self.attack, len(rows)))
                    store.append(records, x_adv)
                    meter.wave_done(Rate(records["success"].to_pylist().count(False), len(rows)))
                    if stop.asked:
                        raise Interrupted("Stopped between two waves: run the same command again to resume.")
        finally:
            progress.finish()
        store.note_redone(self.dataset.ids)
        return self._read(store)

    def _wave_size(self, device: torch.device) -> int:
        size = WAVE.get(device.type, 32)
        large = self.dataset.images(slice(0, 1)).numel() > LARGE_IMAGE
        return min(size, PHOTOGRAPHS_ON_GPU if device.type == "cuda" else PHOTOGRAPHS) if large else size

    def _read(self, store: Store) -> Examples:
        images = store.images()
        records = {row["sample_id"]: row for row in store.records().to_pylist()}
        rows = [records[sample] for sample in self.dataset.ids]
        return Examples(
            x=self.dataset.images(slice(None)),
            x_adv=torch.stack([images[sample] for sample in self.dataset.ids]),
            labels=self.dataset.labels,
            targets=torch.tensor([row["target"] for row in rows]) if self.threat.target else None,
            clean_ok=torch.tensor([row["clean_ok"] for row in rows]),
        )

    def _wave(self, rows: list[int], on_step: Callable[[Ledger], None]) -> tuple[pa.Table, Tensor]:
        started, targets = time.perf_counter(), [model.target for model in self.models]
        source = targets[0] if len(targets) == 1 else _ensemble(targets, self.join)
        device, ids = source.device, [self.dataset.ids[row] for row in rows]
        x0, labels = self.dataset.images(rows).to(device), self.dataset.labels[rows].to(device)
        clean = source.mean_logits(x0)
        goal = self.threat.goal(ids, labels, clean, self.seed)
        ball = Ball(self.threat.norm, x0, torch.full((len(rows),), self.threat.norm.eps, device=device))

        def access(target: TargetModel, on_step: Callable[[Ledger], None]) -> GradientAccess:
            rng, every_row = Streams.of(self.seed, ids, device), torch.arange(len(rows), device=device)
            return GradientAccess(target, Ledger.never_done(ball, goal), rng, every_row, on_step)

        if self.join in UPDATES and isinstance(self.attack, Liu):
            first, *others = targets
            accesses = [access(first, on_step), *(access(other, lambda _: None) for other in others)]
            x_adv = self.attack.ascend(accesses, x0, "own" if self.join == "updates" else "of the mean")
        else:
            x_adv = self.attack(access(source, on_step), x0)
        seconds = time.perf_counter() - started
        return self._verified(source, ids, goal, labels, clean, ball, x_adv, seconds), x_adv.cpu()

    def _verified(
        self,
        source: TargetModel,
        ids: list[str],
        goal: Goal,
        labels: Tensor,
        clean: Tensor,
        ball: Ball,
        x_adv: Tensor,
        seconds: float,
    ) -> pa.Table:
        """Verify the examples on their source and make their records; failures are kept, as failures."""
        norm, targeted = self.threat.norm, isinstance(goal, Targeted)
        claims = ClaimedImages(ball.centre, x_adv, goal.labels, targeted, norm.name, norm.eps, any_distance=False)
        verdict = verify(source.module, source.device, claims)
        if any(why not in (None, "goal not reached") for why in verdict.problem):
            raise BadRequest(f"{self.title}: an image leaves the pixel box or the ball; fix the attack.")
        n = len(ids)
        columns: dict[str, Any] = {
            "sample_id": ids,
            "label": labels.tolist(),
            "target": goal.labels.tolist() if targeted else [None] * n,
            "clean_label": labels_of(clean).tolist(),
            "clean_confidence": clean.double().softmax(1).amax(1).tolist(),
            "clean_ok": (labels_of(clean) == labels).tolist(),
            "claimed": verdict.valid,
            "valid": [True if valid else None for valid in verdict.valid],
            "success": verdict.valid,
            "distance": verdict.distance,
            "adv_label": verdict.label,
            "adv_confidence": verdict.confidence,
            "margin": verdict.margin,
            "clean_margin": goal.margin(clean).double().tolist(),
            "uint8_ok": [bool(ok) if won else None for ok, won in zip(verdict.uint8_ok, verdict.valid, strict=True)],
            "improvements": [[] for _ in ids],
            "seconds": [seconds / n] * n,
        }
        empty = [None] * n
        return pa.table({name: columns.get(name, empty) for name in SCHEMA.names}, schema=SCHEMA)


def _ensemble(targets: list[TargetModel], join: Join | Updates) -> TargetModel:
    return EnsembleModel(targets, join if join in get_args(Join) else "probabilities")  # type: ignore[arg-type]
