"""How models answer corrupted images: one row a sample and cell, kept cell by cell so that a stop loses one at most.

FOLDER/MODEL/CELL-KEY.parquet holds the answers of a model in a cell; the key covers the weights and the images, so
that another model of the same name, or other data, gets files of its own.
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
from robustassay.evaluation.model_ref import ModelRef
from robustassay.evaluation.progress import NoProgress, Progress
from robustassay.files import write_atomically
from robustassay.names import slug
from robustassay.rng import seeded
from robustassay.target import LocalModel

BATCH: Final = 256
"""Images that are spoilt together; changes speed and memory, never results."""

ReadCell = Callable[[CorruptionSpec], Dataset]
"""From a cell, the clean one of severity 0 included, to its images."""


@final
@dataclass(frozen=True)
class CorruptionBench:
    """Models, the cells to try them in, and where the answers are kept."""

    model_refs: Sequence[ModelRef]
    cells: Sequence[CorruptionSpec]
    read: ReadCell
    folder: Path
    device: torch.device
    batch_size: int = 128

    def run(self, progress: Progress | None = None) -> pd.DataFrame:
        """Ask for whatever answers are missing; return all: model, kind, severity, sample_id, correct."""
        watcher = progress or NoProgress()
        frames = []
        for model_ref in self.model_refs:
            if model_ref.is_remote:
                raise BadRequest(f"{model_ref.name} is a service, which costs queries: name a model of this process.")
            images = len(self.read(self.cells[0]))
            watcher.start(f"{model_ref.name} in {len(self.cells)} cells", images * len(self.cells), 0)
            right = asked = 0
            for cell in self.cells:
                answers = self._answers(model_ref, cell)
                right, asked = right + int(answers["correct"].sum()), asked + len(answers)
                watcher.update(asked, Rate(right, asked))
                frames.append(answers.assign(model=model_ref.name, kind=cell.kind, severity=cell.severity))
            watcher.finish()
        return pd.concat(frames, ignore_index=True)[["model", "kind", "severity", "sample_id", "correct"]]

    def _answers(self, model_ref: ModelRef, cell: CorruptionSpec) -> pd.DataFrame:
        dataset = self.read(cell)
        path = self._path(model_ref, cell, dataset)
        held = _read(path)
        known = set(held["sample_id"])
        missing = [row for row, sample in enumerate(dataset.ids) if sample not in known]
        if missing:
            fresh = self._ask(model_ref, cell, dataset.select(missing))
            held = pd.concat([held, fresh], ignore_index=True) if len(held) else fresh
            _write(held, path)
        return held.set_index("sample_id").loc[list(dataset.ids)].reset_index()

    def _ask(self, model_ref: ModelRef, cell: CorruptionSpec, dataset: Dataset) -> pd.DataFrame:
        traits = check_model(model_ref.module, dataset, self.device, despite_flags=True)
        network = LocalModel(model_ref.module, traits.classes, self.device, self.batch_size)
        predicted = []
        with seeded(str(cell), self.device):
            for start in range(0, len(dataset), BATCH):
                x = dataset.images(slice(start, start + BATCH)).to(self.device)
                predicted.append(network.logits(x).argmax(1).cpu())
        correct = (torch.cat(predicted) == dataset.labels).numpy()
        return pd.DataFrame({"sample_id": list(dataset.ids), "correct": correct})

    def _path(self, model_ref: ModelRef, cell: CorruptionSpec, dataset: Dataset) -> Path:
        traits = json.dumps({"model": model_ref.identity, "data": dataset.sha256}, sort_keys=True)
        key = hashlib.sha256(traits.encode()).hexdigest()[:16]
        return self.folder / slug(model_ref.name) / f"{CLEAN if not cell.severity else cell}-{key}.parquet"


def _read(path: Path) -> pd.DataFrame:
    if not path.is_file():
        return pd.DataFrame({"sample_id": pd.Series(dtype=str), "correct": pd.Series(dtype=bool)})
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise StoreFailed(f"{path} cannot be read ({error}): delete it and run again.") from error


def _write(answers: pd.DataFrame, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, answers.to_parquet(index=False))
    except OSError as error:
        raise StoreFailed(f"{path} cannot be written ({error.strerror or error}): choose another folder.") from error
