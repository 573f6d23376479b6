"""Compares what our black-box attacks reach with their queries to what other libraries do; writes docs/queries.md.

    python -m tools.crosscheck_queries [--images 12] [--seeds 2] [--queries 2000] [--only square,boundary]

Every attack, ours too, runs on one image at a time behind a `tools.recorder.Door`, which alone says how many images
were sent and what they reached.
"""

import argparse
import contextlib
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any, final
from unittest import mock

import numpy as np
import torch
from scipy import stats
from tools import peers
from tools.crosscheck_random import FIRST_ROW, random_page, rows_for, run_trial, trials
from tools.recorder import Door, Spent
from torch import Tensor, nn

import assay
from assay import attacks, data
from assay.evaluation.engine import Wave, run_wave
from assay.evaluation.verify import Claims, verify
from assay.registry import lookup
from assay.target import Network, Pool
from assay.threat import ThreatModel

MODELS = ("resnet20-natural", "resnet20-pgd")
LIBRARIES = ("ours", "foolbox", "ART")
EPS = {"L2": 0.5, "Linf": 8 / 255}

Theirs = Mapping[str, Callable[[int], peers.Peer]]
"""From a library to its attack with so many queries."""


@final
@dataclass(frozen=True)
class Bout:
    """One of our attacks under one norm, and the same attack of others."""

    attack: str
    norm: str
    theirs: Theirs
    settings: str = ""

    @property
    def eps(self) -> float:
        """The radius that counts as a success."""
        return EPS[self.norm]

    @property
    def seeks_minimum(self) -> bool:
        """Whether distances are of interest, or only what lies within eps."""
        return bool(lookup("attack", self.attack).seeks_minimum)


def _art(name: str, **settings: Any) -> peers.Peer:
    return peers.by_art(lambda model, batch_size: getattr(peers.art, name)(model, **settings))


def _art_on_probabilities(name: str, **settings: Any) -> peers.Peer:
    run = _art(name, **settings)
    return lambda model, x, y: run(nn.Sequential(model, nn.Softmax(1)), x, y)


def bouts() -> list[Bout]:
    """List what is compared."""
    foolbox, quiet = peers.foolbox, {"verbose": False}

    def hop(norm: str, order: float) -> Theirs:
        return {
            "foolbox": lambda q: peers.by_foolbox(foolbox.HopSkipJumpAttack(constraint=norm)),
            "ART": lambda q: _art("HopSkipJump", norm=order, max_iter=q, **quiet),
        }

    return [
        Bout("boundary", "L2", {"foolbox": lambda q: peers.by_foolbox(foolbox.BoundaryAttack(steps=q))}),
        Bout("hopskipjump", "L2", hop("l2", 2)),
        Bout("hopskipjump", "Linf", hop("linf", np.inf)),
        Bout("geoda", "L2", {"ART": lambda q: _art("GeoDA", norm=2, max_iter=q, **quiet)}),
        Bout("sign-opt", "L2", {"ART": lambda q: _art("SignOPTAttack", targeted=False, query_limit=q, **quiet)}),
        Bout(
            "simba",
            "L2",
            {"ART": lambda q: _art_on_probabilities("SimBA", max_iter=q, epsilon=0.2 * EPS["L2"], **quiet)},
            "steps={queries}",
        ),
        Bout(
            "square",
            "Linf",
            {"ART": lambda q: _art("SquareAttack", eps=EPS["Linf"], max_iter=q, p_init=0.8, **quiet)},
            "steps={queries},rescale_schedule=true",
        ),
    ]


# ---------------------------------------------------------------- one attack on one image


@final
@dataclass(frozen=True)
class Task:
    """One library's attack on every image of one model; names only, as it travels between processes."""

    model: str
    attack: str
    norm: str
    library: str
    images: int
    seeds: int
    marks: tuple[int, ...]

    @property
    def bout(self) -> Bout:
        """What is compared."""
        return next(bout for bout in bouts() if (bout.attack, bout.norm) == (self.attack, self.norm))


@final
@dataclass(frozen=True)
class Outcome:
    """Distances `[images, seeds, marks]`, that of the farthest corner where nothing was found, and what checks showed.

    Of `points` behind them, `refused` did not verify; of `entries` in our records, `astray` differ from what the door
    saw; `raised` runs ended in an error.
    """

    distance: np.ndarray
    points: int
    refused: int
    entries: int
    astray: int
    raised: int


@lru_cache
def _subject(name: str) -> tuple[nn.Module, Any]:
    """Return a model, and the same frozen, which answers in two thirds of the time."""
    torch.set_num_threads(1)
    model = assay.load_model(name)
    with torch.no_grad():
        frozen = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(model, torch.rand(8, 3, 32, 32))))
    return model, frozen


def run_task(task: Task) -> Outcome:
    """Attack every image with every seed, and judge what was found."""
    warnings.simplefilter("ignore")
    (model, frozen), sample = _subject(task.model), data.load("cifar10-1k")
    order, counts, distance, claims = peers.ORDER[task.norm], np.zeros(3, int), [], []
    for row in rows_for(model, task.images):
        x, y = sample.images([row]), sample.labels[[row]]
        farthest = float(np.linalg.norm(torch.maximum(x, 1 - x).double().flatten(), order))
        for seed in range(task.seeds):
            door = Door(frozen, x[0], int(y), order, task.marks[-1])
            counts += _ours(task, door, row, seed) if task.library == "ours" else _theirs(task, door, x, y, seed)
            found = [door.reached(mark) for mark in task.marks]
            claims += [(x[0], point, y[0]) for _, point in found if point is not None]
            distance.append([min(size, farthest) for size, _ in found])
    shaped = np.array(distance).reshape(-1, task.seeds, len(task.marks))
    print(task.model, task.attack, task.norm, task.library, middle(shaped).round(4), counts, flush=True)
    return Outcome(shaped, len(claims), _refused(model, claims), *counts.tolist())


def _ours(task: Task, door: Door, row: int, seed: int) -> tuple[int, int, int]:
    """Run our attack as the engine does, with the door in place of the model; its records must say what the door saw."""
    sample, (model, _) = data.load("cifar10-1k"), _subject(task.model)
    network = Network(model, 10, torch.device("cpu"), 32)
    vars(network)["logits"] = door
    spec = f"{task.attack}:{task.bout.settings.format(queries=task.marks[-1])}"
    wave = Wave([sample.ids[row]], sample.images([row]), sample.labels[[row]], Pool(sample.labels, sample.images))
    threat = ThreatModel(lookup("norm", task.norm)(task.bout.eps))
    records, _ = run_wave(network, attacks.create(spec), threat, wave, seed, task.marks[-1], lambda ledger: None)
    entries = records["improvements"][0].as_py()
    astray = [entry for entry in entries if abs(door.after_image[entry["query"]] - entry["distance"]) > 1e-6]
    return len(entries), len(astray), 0


def _theirs(task: Task, door: Door, x: Tensor, y: Tensor, seed: int) -> tuple[int, int, int]:
    torch.manual_seed(seed)
    np.random.seed(seed)
    try:
        with _shimmed(seed):
            task.bout.theirs[task.library](task.marks[-1])(door, x, y)
    except Spent:
        pass
    except Exception as error:
        print(task.model, task.attack, task.library, repr(error), flush=True)
        return 0, 0, 1
    return 0, 0, 0


@contextlib.contextmanager
def _shimmed(seed: int) -> Iterator[None]:
    """Let ART run: GeoDA calls what numpy 2 dropped and writes a file, HopSkipJump draws from no seed."""
    seeded = np.random.RandomState
    with (
        mock.patch.object(np, "mat", np.asmatrix, create=True),
        mock.patch.object(np.random, "RandomState", lambda *given: seeded(*(given or (seed,)))),
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
    ):
        yield


def _refused(model: nn.Module, points: list[tuple[Tensor, Tensor, Tensor]]) -> int:
    """Count the points that the model itself, asked afresh, classifies correctly after all."""
    if not points:
        return 0
    x0, x_adv, labels = map(torch.stack, zip(*points, strict=True))
    claims = Claims(x0, x_adv, labels, False, "L2", 1.0, any_distance=True)
    return int((~verify(model, torch.device("cpu"), claims).valid).sum())


# ---------------------------------------------------------------- the page

HEAD = """# Queries: our black-box attacks beside those of other libraries, and on randomised models

Made by `make crosscheck-queries` with foolbox {foolbox}, ART {art}, torch {torch}.

The first {images} images of cifar10-1k from row {first} on (those before served to choose settings) that a model
classifies correctly, untargeted, {seeds} seeds each. Every attack, ours too, ran on one image at a time, and the model
was wrapped: the wrapper counted the images sent and judged each of them, by label and by distance in float64. What it
saw first after q images is what is called reached with q queries. To send an image again, or the clean one, costs
nothing, which favours ART: it asks for the same image up to three times. Budgets were {queries:,} queries; settings
are each library's own, and equal where they mean the same.

Of {points:,} points behind these tables {refused} did not hold when the model was asked afresh by
`assay.evaluation.verify`. Of {entries:,} improvements in our own records {astray} differ from what the wrapper saw.
{raised}
"""

DISTANCE = """
## {model}: distance reached

Geometric mean over images and seeds, and the median in brackets; where nothing was found the farthest corner of the
pixel box counts. "ours / best peer" is the ratio of the geometric means, with the 95 % interval over images.

"""

SUCCESS = """
## {model}: success in %, L2 {l2}, Linf 8/255

The part of runs that reached a point within that radius. One run is {unit:.1f} points.

"""


def middle(distance: np.ndarray) -> np.ndarray:
    """Return the geometric mean over images and seeds."""
    mean: np.ndarray = np.exp(np.log(distance).mean((0, 1)))
    return mean


def _ratio(ours: np.ndarray, peer: np.ndarray) -> str:
    """Write our distance as a multiple of a peer's, with an interval over images."""
    logs = np.log(ours / peer).mean(1)
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / len(logs) ** 0.5 if len(logs) > 1 else np.inf
    return f"{np.exp(logs.mean()):.2f} ({np.exp(logs.mean() - half):.2f} to {np.exp(logs.mean() + half):.2f})"


def distance_lines(bout: Bout, found: Mapping[str, Outcome], marks: tuple[int, ...]) -> Iterator[str]:
    """Write how near each library came after each number of queries."""
    for at, mark in enumerate(marks):
        reached = {library: outcome.distance[:, :, at] for library, outcome in found.items()}
        mean = {library: float(np.exp(np.log(sizes).mean())) for library, sizes in reached.items()}
        cells = [f"{mean[lib]:.3g} ({np.median(reached[lib]):.3g})" if lib in mean else "" for lib in LIBRARIES]
        best = min(mean, key=lambda library: mean[library])
        rival = min((library for library in mean if library != "ours"), key=lambda library: mean[library])
        yield _line(bout, mark, cells, best, _ratio(reached["ours"], reached[rival]))


def success_lines(bout: Bout, found: Mapping[str, Outcome], marks: tuple[int, ...]) -> Iterator[str]:
    """Write how often each library came within eps after each number of queries."""
    for at, mark in enumerate(marks):
        part = {library: float((one.distance[:, :, at] <= bout.eps + 1e-6).mean()) for library, one in found.items()}
        cells = [f"{100 * part[library]:.0f}" if library in part else "" for library in LIBRARIES]
        best = max(part, key=lambda library: (part[library], library == "ours"))
        yield _line(bout, mark, cells, best)


def _line(bout: Bout, mark: int, cells: list[str], best: str, *more: str) -> str:
    winner = best if best == "ours" else f"**{best}**"
    return f"| {' | '.join([f'{bout.attack} {bout.norm}', f'{mark:,}', *cells, winner, *more])} |\n"


def page(found: Mapping[Task, Outcome], chosen: argparse.Namespace, marks: tuple[int, ...]) -> str:
    """Write everything but the part on randomised models."""
    total = {
        name: sum(getattr(one, name) for one in found.values()) for name in ("points", "refused", "entries", "astray")
    }
    raised = [f"{task.library}'s {task.attack} ({one.raised})" for task, one in found.items() if one.raised]
    text = HEAD.format(
        foolbox=version("foolbox"),
        art=version(peers.PACKAGES["ART"]),
        torch=torch.__version__.partition("+")[0],
        images=chosen.images,
        first=FIRST_ROW,
        seeds=chosen.seeds,
        queries=marks[-1],
        **total,
        raised=f"Runs that ended in an error: {', '.join(raised)}." if raised else "No run ended in an error.",
    )
    head = "| attack | queries | " + " | ".join(LIBRARIES) + " | best |"
    rule = "\n" + "|---" * (len(LIBRARIES) + 3) + "|"
    for model in MODELS:
        distances, successes = "", ""
        for bout in bouts():
            mine = {
                task.library: one
                for task, one in found.items()
                if (task.model, task.attack, task.norm) == (model, bout.attack, bout.norm)
            }
            if mine:
                distances += "".join(distance_lines(bout, mine, marks)) if bout.seeks_minimum else ""
                successes += "".join(success_lines(bout, mine, marks))
        text += (
            DISTANCE.format(model=model) + head + " ours / best peer |" + rule + "---|\n" + distances
            if distances
            else ""
        )
        text += (
            SUCCESS.format(model=model, l2=EPS["L2"], unit=100 / chosen.images / chosen.seeds)
            + head
            + rule
            + "\n"
            + successes
            if successes
            else ""
        )
    return text


def main() -> None:
    """Run all tasks in two processes and write the page."""
    options = argparse.ArgumentParser()
    options.add_argument("--images", type=int, default=12)
    options.add_argument("--seeds", type=int, default=2)
    options.add_argument("--queries", type=int, default=2000, help="budget of a run; halves of it are shown too")
    options.add_argument("--random-queries", type=int, default=500, help="budget on randomised models")
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
    drawn = trials(chosen.images, chosen.random_queries) if not only or "random" in only else []
    with ProcessPoolExecutor(chosen.workers, get_context("spawn")) as pool:
        outcomes, results = pool.map(run_task, tasks), pool.map(run_trial, drawn)
        text = page(dict(zip(tasks, outcomes, strict=True)), chosen, marks)
        text += random_page(list(results)) if drawn else ""
    chosen.out.write_text(text)


if __name__ == "__main__":
    main()
