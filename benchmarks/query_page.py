"""Writes the tables of docs/queries.md that compare libraries."""

from collections.abc import Iterator, Mapping
from importlib.metadata import version

import numpy as np
import torch
from scipy import stats

from benchmarks import peers
from benchmarks.crosscheck_random import FIRST_ROW
from benchmarks.query_bouts import EPS, LIBRARIES, MODELS, Bout, Outcome, Task, bouts
from benchmarks.winners import winner
from robustassay.eps import format_norm

HEAD = """# Queries: our black-box attacks beside those of other libraries, and on randomised models

Made by `make crosscheck-queries` with foolbox {foolbox}, ART {art}, torch {torch}.

The first {images} images of cifar10-1k from row {first} on that a model classifies correctly (earlier rows were used to
choose settings), untargeted, {seeds} seeds each. Every attack ran on one image at a time. A wrapper around the model
counted the images sent and checked each of them, by label and by distance in float64; "reached with q queries" is the
best of the first q images. Images sent again, and the clean image, are not counted, which favours ART: it sends the
same image up to three times. The budget was {queries:,} queries. Settings are each library's own, and equal where they
mean the same. Ours start from noise or from images of the data, foolbox and ART from noise. ART's SimBA has no
radius; its steps are as long as ours.

Of {rows} rows, ours is best in {won} and tied within 1 % in {tied}; the other rows name the best library.

Of {points:,} points in these tables, `evaluation.verify` refused {refused} in a new forward pass; {edge} more lie
so close to the boundary that they verify only 0.1 % further out. Of {entries:,} improvements in our records {astray}
differ from what the wrapper counted. No run of ours exceeded its budget: the comparison would have stopped.
{raised}
"""

DISTANCE = """
## {model}: distance reached

Geometric mean over images and seeds, and the median in brackets. Where nothing was found, the distance to the farthest
corner of the pixel box counts. "ours / best peer" is the ratio of the geometric means, with the 95 % interval over
images.

"""

SUCCESS = """
## {model}: success in %, L2 {l2}, L∞ 8/255

The percentage of runs that reached a point within that radius. One run is {unit:.1f} points.

"""


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
        rival = min((library for library in mean if library != "ours"), key=lambda library: mean[library])
        yield _line(bout, mark, cells, winner(mean), _ratio(reached["ours"], reached[rival]))


def success_lines(bout: Bout, found: Mapping[str, Outcome], marks: tuple[int, ...]) -> Iterator[str]:
    """Write how often each library came within eps after each number of queries."""
    for at, mark in enumerate(marks):
        part = {library: float((one.distance[:, :, at] <= bout.eps + 1e-6).mean()) for library, one in found.items()}
        cells = [f"{100 * part[library]:.0f}" if library in part else "" for library in LIBRARIES]
        yield _line(bout, mark, cells, winner(part, higher_is_better=True))


def _line(bout: Bout, mark: int, cells: list[str], best: str, *more: str) -> str:
    return f"| {' | '.join([f'{bout.attack} {format_norm(bout.norm)}', f'{mark:,}', *cells, best, *more])} |\n"


def queries_page(found: Mapping[Task, Outcome], images: int, seeds: int, marks: tuple[int, ...]) -> str:
    """Write everything but the part on randomised models."""
    tables = "".join(_tables(model, found, marks, 100 / images / seeds) for model in MODELS)
    rows = [line for line in tables.splitlines() if line.startswith("| ") and not line.startswith("| attack")]
    total = {
        name: sum(getattr(one, name) for one in found.values())
        for name in ("points", "edge", "refused", "entries", "astray")
    }
    raised = [f"{task.library}'s {task.attack} ({one.raised})" for task, one in found.items() if one.raised]
    head = HEAD.format(
        foolbox=version("foolbox"),
        art=version(peers.PACKAGES["ART"]),
        torch=torch.__version__.partition("+")[0],
        images=images,
        first=FIRST_ROW,
        seeds=seeds,
        queries=marks[-1],
        won=sum(" ours |" in row for row in rows),
        tied=sum(" tie |" in row for row in rows),
        rows=len(rows),
        **total,
        raised=f"Runs that ended in an error: {', '.join(raised)}." if raised else "No run ended in an error.",
    )
    return head + tables


def _tables(model: str, found: Mapping[Task, Outcome], marks: tuple[int, ...], unit: float) -> str:
    distances, successes = "", ""
    for bout in bouts():
        names = (model, bout.attack, bout.norm)
        mine = {task.library: one for task, one in found.items() if (task.model, task.attack, task.norm) == names}
        if mine:
            distances += "".join(distance_lines(bout, mine, marks)) if bout.seeks_minimum else ""
            successes += "".join(success_lines(bout, mine, marks))
    columns = f"| attack | queries | {' | '.join(LIBRARIES)} | best |"
    rule = "|---" * (len(LIBRARIES) + 3) + "|"
    text = ""
    if distances:
        text += f"{DISTANCE.format(model=model)}{columns} ours / best peer |\n{rule}---|\n{distances}"
    if successes:
        text += f"{SUCCESS.format(model=model, l2=EPS['L2'], unit=unit)}{columns}\n{rule}\n{successes}"
    return text
