"""The store: whole shards or none, resume as a set difference, refusal of what is not its own."""

import errno
import json
import multiprocessing
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
import torch

from robustassay.errors import BadRequest, StoreFailed, WrongFolder
from robustassay.records import SCHEMA
from robustassay.store import Store

MANIFEST = {"key": "0123456789abcdef", "title": "a run", "spec": {}}


def rows(*ids: str) -> pa.Table:
    values = {"sample_id": list(ids), "success": [True] * len(ids)}
    return pa.table({name: values.get(name, [None] * len(ids)) for name in SCHEMA.names}, schema=SCHEMA)


def test_what_is_appended_is_read_back_once(tmp_path):
    store = Store.open(tmp_path / "run", MANIFEST)
    images = torch.rand(2, 3, 4, 4)
    store.append(rows("1", "2"), images)
    store.append(rows("2", "3"))
    assert sorted(store.records()["sample_id"].to_pylist()) == ["1", "2", "3"]
    assert store.done() == {"1", "2", "3"}
    assert torch.equal(store.images()["2"], images[1])
    assert Store.at(tmp_path / "run").manifest() == MANIFEST


def test_another_run_is_refused(tmp_path):
    Store.open(tmp_path / "run", MANIFEST)
    with pytest.raises(WrongFolder, match=r"holds another run .*choose another folder"):
        Store.open(tmp_path / "run", {**MANIFEST, "key": "fedcba9876543210"})


def test_a_folder_with_other_things_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(WrongFolder, match="choose an empty or new folder"):
        Store.open(tmp_path, MANIFEST)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_no_run_here(tmp_path):
    with pytest.raises(BadRequest, match="holds no run"):
        Store.at(tmp_path)


@pytest.mark.parametrize("fails_at", ["fsync", "replace"])
def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch, fails_at):
    store = Store.open(tmp_path / "run", MANIFEST)
    store.append(rows("1"))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, fails_at, full)
    with pytest.raises(StoreFailed, match="disk is full; free some space and run the same command"):
        store.append(rows("2"), torch.rand(1, 3, 4, 4))
    monkeypatch.undo()
    assert store.done() == {"1"}
    assert len(list((tmp_path / "run" / "shards").iterdir())) == 1


def test_too_little_room_is_said_before_work_starts(tmp_path, monkeypatch):
    store = Store.open(tmp_path / "run", MANIFEST)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 1 << 20))
    with pytest.raises(StoreFailed, match="1 MiB free and this run needs about"):
        store.check_room(1000, 12288)


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StoreFailed, match="cannot be written; choose another with --out"):
        Store.open(tmp_path / "run", MANIFEST)


def test_a_damaged_shard_is_named(tmp_path):
    store = Store.open(tmp_path / "run", MANIFEST)
    store.append(rows("1"))
    (shard,) = (tmp_path / "run" / "shards").glob("*.parquet")
    shard.write_bytes(shard.read_bytes()[:-20])
    with pytest.raises(StoreFailed, match=f"{shard.name} is damaged .*delete that file"):
        store.done()


def test_a_truncated_manifest_is_named(tmp_path):
    Store.open(tmp_path / "run", MANIFEST)
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(json.dumps(MANIFEST)[:10])
    with pytest.raises(StoreFailed, match=r"manifest.json cannot be read"):
        Store.open(tmp_path / "run", MANIFEST)


def write_many(folder: str, worker: int) -> None:
    store = Store.open(Path(folder), MANIFEST)
    for shard in range(15):
        store.append(rows(f"{worker}-{shard}", f"shared-{shard}"))


def test_two_processes_write_one_store(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=write_many, args=(str(tmp_path / "run"), n)) for n in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    expected = {f"{w}-{s}" for w in range(2) for s in range(15)} | {f"shared-{s}" for s in range(15)}
    assert sorted(Store.at(tmp_path / "run").records()["sample_id"].to_pylist()) == sorted(expected)
