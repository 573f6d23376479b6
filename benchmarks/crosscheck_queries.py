"""Compares what our black-box attacks reach with their queries to what other libraries do; writes docs/queries.md.

    python -m benchmarks.crosscheck_queries [--images 8] [--seeds 2] [--queries 1000] [--only square,boundary]

Every attack, ours too, runs on one image at a time through a `benchmarks.recorder.QueryRecorder`. It alone counts the
images sent and measures the distances reached.
"""

import argparse
import contextlib
import tempfile
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

import robustassay as ra
from benchmarks import peers
from benchmarks.crosscheck_random import random_page, rows_for, run_trial, trials
from benchmarks.query_bouts import MODELS, Outcome, Task, bouts
from benchmarks.query_page import queries_page
from benchmarks.recorder import QueriesSpent, QueryRecorder
from robustassay import attacks, data
from robustassay.evaluation.verify import ClaimedImages, verify
from robustassay.evaluation.wave import Wave, run_wave
from robustassay.registry import lookup
from robustassay.target import LocalModel, StartImages
from robustassay.threat import ThreatModel


@lru_cache
def _subject(name: str) -> tuple[nn.Module, Any]:
    """Return a model, and a frozen copy, which is a third faster."""
    torch.set_num_threads(1)
    model = ra.load_model(name)
    with torch.no_grad():
        traced: Any = torch.jit.trace(model, torch.rand(8, 3, 32, 32))  # type: ignore[no-untyped-call]
        frozen = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
    return model, frozen


def run_task(task: Task) -> Outcome:
    """Attack every image with every seed, and verify what was found."""
    warnings.simplefilter("ignore")
    (model, frozen), sample = _subject(task.model), data.load("cifar10-1k")
    order, counts, distance, claims = peers.ORDER[task.norm], np.zeros(3, int), [], []
    for row in rows_for(model, task.images):
        x, y = sample.images([row]), sample.labels[[row]]
        farthest = float(np.linalg.norm(torch.maximum(x, 1 - x).double().flatten(), order))
        for seed in range(task.seeds):
            recorder = QueryRecorder(frozen, x[0], int(y), order, task.marks[-1])
            counts += (
                _ours(task, recorder, row, seed) if task.library == "ours" else _theirs(task, recorder, x, y, seed)
            )
            found = [recorder.reached(mark) for mark in task.marks]
            claims += [(x[0], point, y[0]) for _, point in found if point is not None]
            distance.append([min(size, farthest) for size, _ in found])
    shaped = np.array(distance).reshape(-1, task.seeds, len(task.marks))
    print(
        task.model,
        task.attack,
        task.norm,
        task.library,
        np.exp(np.log(shaped).mean((0, 1))).round(4),
        counts,
        flush=True,
    )
    return Outcome(shaped, len(claims), *_judge(model, claims), *counts.tolist())


def _ours(task: Task, recorder: QueryRecorder, row: int, seed: int) -> tuple[int, int, int]:
    """Run our attack as the evaluation does, on the wrapped model; its records must agree with the wrapper."""
    sample, (model, _) = data.load("cifar10-1k"), _subject(task.model)
    network = LocalModel(model, 10, torch.device("cpu"), 32)
    vars(network)["logits"] = recorder
    spec = f"{task.attack}:{task.bout.settings.format(queries=task.marks[-1])}"
    wave = Wave(
        [sample.ids[row]], sample.images([row]), sample.labels[[row]], StartImages(sample.labels, sample.images)
    )
    threat = ThreatModel(lookup("norm", task.norm)(task.bout.eps))
    records, _ = run_wave(network, attacks.create(spec), threat, wave, seed, task.marks[-1], lambda ledger: None)
    entries = records["improvements"][0].as_py()
    astray = [entry for entry in entries if abs(recorder.after_image[entry["query"]] - entry["distance"]) > 1e-6]
    return len(entries), len(astray), 0


def _theirs(task: Task, recorder: QueryRecorder, x: Tensor, y: Tensor, seed: int) -> tuple[int, int, int]:
    torch.manual_seed(seed)
    np.random.seed(seed)
    try:
        with _shimmed(seed):
            task.bout.theirs[task.library](task.marks[-1])(recorder, x, y)
    except QueriesSpent:
        pass
    except Exception as error:
        print(task.model, task.attack, task.library, repr(error), flush=True)
        return 0, 0, 1
    return 0, 0, 0


@contextlib.contextmanager
def _shimmed(seed: int) -> Iterator[None]:
    """Work around ART: GeoDA calls what numpy 2 dropped and writes a file, HopSkipJump is not seeded."""
    seeded = np.random.RandomState
    with (
        mock.patch.object(np, "mat", np.asmatrix, create=True),
        mock.patch.object(np.random, "RandomState", lambda *given: seeded(*(given or (seed,)))),
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
    ):
        yield


def _judge(model: nn.Module, points: list[tuple[Tensor, Tensor, Tensor]]) -> tuple[int, int]:
    """Count the points that the model itself, asked afresh, gets wrong only 0.1 % further out, and those it never does.

    The recorder asks a frozen copy, whose last digits differ, and many attacks end where only these decide.
    """
    if not points:
        return 0, 0
    x0, x_adv, labels = map(torch.stack, zip(*points, strict=True))
    further = (x0 + 1.001 * (x_adv - x0)).clamp(0, 1)
    held, further_held = (
        verify(model, torch.device("cpu"), ClaimedImages(x0, shown, labels, False, "L2", 1.0, any_distance=True)).valid
        for shown in (x_adv, further)
    )
    return int((~held & further_held).sum()), int((~held & ~further_held).sum())


def main() -> None:
    """Run all tasks in two processes and write the page."""
    options = argparse.ArgumentParser()
    options.add_argument("--images", type=int, default=8)
    options.add_argument("--seeds", type=int, default=2)
    options.add_argument("--queries", type=int, default=1000, help="budget of a run; halves of it are shown too")
    options.add_argument("--random-images", type=int, default=12)
    options.add_argument("--random-queries", type=int, default=300, help="budget on randomised models")
    options.add_argument("--only", default="", help="names of attacks, or random")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--out", type=Path, default=Path("docs/queries.md"))
    chosen = options.parse_args()
    only = [name for name in chosen.only.split(",") if name]
    marks = tuple(chosen.queries // part for part in (8, 4, 2, 1))
    tasks = [
        Task(model, bout.attack, bout.norm, library, chosen.images, chosen.seeds, marks)
        for bout in bouts()
        if not only or bout.attack in only
        for model in MODELS
        for library in ("ours", *bout.theirs)
    ]
    drawn = trials(chosen.random_images, chosen.random_queries) if not only or "random" in only else []
    with ProcessPoolExecutor(chosen.workers, get_context("spawn")) as pool:
        outcomes, results = pool.map(run_task, tasks), pool.map(run_trial, drawn)
        text = queries_page(dict(zip(tasks, outcomes, strict=True)), chosen.images, chosen.seeds, marks)
        text += random_page(list(results)) if drawn else ""
    chosen.out.write_text(text)


if __name__ == "__main__":
    main()
