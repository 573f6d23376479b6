"""Several processes that share a study: stopped by the time limit, resumed, and packed."""

import dataclasses
import multiprocessing
import queue
import random
import tarfile
from typing import Any

import pandas as pd
import pytest
import torch
from benchmarks import study_processes
from benchmarks.task_board import FAILED, NOTHING, Board, Order, runnable

from robustassay.studies import provenance, running
from robustassay.studies.catalogue import PAPERS
from robustassay.studies.scope import Scope
from robustassay.studies.su2018.plan import settings_for
from robustassay.studies.su2018.settings import FULL, FULL_ON_CPU
from robustassay.studies.task import ComputeTask

MODEL = """
import torch
from torch import nn

def one():
    torch.manual_seed(1)
    return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 10)).eval()

def two():
    return one()
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


def test_models_that_see_the_same_crafted_images_go_to_one_process(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "choose_device", lambda device: torch.device("cuda"))
    names = ("resnet20-natural", "resnet20-pgd", "resnet20x3-trades")
    tasks = study_processes.independent_tasks("dong2020", Scope(tmp_path, limit=1, models=names))
    owners = dict(zip((each.key for each in tasks), Order.of(tasks).models, strict=True))
    crafted = ("Linf", "transfer-BIM", "fixed")
    first, second, third = (owners[name, *crafted] for name in (*names[:2], "TRADES"))
    assert first == second != third  # of another substitute
    assert owners[names[0], "Linf", "transfer-BIM", "eps"] == names[0]
    board = board_of(*tasks)
    held = [board.claim(0)]
    while tasks[held[-1]].key != (names[0], *crafted):
        board.finish(held[-1])
        held.append(board.claim(0))
    beside = [board.claim(1) for _ in range(5)]  # another process takes other tasks
    assert not any(tasks[at].key == (names[1], *crafted) for at in beside)
    assert tasks[board.claim(0)].key == (names[1], *crafted)


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
    (tmp_path / "runs" / "d.parquet").write_bytes(random.Random(0).randbytes(600_000))
    (tmp_path / "runs" / "e.parquet").write_bytes(random.Random(1).randbytes(600_000))
    monkeypatch.setattr(study_processes, "PACK_BYTES", 1_200_000)
    packs = study_processes.pack([tmp_path / "runs"], tmp_path / "packs")
    assert all(path.stat().st_size < 1_200_000 for path in packs)
    assert len(packs) == 2


def task(name, reads=(), finished=False):
    return ComputeTask(name, "", 1, lambda: finished, lambda _: None, lambda: 0.0, independent=True, reads=reads)


def board_of(*tasks, processes=2):
    return Board.of(multiprocessing.get_context("spawn"), tasks, processes)


def test_a_process_stays_with_a_model_and_leaves_others_to_others():
    board = board_of(*(task((model, goal)) for model in "ab" for goal in "123"), task(("a", "late")))
    assert [board.claim(0), board.claim(1), board.claim(0), board.claim(1)] == [0, 3, 1, 4]
    assert [board.claim(0), board.claim(0)] == [2, 5]  # the first model is done: the same one as the other process
    assert board.claim(1) == 6  # of the next stage, as nothing else is left
    assert board.claim(0) is None


def test_a_task_waits_for_what_it_reads_and_a_failure_is_tried_once_more():
    run, shown = task(("a", "run")), task(("transfer", "a", "run"), reads=(("a", "run"),))
    board = board_of(run, shown)
    assert board.claim(0) == 0
    assert board.claim(1) == NOTHING
    board.fail(0)
    assert board.claim(1) == 0
    board.finish(0)
    assert board.claim(0) == 1
    assert board.needed(1) == (0,)
    board.release(0)  # it was ended within the task
    assert board.states[1] == FAILED
    assert board.claim(1) is None
    assert runnable([shown]) == []  # without the run there is nothing to read


def test_transfer_is_measured_beside_the_attacks(scope, tmp_path):
    scope = dataclasses.replace(scope, models=(f"{tmp_path}/model.py:one", f"{tmp_path}/model.py:two"), limit=2)
    tasks = study_processes.independent_tasks("su2018", scope)
    kinds = [each.key[0] for each in tasks]
    assert kinds.index("transfer") < kinds.index("clever")
    assert study_processes.run("su2018", scope, 2, 300.0, 30.0) == 0
    shown = pd.concat([pd.read_parquet(path) for path in (scope.out / "cache").glob("transfer-*.parquet")])
    assert set(shown["source"]) == set(shown["target"]) == set(scope.models)


def test_a_folder_of_a_gpu_keeps_its_settings_where_it_is_read(tmp_path):
    scope = Scope(tmp_path / "out", device="cpu")
    assert settings_for(scope) is FULL_ON_CPU
    provenance.Measured.here("NVIDIA H200").keep(scope.out)
    assert settings_for(scope) is FULL


def test_every_task_of_robustbench_is_independent(tmp_path):
    scope = Scope(tmp_path, quick=True, models=("alexnet-natural", "convnet-ibp"))
    everything = PAPERS["robustbench2021"].study().plan(scope).tasks
    assert [task.key for task in study_processes.independent_tasks("robustbench2021", scope)] == [
        task.key for task in everything
    ]


def test_the_kinds_of_tasks_can_be_chosen_and_the_page_says_so(tmp_path):
    scope = Scope(tmp_path, quick=True, models=("alexnet-natural", "convnet-ibp"))
    tasks = study_processes.independent_tasks("robustbench2021", scope, ("transfer", "lipschitz"))
    assert [task.key[1] for task in tasks] == ["lipschitz"] * 2 + ["transfer"] * 2
    provenance.Measured.here("NVIDIA H200").keep(tmp_path)
    provenance.Measured.here("CPU", "transfer").keep(tmp_path)
    provenance.Measured.here("CPU", "transfer, lipschitz").keep(tmp_path)
    sentence = provenance.provenance_of(tmp_path, "assay study robustbench2021").sentence
    assert "on CPU (transfer, lipschitz), NVIDIA H200." in sentence


def test_one_task_that_fails_leaves_the_others(scope, monkeypatch):
    """In the process of the test, as a worker would do it."""

    def fails(self, results, progress):
        raise KeyError("a mistake of the program")

    tasks = study_processes.independent_tasks("dong2020", scope)
    monkeypatch.setattr(type(tasks[0]), "run", fails)
    said: Any = queue.Queue()
    monkeypatch.setattr(study_processes, "independent_tasks", lambda *_: tasks[:2])
    study_processes.work("dong2020", scope, board_of(*tasks[:2]), 0, said)
    assert said.qsize() == 2 * 2  # each of them is tried once more
    assert "a mistake of the program" in said.get()
