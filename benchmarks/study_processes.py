"""Runs the independent tasks of a study in several processes side by side, for one GPU and small networks.

    python -m benchmarks.study_processes dong2020 --processes 12 --seconds 540 --out runs/dong2020
    python -m benchmarks.study_processes dong2020 --dataset imagenet --data nips2017:FOLDER --weights FOLDER ...
    python -m benchmarks.study_processes robustbench2021 --shift SET.npz --ood SET.npz --members TRAIN.npz ...
    python -m benchmarks.study_processes su2018 --processes 16 --seconds 300 --out runs/su2018

The processes take the tasks in the order of the plan and write into one folder, which is that of `assay study`: kill
them, run the same command again, and finished samples are kept. After `--seconds` every process ends with its wave; one
that is still busy after `--grace` seconds is ended, and loses that wave alone. A task that reads the results of others,
such as a transfer matrix, waits for them. ASSAY_GPU_SHARE is the part of the GPU's memory that one process may take,
by default 0.9 divided by the number of cores.

`--pack FOLDER` packs records (no images), provenance and the page, if `--publish` wrote one, into files of at most
15 MiB each; with `--sent N`, also the first N images of each kind that liu2017 sends to a service. Unpack them into one
folder, and make the page with `assay study NAME --out FOLDER --publish PAGE`. Where the source is a copy without its
repository, name the commit in ASSAY_COMMIT.
"""

import argparse
import gc
import multiprocessing
import os
import sys
import tarfile
import time
import traceback
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.task_board import NOTHING, Board, runnable
from robustassay.errors import AssayError, BadRequest, Interrupted
from robustassay.evaluation.progress import NoProgress
from robustassay.interrupt import graceful_interrupt, stop_requested
from robustassay.studies.catalogue import PAPERS
from robustassay.studies.paper_models import resolve
from robustassay.studies.provenance import Measured
from robustassay.studies.running import device_name
from robustassay.studies.runs import RunTask
from robustassay.studies.scope import ExtraData, Scope
from robustassay.studies.task import Task

PACK_BYTES: Final = 15 << 20
"""A pack is closed before a file that could make it larger than this."""

BUFFERED: Final = 1 << 18
"""Bytes that an archive may hold back before they are in its file."""

POLL_SECONDS: Final = 0.5

WORTH_SAYING: Final = 1.0
"""Seconds; some studies have thousands of tasks that take less."""

MEMORY: Final = "ASSAY_GPU_SHARE"
"""The variable that names the part of a GPU's memory which one process may take; by default 0.9 / cores."""


def main(words: Sequence[str]) -> int:
    """Run what is missing within the time, then write and pack what was asked for."""
    options = parse(words)
    if options.weights is not None:
        os.environ["ASSAY_WEIGHTS"] = str(options.weights)
    scope = Scope(
        options.out, options.dataset, options.quick, options.data, options.limit, tuple(options.models),
        device=options.device,
        extra=ExtraData(options.members, tuple(options.shift), tuple(options.ood), robust_limit=options.robust_limit),
    )  # fmt: skip
    left = run(options.study, scope, options.processes, options.seconds, options.grace, tuple(options.only))
    if options.publish is not None:
        from robustassay.cli.study.command import run_study  # with the packages of the command line

        try:
            run_study(PAPERS[options.study].study(), scope, True, options.publish)
        except BadRequest as error:  # too little is finished; the records are packed all the same
            print(error, flush=True)
    if options.pack is not None and options.sent and options.study == "liu2017":
        keep_sent(scope, options.sent)
    if options.pack is not None:
        for path in pack([options.out, *([options.publish] if options.publish else [])], options.pack):
            print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB", flush=True)
    return 1 if left else 0


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study", choices=PAPERS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--grace", type=float, default=40.0, help="seconds that waves in progress may take then")
    parser.add_argument("--publish", type=Path, help="write the page of finished work there")
    parser.add_argument("--pack", type=Path, help="pack records and page there")
    parser.add_argument("--sent", type=int, default=0, help="images of each kind that go to a service, to pack")
    parser.add_argument("--dataset", choices=("cifar10", "imagenet"), default="cifar10")
    for name in ("--data", "--device", "--members"):
        parser.add_argument(name)
    for name in ("--shift", "--ood"):
        parser.add_argument(name, nargs="*", default=[])
    parser.add_argument("--robust-limit", type=int)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--only",
        nargs="*",
        default=[],
        help="kinds of tasks, such as transfer: no others are run; transfer+untargeted asks for both words",
    )
    return parser.parse_args(words)


def independent_tasks(study: str, scope: Scope, only: Sequence[str] = ()) -> list[Task]:
    """List the attack runs of a study, and other tasks that say which results they read, in the order of its plan."""
    found = PAPERS[study].study()
    tasks: Sequence[Task] = found.plan(resolve(found.paper_models, scope)[0]).tasks
    return runnable([task for task in tasks if not only or any({*kind.split("+")} <= {*task.key} for kind in only)])


def run(study: str, scope: Scope, processes: int, seconds: float, grace: float, only: tuple[str, ...] = ()) -> int:
    """Run the missing tasks in processes until the time is over; return how many are missing then."""
    started, tasks = time.monotonic(), independent_tasks(study, scope, only)
    missing = sum(bool(task.missing()) for task in tasks)
    print(f"{len(tasks) - missing} of {len(tasks)} tasks are finished", flush=True)
    if missing:
        Measured.here(device_name(scope.device), ", ".join(only).replace("+", " ")).keep(scope.out)
        os.environ["OMP_NUM_THREADS"] = "1"  # the processes are as many as the cores
        context = multiprocessing.get_context("spawn")
        board, said = Board.of(context, tasks, processes), context.Queue()
        workers = [context.Process(target=work, args=(study, scope, board, at, said, only)) for at in range(processes)]
        with graceful_interrupt():  # Ctrl-C ends the wait, and then the processes
            for worker in workers:
                worker.start()
            _wait(workers, board, said, started + seconds)
            _stop(workers, board, said, grace)
    left = sum(bool(task.missing()) for task in tasks)
    print(f"{left} of {len(tasks)} tasks are missing after {time.monotonic() - started:.0f} s", flush=True)
    return left


def work(study: str, scope: Scope, board: Board, process: int, said: "Queue[str]", only: tuple[str, ...] = ()) -> None:
    """Run tasks until none is left or this process is asked to stop."""
    parent, last = os.getppid(), ""  # another one once the first process was killed
    _limit_memory()
    with graceful_interrupt() as stop:
        tasks = independent_tasks(study, scope, only)
        while not stop.asked and os.getppid() == parent and (at := board.claim(process)) is not None:
            if at == NOTHING:
                time.sleep(POLL_SECONDS)
                continue
            if isinstance(tasks[at], RunTask) and board.order.models[at] != last:
                last = board.order.models[at]
                _free_memory()
            start, name = time.monotonic(), " ".join(tasks[at].key)
            try:
                results = {tasks[one].key: tasks[one].run({}, NoProgress()) for one in board.needed(at)}
                tasks[at].run(results, NoProgress())
            except Interrupted:
                return
            except Exception as error:  # one task that fails must not end the others
                board.fail(at)
                told = str(error) if isinstance(error, AssayError) else traceback.format_exc(limit=-4)
                said.put(f"{name} failed: {told}")
                if not _works():
                    said.put(f"process {process} ends: after an error of CUDA every other call fails, too")
                    return
            else:
                board.finish(at)
                if (seconds := time.monotonic() - start) > WORTH_SAYING:
                    said.put(f"{name}: {seconds:.1f} s")


def _limit_memory() -> None:
    """Leave each other process its part of a GPU: one without memory makes its calls smaller, whoever took it."""
    if torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(float(os.environ.get(MEMORY, 0.9 / (os.cpu_count() or 1))))


def _free_memory() -> None:
    """Give back what models before held: other processes use the GPU, and record passes only while half is free."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _works() -> bool:
    """Say whether this process can still use its device: after some errors every call fails."""
    try:
        _free_memory()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def _wait(workers: Sequence[BaseProcess], board: Board, said: "Queue[str]", until: float, first: bool = True) -> None:
    """Print what the processes say until all have ended or the time is over."""
    gone: set[int] = set()
    while (
        any(worker.is_alive() for worker in workers) and time.monotonic() < until and not (first and stop_requested())
    ):
        for at, worker in enumerate(workers):
            if not worker.is_alive() and at not in gone:  # others may wait for its task
                gone.add(at)
                board.release(at)
        _print(said)
        time.sleep(POLL_SECONDS)


def _stop(workers: Sequence[BaseProcess], board: Board, said: "Queue[str]", grace: float) -> None:
    """Ask the processes to end after their wave, and end those that do not in time."""
    for worker in workers:
        if worker.is_alive():
            worker.terminate()  # SIGTERM: a stop request
    _wait(workers, board, said, time.monotonic() + grace, first=False)
    for worker in workers:
        if worker.is_alive():
            worker.kill()
        worker.join()
    _print(said)


def _print(said: Any) -> None:
    while not said.empty():
        print(said.get(), flush=True)


def pack(folders: Sequence[Path], out: Path) -> list[Path]:
    """Pack folders, without images of runs, into compressed archives of limited size."""
    out.mkdir(parents=True, exist_ok=True)
    files = [
        (path, str(path.relative_to(folder.parent)))
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".safetensors"
    ]
    packs: list[Path] = []
    while files:
        packs.append(out / f"study-{len(packs) + 1}.tar.gz")
        with packs[-1].open("wb") as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
            archive.add(*files.pop(0))
            while files and raw.tell() + BUFFERED + files[0][0].stat().st_size < PACK_BYTES:
                archive.add(*files.pop(0))
    return packs


def keep_sent(scope: Scope, images: int) -> None:
    """Write the images that Liu et al.'s section 7 sends to a service where packs hold them."""
    from robustassay.studies.liu2017 import sent_images
    from robustassay.studies.liu2017.plan import plan

    experiment = plan(resolve(PAPERS["liu2017"].study().paper_models, scope)[0]).measure({})
    if all(experiment.outcome_table(example_set).exists() for example_set, _ in sent_images.groups(experiment)):
        sent_images.keep(experiment, images)
    else:
        print("The sets that go to a service are not finished: none of their images is packed.", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
