"""The store: whole shards or none, resume as a set difference, refusal of what is not its own."""

import errno
import hashlib
import json
import multiprocessing
import os
import resource
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from robustassay import shards
from robustassay.errors import BadRequest, StoreFailed, WrongFolder
from robustassay.records import SCHEMA, SCHEMA_2, SCHEMA_VERSION
from robustassay.shards import Binding, read_binding
from robustassay.store import Store

MANIFEST: dict[str, Any] = {"key": "0123456789abcdef", "title": "a run", "spec": {}}


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
    assert Store.at(tmp_path / "run").manifest() == {**MANIFEST, "schema": SCHEMA_VERSION}


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


# ---------------------------------------------------------------- what binds a shard to its run


def only_shard(folder: Path) -> Path:
    (shard,) = (folder / "shards").glob("*.parquet")
    return shard


def test_a_shard_of_another_run_is_refused(tmp_path):
    weaker = Store.open(tmp_path / "weaker", {**MANIFEST, "key": "fedcba9876543210"})
    weaker.append(rows("1"))
    store = Store.open(tmp_path / "run", MANIFEST)
    moved = only_shard(tmp_path / "weaker")
    shutil.copy(moved, tmp_path / "run" / "shards")
    for read in (store.records, store.done, store.images):
        with pytest.raises(StoreFailed, match=f"{moved.name}.*belongs to another run, fedcba9876543210"):
            read()


@pytest.mark.parametrize("name", ["old", "0" * 32, "12345678-" + "0" * 31, "ABCDEF00-" + "0" * 32])
def test_a_shard_whose_name_is_no_hash_is_refused(tmp_path, name):
    store = Store.open(tmp_path / "run", MANIFEST)
    store.append(rows("1"))
    shard = only_shard(tmp_path / "run")
    shard.rename(shard.with_stem(name))
    with pytest.raises(StoreFailed, match="does not end in a hash"):
        store.records()


def test_shards_that_contradict_each_other_are_refused_whichever_name_comes_first(tmp_path):
    for attempt in range(4):
        store = Store.open(tmp_path / str(attempt), MANIFEST)
        store.append(rows("1", "2"))
        lifted = rows("2").set_column(SCHEMA.get_field_index("success"), "success", pa.array([False]))
        store.append(lifted)
        with pytest.raises(StoreFailed, match="contradict each other on sample '2'"):
            store.records()


def test_of_a_random_model_the_record_that_is_worse_for_it_counts(tmp_path):
    """Its draws depend on the samples of the wave, so two honest processes may disagree."""
    for attempt in range(4):
        random = {**MANIFEST, "spec": {"model": {"name": "m", "eot": 20}}}
        store = Store.open(tmp_path / str(attempt), random)
        for success in (False, True, False):
            one = rows("2").set_column(SCHEMA.get_field_index("success"), "success", pa.array([success]))
            store.append(one)
        assert store.records()["success"].to_pylist() == [True]


def test_the_image_of_a_sample_with_several_records_is_that_of_the_record_that_counts(tmp_path):
    """The names of shards are random, so that of four attempts some read the record that counts first, others last."""
    random = {**MANIFEST, "spec": {"model": {"name": "m", "eot": 20}}}
    for attempt in range(4):
        store = Store.open(tmp_path / str(attempt), random)
        for success in (False, True, False):
            one = rows("2").set_column(SCHEMA.get_field_index("success"), "success", pa.array([success]))
            store.append(one, torch.full((1, 3, 2, 2), float(success)))
        assert store.images()["2"].unique().tolist() == [1.0]
    lacking = Store.open(tmp_path / "lacking", random)
    lacking.append(rows("2"))
    kept = rows("2").set_column(SCHEMA.get_field_index("success"), "success", pa.array([False]))
    lacking.append(kept, torch.zeros(1, 3, 2, 2))
    assert lacking.images()["2"].unique().tolist() == [0.0], "the only image there is"


def test_images_that_no_shard_mentions_are_not_read(tmp_path):
    store = Store.open(tmp_path / "run", MANIFEST)
    store.append(rows("1"))
    Store.open(tmp_path / "other", MANIFEST).append(rows("1"), torch.rand(1, 3, 4, 4))
    (images,) = (tmp_path / "other" / "shards").glob("*.safetensors")
    shutil.copy(images, only_shard(tmp_path / "run").with_suffix(".safetensors"))
    assert not store.images()
    assert not store.done(with_images=True)


def test_a_deleted_shard_is_known_until_its_samples_are_done_again(tmp_path):
    store = Store.open(tmp_path / "run", MANIFEST)
    store.append(rows("1"))
    first = only_shard(tmp_path / "run")
    for sample in ("2", "3"):
        store.append(rows(sample))
    assert Store.at(tmp_path / "run").missing() == ()
    first.unlink()
    resumed = Store.open(tmp_path / "run", MANIFEST)
    assert resumed.missing() == store.missing() == (first.stem,)
    resumed.append(rows("4"))
    resumed.note_redone(["1", "2", "3", "4"])
    assert Store.at(tmp_path / "run").missing() == (first.stem,), "its sample is not done again yet"
    resumed.append(rows("1"))
    resumed.note_redone(["1", "2", "3", "4"])
    assert Store.at(tmp_path / "run").missing() == ()
    assert sorted(resumed.records()["sample_id"].to_pylist()) == ["1", "2", "3", "4"]


def test_a_deleted_shard_whose_samples_stand_in_others_or_failed_is_made_good_without_new_records(tmp_path):
    store = Store.open(tmp_path / "run", MANIFEST)
    store.append(rows("1"))
    first = only_shard(tmp_path / "run")
    store.append(rows("1", "2"))
    first.unlink()
    store.note_failures({"3": "the model failed"})
    store.note_redone(["1", "2", "3"])
    assert Store.at(tmp_path / "run").missing() == ()
    before = sorted((tmp_path / "run" / "shards").iterdir())
    store.note_redone(["1", "2", "3"])
    assert sorted((tmp_path / "run" / "shards").iterdir()) == before, "nothing is missing, so nothing is written"


def test_two_writers_leave_two_branches_that_the_next_shard_joins(tmp_path):
    one, other = Store.open(tmp_path / "run", MANIFEST), Store.open(tmp_path / "run", MANIFEST)
    for sample in range(4):
        (one if sample % 2 else other).append(rows(str(sample)))
    last = Store.at(tmp_path / "run")
    last.append(rows("4"))
    bindings = {path.stem: read_binding(path) for path in (tmp_path / "run" / "shards").glob("*.parquet")}
    named = {name for binding in bindings.values() if binding for name in binding.previous}
    assert named < bindings.keys()
    assert len(bindings.keys() - named) == 1, "one shard, the last, is continued by none"


@pytest.mark.parametrize("software", [{"assay": "0.1.0"}, {"robustassay": "0.1.0"}])
def test_a_folder_of_another_schema_is_refused_with_the_version_that_wrote_it(tmp_path, software):
    (tmp_path / "run" / "shards").mkdir(parents=True)
    (tmp_path / "run" / "manifest.json").write_text(json.dumps({**MANIFEST, "software": software}))
    for read in (
        lambda: Store.open(tmp_path / "run", MANIFEST),
        lambda: Store.at(tmp_path / "run").records(),
        lambda: Store.at(tmp_path / "run").manifest(),
    ):
        with pytest.raises(WrongFolder, match=r"was written by version 0\.1\.0 .*schema 1.*reads schema 2"):
            read()


def test_records_of_the_schema_before_are_read_and_continued(tmp_path):
    """Version 2 had neither traces nor logits."""
    folder = tmp_path / "run"
    (folder / "shards").mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({**MANIFEST, "schema": 2}))
    sink = pa.BufferOutputStream()
    binding = Binding(MANIFEST["key"], schema=2)
    pq.write_table(rows("1").select(SCHEMA_2.names).replace_schema_metadata(binding.metadata()), sink)
    content = sink.getvalue().to_pybytes()
    (folder / "shards" / f"00000000-{hashlib.sha256(content).hexdigest()[:32]}.parquet").write_bytes(content)
    assert Store.at(folder).records()["trace_queries"].to_pylist() == [None]
    resumed = Store.open(folder, MANIFEST)
    traced = pa.array([[0, 3]], SCHEMA.field("trace_queries").type)
    resumed.append(rows("2").set_column(SCHEMA.get_field_index("trace_queries"), "trace_queries", traced))
    records = Store.at(folder).records().sort_by("sample_id")
    assert records.schema.equals(SCHEMA)
    assert records["trace_queries"].to_pylist() == [None, [0, 3]]
    assert resumed.missing() == ()


def test_records_that_would_fill_the_memory_are_refused_before_they_are_decoded(tmp_path, monkeypatch):
    """A text of a megabyte, two thousand times: ten kilobytes on the disk, and gigabytes when decoded."""
    store, n = Store.open(tmp_path / "run", MANIFEST), 2000
    same = pa.array(["x" * 1_000_000]).dictionary_encode().take(pa.array([0] * n))
    at = SCHEMA.get_field_index("problem")
    table = rows(*map(str, range(n))).set_column(at, "problem", same)
    metadata = Binding(MANIFEST["key"]).metadata()
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(metadata), sink, compression="zstd", store_schema=False)
    content = sink.getvalue().to_pybytes()
    assert len(content) < 100_000
    name = f"{'0' * 8}-{hashlib.sha256(content).hexdigest()[:32]}.parquet"
    (tmp_path / "run" / "shards" / name).write_bytes(content)
    monkeypatch.setattr(shards, "MOST_BYTES", 1 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(StoreFailed, match="more than 1024 MiB of memory"):
        store.records()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000, "KiB"


def test_a_pipe_in_the_place_of_a_shard_does_not_block(tmp_path):
    store = Store.open(tmp_path / "run", MANIFEST)
    os.mkfifo(tmp_path / "run" / "shards" / f"{'0' * 8}-{'0' * 32}.parquet")
    with pytest.raises(StoreFailed, match="not a regular file"):
        store.records()
