"""Measures misses and false alarms on the collection of masked and honest models; writes docs/doctor-rates.md.

    python -m benchmarks.doctor_rates [--part tuning|held-out|second|...|eighth] [--only NAME...]
                                      [--stages express truth doctor adaptive] [--workers N] [--minutes M]
                                      [--rows FILE] [--before FILE] [--out FILE]
    python -m benchmarks.doctor_rates --again [--part ...] [--only NAME...] [--workers N] [--minutes M]

Every finished model adds one line to the file of rows, so the command can be stopped and called again; a stage that a
row lacks is measured by a later call. After `--minutes` the models under way are ended, and the page is written from
the rows that there are. `--before` names the rows of an older version, to show beside these. With `--again`, what went
wrong outside the tuning half is measured with the code of today (docs/doctor-rates-again.jsonl); the rows themselves
stay. The folder named by ASSAY_NETWORKS, if any, adds published networks.
"""

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import takewhile
from math import inf, prod
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

import robustassay as ra
from benchmarks import doctor_rates_page
from benchmarks.model_collection import COLLECTION, PARTS, Entry
from benchmarks.model_collection.truth import broken_by_truth
from robustassay.data import Dataset
from robustassay.doctor import diagnose
from robustassay.errors import AssayError, Interrupted

IMAGES: Final = 16
Row = dict[str, Any]
Task = tuple[str, tuple[str, ...]]


def main() -> None:
    """Measure what is missing, then write the page."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", "--half", choices=PARTS)
    options.add_argument("--only", nargs="*", metavar="NAME", help="parts of names of models or families")
    options.add_argument("--stages", nargs="*", choices=STAGES, default=list(STAGES))
    options.add_argument("--workers", type=int, default=1, help="models measured side by side")
    options.add_argument("--minutes", type=float, default=inf, help="time limit")
    options.add_argument("--rows", type=Path, default=Path("docs/doctor-rates.jsonl"))
    options.add_argument("--before", type=Path, default=Path("docs/doctor-rates-before.jsonl"))
    options.add_argument("--out", type=Path, default=Path("docs/doctor-rates.md"))
    options.add_argument("--again", action="store_true", help="measure what went wrong with the code of today")
    options.add_argument("--again-rows", type=Path, default=Path("docs/doctor-rates-again.jsonl"))
    chosen = options.parse_args()
    chosen.rows.parent.mkdir(parents=True, exist_ok=True)
    rows, again = read(chosen.rows), read(chosen.again_rows)
    tasks = (
        to_repeat(COLLECTION, rows, again, chosen.part, chosen.only)
        if chosen.again
        else missing(COLLECTION, rows, chosen.part, chosen.only, chosen.stages)
    )
    number, until = 0, time.monotonic() + 60 * chosen.minutes
    with (chosen.again_rows if chosen.again else chosen.rows).open("a") as file:
        for number, row in enumerate(results(tasks, chosen.workers, until), 1):
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(f"{number}/{len(tasks)} {doctor_rates_page.summary(row)}", flush=True)
    if number < len(tasks):
        print(f"{len(tasks) - number} models are left; call the command again to measure them.")
    chosen.out.write_text(
        doctor_rates_page.page(COLLECTION, read(chosen.rows), read(chosen.before), read(chosen.again_rows))
    )


def read(path: Path) -> dict[str, Row]:
    """Read the rows; a later line of a model adds to an earlier one."""
    rows: dict[str, Row] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        row = json.loads(line)
        rows[row["name"]] = rows.get(row["name"], {}) | row
    return rows


def missing(
    collection: Iterable[Entry], rows: dict[str, Row], part: str | None, only: list[str] | None, stages: list[str]
) -> list[Task]:
    """Return the stages that are still to be measured, models of small images first."""
    wanted = chosen_entries(collection, part, only)
    left = [(entry, applicable(entry, stages) - rows.get(entry.name, {}).keys()) for entry in wanted]
    return [(entry.name, tuple(stage for stage in STAGES if stage in lacking)) for entry, lacking in left if lacking]


def to_repeat(
    collection: Iterable[Entry], rows: dict[str, Row], again: dict[str, Row], part: str | None, only: list[str] | None
) -> list[Task]:
    """Return what went wrong outside the tuning half and was not measured again: remedies, and false alarms."""
    wrong = [
        (entry.name, doctor_rates_page.REPEATED[entry.kind])
        for entry in chosen_entries(collection, part, only)
        if entry.part != "tuning" and doctor_rates_page.went_wrong(entry, rows.get(entry.name, {}))
    ]
    return [(name, (stage,)) for name, stage in wrong if stage not in again.get(name, {})]


def chosen_entries(collection: Iterable[Entry], part: str | None, only: list[str] | None) -> list[Entry]:
    """Return the entries of a part, and those whose name or family has one of some texts; small images first."""
    return [
        entry
        for entry in sorted(collection, key=lambda entry: (prod(entry.shape), entry.asked == "majority"))
        if (part is None or entry.part == part)
        and (not only or any(text in entry.name or text in entry.family for text in only))
    ]


def applicable(entry: Entry, stages: list[str]) -> set[str]:
    """Return the stages of this kind of model: the truth about an honest one is not sought."""
    return {stage for stage in stages if entry.kind == "masked" or stage != "truth"}


def results(tasks: list[Task], workers: int, until: float = inf) -> Iterator[Row]:
    """Yield each row when it is done; stop at a time of the monotonic clock."""
    if workers == 1:
        yield from map(measure, takewhile(lambda task: time.monotonic() < until, tasks))
        return
    with multiprocessing.get_context("spawn").Pool(workers, torch.set_num_threads, (1,)) as pool:
        rows = pool.imap_unordered(measure, tasks)
        with suppress(StopIteration, multiprocessing.TimeoutError):
            while True:
                yield rows.next(None if until == inf else max(0.0, until - time.monotonic()))


def measure(task: Task) -> Row:
    """Measure some stages of one model, each on a model built anew."""
    name, stages = task
    entry = next(entry for entry in COLLECTION if entry.name == name)
    samples = entry.dataset(IMAGES)
    row: Row = {"name": name, "images": len(samples.labels), "version": ra.__version__}
    for stage in stages:
        started = time.perf_counter()
        try:
            found = STAGES[stage](entry, entry.build(), samples)
        except Interrupted:
            raise
        except AssayError as refusal:
            found = {"refused": str(refusal)}
        except Exception as error:  # an error of one model must not end the run; the page shows it
            found = {"error": f"{type(error).__name__}: {error}"}
        row[stage] = found | {"seconds": round(time.perf_counter() - started, 1)}
    return row


def by_express(entry: Entry, model: nn.Module, samples: Dataset) -> Row:
    """Evaluate with express."""
    return said(ra.evaluate(model, samples, ra.LInf(entry.eps), "express", device="cpu", keep_images=False))


def by_adaptive(entry: Entry, model: nn.Module, samples: Dataset) -> Row:
    """Evaluate with express and what the diagnosis asks for."""
    search = ra.Search(adaptive="auto")
    threat = ra.LInf(entry.eps)
    return said(ra.evaluate(model, samples, threat, "express", device="cpu", keep_images=False, search=search))


def said(result: ra.Result) -> Row:
    """Return what a result says of its own robust accuracy."""
    doubtful = len(list(result.doubtful))
    return {"accuracy": float(result.robust_accuracy), "doubtful": doubtful, "flags": list(result.flags)}


def by_doctor(entry: Entry, model: nn.Module, samples: Dataset) -> Row:
    """Diagnose."""
    diagnosis = diagnose(model, samples, ra.LInf(entry.eps), device="cpu")
    return {"alarms": [str(result.indicator) for result in diagnosis.alarms]}


def by_truth(entry: Entry, model: nn.Module, samples: Dataset) -> Row:
    """Attack as someone who knows the trick."""
    x = samples.images(range(len(samples.labels)))
    broken = broken_by_truth(entry, x, torch.as_tensor(list(samples.labels)))
    return {"accuracy": float((~broken).double().mean())}


STAGES: Final[dict[str, Callable[[Entry, nn.Module, Dataset], Row]]] = {
    "express": by_express,
    "truth": by_truth,
    "doctor": by_doctor,
    "adaptive": by_adaptive,
}

if __name__ == "__main__":
    main()
