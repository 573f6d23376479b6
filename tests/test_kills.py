"""A run killed at any moment and started again ends with the records of one that was never touched."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from assay.evaluation import Result
from assay.records import TIMING

MODEL = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 15 * 15, 10)).eval()
"""
# Small waves make many shards, so that kills meet every kind of moment; hard targets keep every row at work.
RUN = """
import sys, assay
threat = assay.ThreatModel(assay.LInf(0.5 / 255), assay.LeastLikely())
assay.evaluate(sys.argv[1], "cifar10-1k", threat, "pgd:steps=60", limit=int(sys.argv[3]), wave_size=4, out=sys.argv[2])
"""


def start(folder: Path, out: Path, samples: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", RUN, f"{folder / 'model.py'}:make", str(out), str(samples)]
    with open(folder / "errors", "wb") as said:
        return subprocess.Popen(command, stderr=said)


def run_to_the_end(folder: Path, out: Path, samples: int) -> None:
    assert start(folder, out, samples).wait() == 0, (folder / "errors").read_text()


def finished(out: Path) -> int:
    return len(list((out / "shards").glob("*.parquet"))) if out.exists() else 0


def comparable(out: Path) -> pd.DataFrame:
    return Result.load(out).records.drop(columns=list(TIMING))


@pytest.mark.parametrize(("kills_asked", "samples"), [(6, 80), pytest.param(40, 480, marks=pytest.mark.long)])
def test_killed_and_resumed_equals_untouched(tmp_path, kills_asked, samples):
    (tmp_path / "model.py").write_text(MODEL)
    untouched, harassed = tmp_path / "untouched", tmp_path / "harassed"
    run_to_the_end(tmp_path, untouched, samples)

    moments = random.Random(0)
    kills, progress = 0, []
    while kills < kills_asked:
        process = start(tmp_path, harassed, samples)
        before = finished(harassed)
        while process.poll() is None and finished(harassed) <= before and moments.random() < 0.994:
            time.sleep(0.02)  # most kills come soon after a shard, some long before the first
        time.sleep(moments.uniform(0, 0.2))
        if process.poll() is not None:
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
        progress.append(finished(harassed))
    assert kills == kills_asked, f"the run finished after {kills} kills; give it more samples"
    assert len(set(progress)) >= 2, "too few kills met a run at work; kill later"
    print("shards finished at each kill:", progress)
    assert progress == sorted(progress), "a finished shard was lost"

    run_to_the_end(tmp_path, harassed, samples)
    pd.testing.assert_frame_equal(comparable(harassed), comparable(untouched))
    images = [Result.load(out).x_adv for out in (harassed, untouched)]
    assert images[0] is not None
    assert images[1] is not None
    assert bool((images[0] == images[1]).all())
