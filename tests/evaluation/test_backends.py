"""Several workers: the same records as one process, even if workers die."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

import robustassay as ra
from robustassay.cli import main
from robustassay.errors import BadRequest, ModelFailed
from robustassay.evaluation import backends
from robustassay.evaluation.wave_runner import EFFICIENT_WAVE, plan_waves
from robustassay.records import TIMING

THREAT = ra.LInf(2 / 255)


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 15 * 15, 10)).eval()


def run(model: nn.Module, name: str | None = None, **how: Any) -> ra.Result:
    execution = ra.Execution(wave_size=24, **how)
    return ra.evaluate(model, "cifar10-1k", THREAT, "pgd:steps=5", limit=60, execution=execution, name=name)


def comparable(result: ra.Result) -> pd.DataFrame:
    return result.records.drop(columns=list(TIMING))


def assert_same(one: ra.Result, other: ra.Result) -> None:
    pd.testing.assert_frame_equal(comparable(one), comparable(other))
    assert one.x_adv is not None
    assert other.x_adv is not None
    assert torch.equal(one.x_adv, other.x_adv)


class Deadly(nn.Module):
    """Kills the first processes that call it, or that receive it, wherever they are not the leader."""

    def __init__(self, file: str, deaths: int, leader: int, on_arrival: bool = False) -> None:
        super().__init__()
        self.inner, self.file, self.deaths, self.leader, self.on_arrival = small(), file, deaths, leader, on_arrival

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self.on_arrival:
            self.die()

    def forward(self, x):
        self.die()
        return self.inner(x)

    def die(self) -> None:
        if os.getpid() != self.leader:
            with open(self.file, "a+") as book:
                book.seek(0)
                if len(book.read()) < self.deaths:
                    book.write("x")
                    book.flush()
                    os.kill(os.getpid(), signal.SIGKILL)


def test_workers_take_turns_at_the_gpus_unless_one_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    devices = [backends.device_of_worker(torch.device("cuda"), index) for index in range(5)]
    assert [device.index for device in devices] == [0, 1, 0, 1, 0]
    assert {device.type for device in devices} == {"cuda"}
    assert backends.device_of_worker(torch.device("cuda:1"), 0) == torch.device("cuda:1")
    assert backends.device_of_worker(torch.device("cpu"), 3) == torch.device("cpu")


@pytest.fixture(scope="module")
def alone() -> ra.Result:
    return run(small())


@pytest.mark.long  # the test below compares the same records, and one worker dies besides
def test_two_workers_give_the_records_of_one(alone):
    assert_same(run(small(), workers=2), alone)


@pytest.mark.parametrize("on_arrival", [pytest.param(False, marks=pytest.mark.long), True])
def test_what_a_dead_worker_had_in_hand_is_done_by_another(alone, tmp_path, on_arrival):
    """A worker that dies on arrival does so while the next one is still being started."""
    model = Deadly(str(tmp_path / "deaths"), 1, os.getpid(), on_arrival).eval()
    found = run(model, workers=2, name="Sequential")
    assert (tmp_path / "deaths").read_text() == "x", "a worker died"
    assert_same(found, alone)


@pytest.mark.long
def test_a_model_that_always_kills_its_worker_ends_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(backends, "MAX_WORKER_DEATHS", 0)
    with pytest.raises(ModelFailed, match="fewer of them"):
        run(Deadly(str(tmp_path / "deaths"), 99, os.getpid()).eval(), workers=2)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(BadRequest, match="at least 1"):
        run(small(), workers=0)
    with pytest.raises(BadRequest, match="cluster says"):
        run(small(), workers=2, ray="local")


def test_waves_cover_all_samples_once_and_end_small():
    waves = [*plan_waves(range(1000), 128, 4, random=False)]
    assert [row for wave in waves for row in wave] == [*range(1000)]
    assert len(waves[0]) > len(waves[-2]) >= EFFICIENT_WAVE
    assert [len(wave) for wave in plan_waves(range(64), 128, 4, False)] == [16] * 4, "every worker has work"
    assert [len(wave) for wave in plan_waves(range(300), 128, 1, False)] == [128, 128, 44], "serial waves are whole"
    assert [len(wave) for wave in plan_waves(range(300), 128, 4, True)] == [128, 128, 44], "so are random models'"


def test_an_interrupt_keeps_what_is_in_flight_and_the_same_command_goes_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(
        "import torch\nfrom torch import nn\n\ndef make():\n    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(1800, 10)).eval()\n"
    )
    request = [
        sys.executable,
        "-m",
        "robustassay",
        "eval",
        "model.py:make",
        "--attack",
        "pgd:steps=50",
        "--eps",
        "0.2/255",
    ]
    request += ["--targeted", "least-likely", "--limit", "256", "--workers", "2", "--self-test", "0", "--out", "out"]
    with subprocess.Popen(request, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        while process.poll() is None and not [*tmp_path.glob("out/shards/*.parquet")]:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
        _, said = process.communicate()
    assert process.returncode == 130, said
    assert "run the same command again to resume" in said
    kept = {*tmp_path.glob("out/shards/*.parquet")}
    assert main(request[3:]) == 0
    assert {*tmp_path.glob("out/shards/*.parquet")} > kept
    assert len(ra.Result.load("out").records) == 256


@pytest.mark.long
def test_a_cluster_gives_the_records_of_one_process_though_workers_die(alone, tmp_path):
    ray = pytest.importorskip("ray")
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        model = Deadly(str(tmp_path / "deaths"), 1, os.getpid()).eval()
        assert_same(run(model, ray="local", name="Sequential"), alone)
        assert (tmp_path / "deaths").read_text() == "x", "a worker died"
    finally:
        ray.shutdown()
