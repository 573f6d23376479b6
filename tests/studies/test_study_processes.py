"""Several processes that share a study: stopped by the time limit, resumed, and packed."""

import queue
import tarfile
from typing import Any

import pytest
from benchmarks import study_processes

from robustassay.studies.catalogue import PAPERS
from robustassay.studies.scope import Scope

MODEL = """
import torch
from torch import nn

def one():
    torch.manual_seed(1)
    return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 10)).eval()
"""


@pytest.fixture
def scope(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    return Scope(tmp_path / "out", quick=True, limit=1, models=(f"{tmp_path}/model.py:one",), device="cpu")


def test_the_time_limit_ends_it_and_the_same_call_resumes(scope, capsys):
    tasks = study_processes.independent_tasks("dong2020", scope)
    assert study_processes.run("dong2020", scope, 1, 0.0, 0.0) == len(tasks) > 10
    assert study_processes.run("dong2020", scope, 1, 300.0, 10.0) == 0
    before = sorted((scope.out / "runs").rglob("*.parquet"))
    assert study_processes.run("dong2020", scope, 1, 300.0, 10.0) == 0
    assert sorted((scope.out / "runs").rglob("*.parquet")) == before
    assert f"{len(tasks)} of {len(tasks)} tasks are finished" in capsys.readouterr().out
    assert len(list((scope.out / "provenance").iterdir())) == 1


def test_packs_hold_every_file_once_but_images(tmp_path, monkeypatch):
    monkeypatch.setattr(study_processes, "PACK_BYTES", 1)  # one file each
    for name in ("a.parquet", "b.json", "c.safetensors"):
        (tmp_path / "runs" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "runs" / name).write_bytes(bytes(range(256)) * 999)
    packs = study_processes.pack([tmp_path / "runs"], tmp_path / "packs")
    held = []
    for path in packs:
        with tarfile.open(path) as archive:
            held += archive.getnames()
    assert held == ["runs/a.parquet", "runs/b.json"]


def test_every_task_of_robustbench_is_independent(tmp_path):
    scope = Scope(tmp_path, quick=True, models=("alexnet-natural", "convnet-ibp"))
    everything = PAPERS["robustbench2021"].study().plan(scope).tasks
    assert [task.key for task in study_processes.independent_tasks("robustbench2021", scope)] == [
        task.key for task in everything
    ]


def test_one_task_that_fails_leaves_the_others(scope, monkeypatch):
    """In the process of the test, as a worker would do it."""

    def fails(self, results, progress):
        raise KeyError("a mistake of the program")

    tasks = study_processes.independent_tasks("dong2020", scope)
    monkeypatch.setattr(type(tasks[0]), "run", fails)
    given: Any = queue.Queue()
    said: Any = queue.Queue()
    for at in (0, 1, None):
        given.put(at)
    study_processes.work("dong2020", scope, given, said)
    assert said.qsize() == 2
    assert "a mistake of the program" in said.get()
