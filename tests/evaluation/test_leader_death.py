"""A leader that is killed takes its workers with it: none goes on computing for nobody."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.processes import alive_after

MODEL = """
import os, pathlib, time
from torch import nn


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.leader = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)), os.getpid()

    def forward(self, x):
        if os.getpid() != self.leader:
            pathlib.Path("pids", str(os.getpid())).touch()
            time.sleep(60)
        return self.layers(x)

def make():
    return Slow().eval()
"""
PATIENCE_SECONDS = 10.0
RAY = pytest.param(["--ray", "local"], marks=pytest.mark.long)  # Ray does it by itself, in about four seconds


def workers(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir()]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc")
@pytest.mark.parametrize("kind", [["--workers", "2"], RAY], ids=["processes", "ray"])
def test_workers_end_when_their_leader_is_killed(tmp_path, kind):
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "pids").mkdir()
    request = [sys.executable, "-m", "robustassay", "eval", "model.py:make", "--attack", "fgsm", "--limit", "64", *kind]
    with subprocess.Popen(request, cwd=tmp_path, stderr=subprocess.PIPE, start_new_session=True) as leader:
        while leader.poll() is None and len(workers(tmp_path / "pids")) < 2:
            time.sleep(0.02)
        assert leader.poll() is None
        os.kill(leader.pid, signal.SIGKILL)
        leader.wait()
        started = workers(tmp_path / "pids")
        left = alive_after(PATIENCE_SECONDS, started)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    assert len(started) == 2
    assert not left
