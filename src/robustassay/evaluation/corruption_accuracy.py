"""Accuracy on corrupted images: one row per sample and corruption, saved after every corruption.

FOLDER/MODEL/CORRUPTION-KEY.parquet holds the predictions of a model under one corruption. The key covers weights and
images, so that another model of the same name, or other data, gets its own files.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import pandas as pd
import torch

from robustassay.analysis.corruptions import CLEAN
from robustassay.analysis.rates import Rate
from robustassay.data import Dataset
from robustassay.data.corruptions import CorruptionSpec
from robustassay.errors import BadRequest, StoreFailed
from robustassay.evaluation.checks import check_model
from robustassay.evaluation.corruption_records import FILE, CorruptionRecords
from robustassay.evaluation.model_ref import ModelRef
from robustassay.evaluation.progress import NoProgress, Progress
from robustassay.files import write_atomically
from robustassay.names import slug
from robustassay.rng import seeded
from robustassay.target import LocalModel

BATCH: Final = 256
"""Images that are corrupted together; changes speed and memory, never results."""

ReadCorrupted = Callable[[CorruptionSpec], Dataset]
"""From a corruption (severity 0: clean) to its images."""


@final
@dataclass(frozen=True)
class CorruptionEvaluation:
    """Models, corruptions, and the folder of the predictions."""

    model_refs: Sequence[ModelRef]
    corruptions: Sequence[CorruptionSpec]
    read: ReadCorrupted
    folder: Path
    device: torch.device
    batch_size: int = 128

    def run(self, progress: Progress | None = None) -> pd.DataFrame:
        """Make the predictions that are missing; return all, as model, kind, severity, sample_id, correct."""
        watcher = progress or NoProgress()
        frames = []
        for model_ref in self.model_refs:
            if model_ref.is_remote:
                raise BadRequest(f"{model_ref.name} is a service, and every query may cost money: name a local model.")
            images = len(self.read(self.corruptions[0]))
            watcher.start(
                f"{model_ref.name} under {len(self.corruptions)} corruptions", images * len(self.corruptions), 0
            )
            correct = total = 0
            own = []
            for corruption in self.corruptions:
                predictions = self._predictions(model_ref, corruption)
                correct, total = correct + int(predictions["correct"].sum()), total + len(predictions)
                watcher.update(total, Rate(correct, total))
                own.append(predictions.assign(kind=corruption.kind, severity=corruption.severity))
            watcher.finish()
            together = pd.concat(own, ignore_index=True)
            self._write_records(model_ref, together)
            frames.append(together.assign(model=model_ref.name))
        return pd.concat(frames, ignore_index=True)[["model", "kind", "severity", "sample_id", "correct"]]

    def _write_records(self, model_ref: ModelRef, predictions: pd.DataFrame) -> None:
        """Write what a leaderboard reads; the name of a corrupted dataset ends with that of the clean one."""
        data = self.read(self.corruptions[0]).name.rpartition("|")[2]
        records = CorruptionRecords({"name": model_ref.name, **model_ref.identity}, data, predictions)
        try:
            records.write(self.folder / slug(model_ref.name) / FILE)
        except OSError as error:
            raise StoreFailed(f"{self.folder} cannot be written ({error.strerror}): choose another folder.") from error

    def _predictions(self, model_ref: ModelRef, corruption: CorruptionSpec) -> pd.DataFrame:
        dataset = self.read(corruption)
        path = self._path(model_ref, corruption, dataset)
        saved = _read(path)
        known = set(saved["sample_id"])
        missing = [row for row, sample in enumerate(dataset.ids) if sample not in known]
        if missing:
            new = self._predict(model_ref, corruption, dataset.select(missing))
            saved = pd.concat([saved, new], ignore_index=True) if len(saved) else new
            _write(saved, path)
        return saved.set_index("sample_id").loc[list(dataset.ids)].reset_index()

    def _predict(self, model_ref: ModelRef, corruption: CorruptionSpec, dataset: Dataset) -> pd.DataFrame:
        traits = check_model(model_ref.module, dataset, self.device, despite_flags=True)
        target = LocalModel(model_ref.module, traits.classes, self.device, self.batch_size)
        predicted = []
        with seeded(str(corruption), self.device):
            for start in range(0, len(dataset), BATCH):
                x = dataset.images(slice(start, start + BATCH)).to(self.device)
                predicted.append(target.logits(x).argmax(1).cpu())
        correct = (torch.cat(predicted) == dataset.labels).numpy()
        return pd.DataFrame({"sample_id": list(dataset.ids), "correct": correct})

    def _path(self, model_ref: ModelRef, corruption: CorruptionSpec, dataset: Dataset) -> Path:
        identity = json.dumps({"model": model_ref.identity, "data": dataset.sha256}, sort_keys=True)
        key = hashlib.sha256(identity.encode()).hexdigest()[:16]
        return self.folder / slug(model_ref.name) / f"{CLEAN if not corruption.severity else corruption}-{key}.parquet"


def _read(path: Path) -> pd.DataFrame:
    if not path.is_file():
        return pd.DataFrame({"sample_id": pd.Series(dtype=str), "correct": pd.Series(dtype=bool)})
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise StoreFailed(f"{path} cannot be read ({error}): delete it and run again.") from error


def _write(predictions: pd.DataFrame, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, predictions.to_parquet(index=False))
    except OSError as error:
        raise StoreFailed(f"{path} cannot be written ({error.strerror or error}): choose another folder.") from error
