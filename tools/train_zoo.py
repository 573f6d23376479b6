"""Trains the models of the embedded zoo, several at once; the same call resumes.

    python tools/train_zoo.py natural --data FOLDER --out DIR --device cuda --limit 540

names a group or single models. Each model is one process and one call of `robustassay.train.train`, the same that
its card's `assay train` command makes; at the limit all of them are ended and their checkpoints stay.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Job:
    """One model of the zoo: its name, and its recipe and architecture as arguments of `assay train`."""

    name: str
    group: str
    recipe: str
    architecture: str
    epochs: int
    compiled: bool = False


LARGE = "batch=512,rate=0.3,average=0.996"
MIDDLE = "batch=256,rate=0.2,average=0.998"
NATURAL = f"natural:{LARGE}"
# Of the natural group, which must be in the zoo before the model that learns from them.
SOURCES = "resnet56-natural+vgg11-natural+inception-natural"

JOBS = (
    # The slowest first.
    Job("nasnet-natural", "natural", NATURAL, "nasnet", 30),
    Job("densenet58-natural", "natural", NATURAL, "densenet:depth=58", 30),
    Job("densenet40-natural", "natural", NATURAL, "densenet", 30),
    Job("inception-natural", "natural", NATURAL, "inception", 30),
    Job("resnet32-natural", "natural", NATURAL, "resnet:depth=32", 40),
    Job("mobilenet-natural", "natural", NATURAL, "mobilenet", 40),
    Job("mobilenet025-natural", "natural", NATURAL, "mobilenet:width=0.25", 50),
    Job("vgg16-natural", "natural", NATURAL, "vgg:depth=16", 40),
    Job("vgg11-natural", "natural", NATURAL, "vgg:width=20", 40),
    Job("alexnet-natural", "natural", NATURAL, "alexnet", 40),
    # With these, the zoo has 18 natural networks of seven families, as many as Su et al. (2018) compare.
    Job("nasnet2-natural", "families", NATURAL, "nasnet:cells=2,filters=12", 20),
    Job("inception4-natural", "families", NATURAL, "inception:modules=4,width=16", 24),
    Job("inception2-natural", "families", NATURAL, "inception:modules=2,width=20", 24),
    Job("densenet28-natural", "families", NATURAL, "densenet:depth=28", 20),
    Job("vgg13-natural", "families", NATURAL, "vgg:depth=13,width=10", 40),
    Job("alexnet24-natural", "families", NATURAL, "alexnet:width=24,hidden=96", 40),
    Job("resnet20x3-trades", "robust", f"trades:{MIDDLE}", "resnet:width=3", 40, compiled=True),
    Job("convnet-ibp", "robust", "ibp:batch=256,average=0.998", "convnet", 45),
    Job("resnet20-alp", "robust", f"alp:{MIDDLE},steps=7", "resnet", 30, compiled=True),
    Job("resnet20-deepdefense", "robust", "deepdefense:batch=256,start=resnet20-natural", "resnet", 10),
    Job("3resnet20-adp", "robust", "adp:batch=512,rate=0.2,average=0.996", "resnet-ensemble", 40),
    Job("vgg16-rse", "robust", "rse:batch=512,rate=0.2,average=0.996", "rse", 50),
    Job("resnet20x2-gaussian", "robust", f"gaussian:{LARGE}", "resnet:width=2", 40),
    # Few epochs, so that all of `families l2` end within five minutes beside one another.
    Job("resnet20-pgd-l2", "l2", f"pgd-l2:{LARGE}", "resnet", 16),
    Job("vgg11-pgd-l2", "l2", f"pgd-l2:{LARGE}", "vgg:depth=11,width=11", 20),
    Job("resnet20-ensemble-adv", "robust", f"ensemble-adv:{LARGE},sources={SOURCES}", "resnet", 30),
)


def main(words: Sequence[str]) -> int:
    """Train one job in this process, or the chosen jobs in separate processes."""
    options = parse(words)
    jobs = [job for job in JOBS if {job.name, job.group, "all"} & {*options.jobs}]
    unknown = {*options.jobs} - {"all"} - {job.name for job in JOBS} - {job.group for job in JOBS}
    if unknown or not jobs:
        print(f"no such job: {', '.join(sorted(unknown))}; there are {', '.join(job.name for job in JOBS)}")
        return 2
    if options.here:
        for job in jobs:
            train(job, options)
        return 0
    return train_together(jobs, options)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="+", help="names or groups: all, natural, robust, ...")
    parser.add_argument("--data", type=Path, required=True, help="CIFAR-10, as `assay train` takes it")
    parser.add_argument("--out", type=Path, required=True, help="folder for weights, cards, checkpoints and logs")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--at-once", type=int, default=10, help="processes at the same time")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which all are ended")
    parser.add_argument("--compile", dest="compile", default="asked", choices=("asked", "never"))
    parser.add_argument("--epochs", type=int, help="instead of each job's own, for a smoke run")
    parser.add_argument("--images", type=int, help="train on the first so many images only, for a smoke run")
    parser.add_argument("--here", action="store_true", help="one after the other in this process")
    parser.add_argument("--shared", action="store_true", help="say on the card that other trainings ran beside it")
    return parser.parse_args(words)


def train(job: Job, options: argparse.Namespace) -> None:
    """Train one model, with one line per epoch."""
    sys.path.insert(0, str(ROOT / "src"))
    from dataclasses import replace

    from robustassay.models.architectures import architecture
    from robustassay.registry import create
    from robustassay.train import EpochDone
    from robustassay.train import train as train_model
    from robustassay.train.cifar10_sheets import read

    def tell(done: EpochDone) -> None:
        rest = done.seconds / done.epoch * (done.epochs - done.epoch)
        print(f"{job.name} {done.epoch}/{done.epochs} loss {done.loss:.4f} {done.seconds:.0f} s, {rest:.0f} s left")

    data = read(options.data)
    if options.images:
        data = replace(data, x_train=data.x_train[: options.images], y_train=data.y_train[: options.images])
    card = train_model(
        create("recipe", job.recipe),
        architecture.create(job.architecture),
        data,
        options.out,
        job.name,
        epochs=options.epochs or job.epochs,
        device=options.device,
        on_epoch=tell,
        compiled=job.compiled and options.compile == "asked",
    )
    if options.shared:
        # The time on the card is not what one training alone would take.
        card = replace(card, hardware=f"{card.hardware}, shared with other trainings at the same time")
        (options.out / f"{job.name}.json").write_text(card.to_json())
    print(f"{job.name} done: clean {card.clean_accuracy:.4f}, {card.robust_attack} {card.robust_accuracy:.4f}")


def train_together(jobs: Sequence[Job], options: argparse.Namespace) -> int:
    """Run several processes until all jobs are done or the time is over."""
    start = time.monotonic()
    waiting = [job for job in jobs if not (options.out / f"{job.name}.json").exists()]
    running: dict[str, subprocess.Popen[bytes]] = {}
    failed: list[str] = []
    while (waiting or running) and time.monotonic() - start < options.limit:
        while waiting and len(running) < options.at_once:
            job = waiting.pop(0)
            running[job.name] = launch(job, options, shared=len(jobs) > 1)
        time.sleep(0.5)
        for name, process in [*running.items()]:
            if process.poll() is not None:
                del running[name]
                if process.returncode:
                    failed.append(name)
                    print(f"{name} FAILED with exit code {process.returncode}", flush=True)
    for process in running.values():
        process.terminate()
    for process in running.values():
        process.wait()
    cut = [*running, *(job.name for job in waiting)]
    print(f"{time.monotonic() - start:.0f} s; failed: {failed or 'none'}; not finished: {cut or 'none'}", flush=True)
    return 1 if failed or cut else 0


def launch(job: Job, options: argparse.Namespace, shared: bool) -> "subprocess.Popen[bytes]":
    """Start this script on one job."""
    words = [job.name, "--here", "--data", options.data, "--out", options.out, "--device", options.device]
    words += ["--compile", options.compile]
    words += ["--epochs", options.epochs] if options.epochs else []
    words += ["--images", options.images] if options.images else []
    words += ["--shared"] if shared else []
    # A dozen processes with a thread a core each would only wait for one another.
    threads = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "4", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen([sys.executable, __file__, *map(str, words)], env={**os.environ, **threads})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
