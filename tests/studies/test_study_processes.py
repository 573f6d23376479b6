"""Several processes that share a study: stopped by the time limit, resumed, and packed."""

import tarfile

import pytest
import torch
from benchmarks import study_processes

from robustassay.studies import running
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
    assert f"{len(tasks)} of {len(tasks)} runs are finished" in capsys.readouterr().out
    assert len(list((scope.out / "provenance").iterdir())) == 1


def test_models_that_see_the_same_crafted_images_go_to_one_process(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "choose_device", lambda device: torch.device("cuda"))
    names = ("resnet20-natural", "resnet20-pgd", "resnet20x3-trades")
    tasks = study_processes.independent_tasks("dong2020", Scope(tmp_path, limit=1, models=names))
    groups = study_processes.groups(tasks, range(len(tasks)))
    assert sorted(at for group in groups for at in group) == list(range(len(tasks)))
    kinds = {tuple(tasks[at].key for at in group) for group in groups}
    crafted = ("Linf", "transfer-BIM", "fixed")
    assert tuple((name, *crafted) for name in names[:2]) in kinds
    assert (("TRADES", *crafted),) in kinds  # of another substitute
    assert ((names[0], "Linf", "transfer-BIM", "eps"),) in kinds
    assert all(tasks[at].attack_run.source for group in groups if len(group) > 1 for at in group)


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
