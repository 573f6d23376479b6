"""A command killed at any moment and started again ends with what one leaves that was never touched.

The commands are started by a process that has imported everything and forks: a kill then meets work, not imports.
"""

import contextlib
import hashlib
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from robustassay.evaluation import Result
from robustassay.records import TIMING

NURSERY = """
import json, os, sys
import matplotlib.figure, matplotlib.pyplot, pandas, pyarrow.parquet, torch
import robustassay.cli, robustassay.evaluation, robustassay.leaderboard, robustassay.train
import robustassay.report.charts.curve_chart
import robustassay.studies.dong2020, robustassay.studies.runs
from robustassay.cli import main
torch.set_num_threads(1)
print("ready", flush=True)
for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if not child:
        said = os.open(job["said"], os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(said, 1), os.dup2(said, 2)
        os.chdir(job["folder"])
        code = 1
        try:
            space = {"main": main, "argv": job["argv"]}
            exec(job["code"], space)
            code = space.get("code", 0)
        finally:
            os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

MODELS = """
import torch
from torch import nn

def make(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 15 * 15, 10)).eval()

def one():
    return make(0)

def two():
    return make(1)
"""


class Nursery:
    """Starts commands, and can kill them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said = folder / "said"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLCONFIGDIR": str(folder)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=0
        )
        self._read()

    def start(self, code: str, *argv: object) -> int:
        job = {"code": code, "argv": [str(one) for one in argv], "said": str(self.said), "folder": str(self.folder)}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        return int(self._read())

    def kill_after(self, child: int, seconds: float) -> int:
        """Kill a command unless it ends by itself before, and return its exit code."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        return self.result()

    def result(self) -> int:
        return int(self._read())

    def finish(self, code: str, *argv: object) -> None:
        self.start(code, *argv)
        assert self.result() == 0, self.said.read_text()[-2000:]

    def _read(self) -> bytes:
        assert self._process.stdout is not None
        line: bytes = self._process.stdout.readline()
        assert line, "the process that starts commands has ended"
        return line

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def nursery(tmp_path_factory) -> Iterator[Nursery]:
    folder = tmp_path_factory.mktemp("kills")
    (folder / "models.py").write_text(MODELS)
    images = np.random.default_rng(0).integers(0, 256, (40, 3, 32, 32), np.uint8)
    labels = np.arange(40) % 10
    np.savez(folder / "train.npz", x_train=images, y_train=labels, x_test=images[:10], y_test=labels[:10])
    made = Nursery(folder)
    # What `curve` and `leaderboard add` read.
    for attack in ("fmn:steps=5", "pgd:steps=3"):
        made.finish(EVALUATE, "models.py:one", f"source/{attack[:3]}", attack, 12)
    yield made
    made.close()


# ---------------------------------------------------------------- what is left behind


def runs_below(out: Path) -> dict[str, pd.DataFrame]:
    found = {}
    for manifest in sorted(out.rglob("manifest.json")):
        folder = manifest.parent
        written = [sample for shard in folder.glob("shards/*.parquet") for sample in _samples(shard)]
        assert len(written) == len(set(written)), f"{folder} holds a sample twice"
        found[str(folder.relative_to(out))] = Result.load(folder).records.drop(columns=list(TIMING))
    return found


def _samples(shard: Path) -> list[str]:
    samples: list[str] = pq.read_table(shard)["sample_id"].to_pylist()
    return samples


def files(out: Path, *patterns: str) -> dict[str, str]:
    """Hash every file of these names; hidden ones were left half written by a kill, and nobody reads them."""
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for pattern in patterns
        for path in sorted(out.rglob(pattern))
        if not path.name.startswith(".")
    }


def shards(out: Path) -> set[str]:
    return set(files(out, "shards/*.parquet", "shards/*.safetensors")) if out.exists() else set()


@dataclass(frozen=True)
class Command:
    """Something to kill: what is run, what is left, and what may never be lost on the way."""

    code: str
    argv: tuple[Any, ...]
    left: Callable[[Path], Any]
    kept: Callable[[Path], set[str]] = shards


# Small waves make many shards, so that kills meet every kind of moment; hard targets keep every row at work.
EVALUATE = """
import robustassay as ra
model, out, attack, limit = argv
ra.evaluate(model, "cifar10-1k", ra.LInf(1 / 255), attack, limit=int(limit), out=out)
"""
EVAL = """
from robustassay.evaluation import options
options.WAVE_SIZE = {"cpu": 4}
code = main(["eval", "models.py:one", "--attack", "pgd:steps=60", "--eps", "0.5/255", "--targeted", "least-likely",
             "--limit", "32", "--out", argv[0], "--quiet"])
"""
STUDY = """
import dataclasses
from robustassay.studies import runs
from robustassay.studies.dong2020.settings import SETTINGS
runs._SECONDS_PER_WAVE = 1e-9
SETTINGS["quick"] = dataclasses.replace(
    SETTINGS["quick"], queries=20, samples=10, images=8, query_images=2,
    without=frozenset({"transfer", "white-box L2", "score L2", "score eps", "decision", "score"}),
)
code = main(["study", "dong2020", "--quick", "--models", "models.py:one", "models.py:two",
             "--out", argv[0], "--quiet"])
"""
CURVE = 'code = main(["curve", "source", "-o", argv[0] + "/curve.csv", "--quiet"])'
ADD = """
open("card.json", "w").write('{"name": "mine"}')
code = main(["leaderboard", "add", "card.json", "source/fmn", "source/pgd", "--board", argv[0]])
"""
TRAIN = """
code = main(["train", "natural:batch=20", "--data", "train.npz", "--name", "tiny", "--arch", "resnet:depth=8",
             "--epochs", "4", "--out", argv[0]])
"""

COMMANDS = {
    "eval": Command(EVAL, (), runs_below),
    "study": Command(STUDY, (), lambda out: (runs_below(out), files(out, "table*.csv"))),
    "curve": Command(CURVE, (), lambda out: files(out, "curve.csv"), lambda out: set()),
    "leaderboard add": Command(
        ADD, (), lambda out: files(out, "*.parquet", "*.safetensors", "card.json"), lambda out: set()
    ),
    "train": Command(TRAIN, (), lambda out: files(out, "tiny.safetensors"), lambda out: set()),
}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, pd.DataFrame):
        pd.testing.assert_frame_equal(one, other)
        return True
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return all(map(same, one, other))
    return bool(one == other)


SLOW = ("study", "train")
"""Commands that only `make test-long` kills."""


@pytest.mark.parametrize(
    ("name", "kills"),
    [
        *(pytest.param(name, 2, id=name) for name in COMMANDS if name not in SLOW),
        *(pytest.param(name, 40, id=f"{name}, 40 kills", marks=pytest.mark.long) for name in COMMANDS),
    ],
)
def test_killed_and_started_again_equals_untouched(nursery, tmp_path, name, kills):
    command = COMMANDS[name]
    untouched, harassed = tmp_path / "untouched", tmp_path / "harassed"
    started = time.monotonic()
    nursery.finish(command.code, untouched, *command.argv)
    whole = time.monotonic() - started
    expected = command.left(untouched)
    assert expected

    moments, done, at_work = random.Random(name), 0, 0
    # On a fast machine the first kills may come before the first shard: go on until one meets a run at work.
    while done < kills or (command.kept is shards and not at_work and done < 10 * kills):
        before = command.kept(harassed)
        child = nursery.start(command.code, harassed, *command.argv)
        code = nursery.kill_after(child, moments.uniform(0, whole))
        if code == -signal.SIGKILL:
            done += 1
        else:  # it was faster
            assert code == 0, nursery.said.read_text()[-2000:]
            assert same(command.left(harassed), expected)
            shutil.rmtree(harassed)
            before = set()
        after = command.kept(harassed)
        assert before <= after, "a finished shard was lost"
        at_work += after > before
    assert at_work or command.kept is not shards, "no kill met a run that had finished a shard"

    nursery.finish(command.code, harassed, *command.argv)
    assert same(command.left(harassed), expected)
