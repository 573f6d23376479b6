"""Input made to hurt: nothing in a file is run, nothing leads out of its folder, and only errors of ours come out."""

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save
from tools.lock import read_pins

import robustassay as ra
from robustassay import data, models
from robustassay.data.corruptions.corrupted_files import read_corrupted
from robustassay.data.corruptions.grid import CorruptionSpec
from robustassay.errors import AssayError, BadData, BadRequest, BadWeights
from robustassay.leaderboard import model_info, records_file
from robustassay.leaderboard.card import EntryCard
from robustassay.models import zoo
from robustassay.models.sources import cache, hub
from robustassay.models.weights import read_weights
from robustassay.remote import Adapter
from robustassay.shards import BINDING
from robustassay.threat import LabelList
from robustassay.train import cifar10_sheets
from robustassay.train.checkpoint import Checkpoint
from tests.support.forging import forge

EXAMPLES = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


# ---------------------------------------------------------------- every reader of files


@dataclass(frozen=True)
class Reader:
    """A file that assay reads: how to make a sound one, what it is called, and who reads it."""

    place: str
    make: Callable[[Path], bytes]
    read: Callable[[Path], object]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10)).eval()
    out: Path = tmp_path_factory.mktemp("sound") / "run"
    ra.evaluate(net, "cifar10-1k", ra.LInf(1 / 255), "fgsm", limit=8, out=out)
    return out


def shard(run: Path, suffix: str) -> bytes:
    return next((run / "shards").glob(f"*{suffix}")).read_bytes()


def of_run(path: Path) -> object:
    """Read a run of which one file was exchanged, under the names and hashes that a forger would give its files."""
    folder = path.parent if path.name == "manifest.json" else path.parent.parent
    records, images = folder / "shards" / "old.parquet", folder / "shards" / "old.safetensors"
    content = records.read_bytes()
    if path == images:
        table = pq.read_table(records)
        binding = json.loads(table.schema.metadata[BINDING])
        binding["images"] = hashlib.sha256(images.read_bytes()).hexdigest()
        buffer = io.BytesIO()
        pq.write_table(table.replace_schema_metadata({BINDING: json.dumps(binding)}), buffer)
        content = buffer.getvalue()
    name = f"{'0' * 8}-{hashlib.sha256(content).hexdigest()[:32]}"
    forged = [(folder / "shards" / f"{name}.parquet", content), (folder / "shards" / f"{name}.safetensors", None)]
    records.rename(records.with_name("records"))
    for file, text in forged:
        file.write_bytes(images.read_bytes() if text is None else text)
    images.rename(images.with_name("images"))
    try:
        return ra.Result.load(folder)
    finally:
        for file, _ in forged:
            file.unlink()
        records.with_name("records").rename(records)
        images.with_name("images").rename(images)


def packed(run: Path, suffix: str) -> bytes:
    folder = run.parent / "packed"
    if not folder.exists():
        records_file.pack(run, folder)
    return next(folder.glob(f"*{suffix}")).read_bytes()


def card_text(run: Path) -> bytes:
    return models.card("resnet20-natural").to_json().encode()


def arrays(**named: Any) -> Callable[[Path], bytes]:
    def make(run: Path) -> bytes:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **named)
        return buffer.getvalue()

    return make


def array(values: Any) -> Callable[[Path], bytes]:
    def make(run: Path) -> bytes:
        buffer = io.BytesIO()
        np.save(buffer, values)
        return buffer.getvalue()

    return make


def torch_file(run: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save({"state_dict": {"weight": torch.ones(2, 3)}}, buffer)
    return buffer.getvalue()


def sheet(run: Path) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((2, 1024, 3), np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def of_sheets(path: Path) -> object:
    """Put sound files in the places of the others."""
    for name in (*cifar10_sheets.TRAIN_SHEETS, *cifar10_sheets.TEST_SHEETS):
        if name != path.name:
            (path.parent / name).write_bytes(sheet(path))
    for name, count in ((cifar10_sheets.TRAIN_LABELS, 10), (cifar10_sheets.TEST_LABELS, 2)):
        if name != path.name:
            (path.parent / name).write_text(json.dumps([0, 1] * (count // 2)))
    return cifar10_sheets.read(path.parent)


def of_cell(path: Path) -> object:
    other = "labels.npy" if path.name != "labels.npy" else "fog.npy"
    values = np.zeros(5, np.int64) if other == "labels.npy" else np.zeros((5, 8, 8, 3), np.uint8)
    np.save(path.parent / other, values)
    return read_corrupted(path.parent, CorruptionSpec("fog", 2))


TRAINING = {"x": np.zeros((4, 3, 8, 8), np.uint8), "y": np.arange(4)}
INFO = {"name": "a", "dataset": "cifar10", "eps": "8/255", "clean_acc": "90", "autoattack_acc": "50", "venue": "x 2020"}
ADAPTER = """
url = "https://example.org/classify"
[request]
body = "json"
json = '{"picture": "{image}"}'
headers = { "X-Key" = "$KEY" }
[response]
labels = "results.*.name"
[labels]
map = { cat = 3 }
[limits]
tries = 2
"""

READERS = {
    "safetensors": Reader("w.safetensors", lambda run: save({"w": torch.ones(2, 3)}), read_weights),
    "torch": Reader("w.pt", torch_file, read_weights),
    "model card": Reader("resnet20-natural.json", card_text, lambda path: zoo.card(path.stem, path.parent)),
    "zoo": Reader("resnet20-natural.json", card_text, lambda path: zoo.load(path.stem, folder=path.parent)),
    "manifest": Reader("run/manifest.json", lambda run: (run / "manifest.json").read_bytes(), of_run),
    "shard": Reader("run/shards/old.parquet", lambda run: shard(run, ".parquet"), of_run),
    "images": Reader("run/shards/old.safetensors", lambda run: shard(run, ".safetensors"), of_run),
    "failures": Reader("run/failures/a.json", lambda run: b'{"s1": "it broke"}', of_run),
    "records file": Reader("r.parquet", lambda run: packed(run, ".parquet"), records_file.read),
    "packed images": Reader(
        "r.safetensors",
        lambda run: packed(run, ".safetensors"),
        lambda path: records_file.images(path.with_suffix(".parquet")),
    ),
    "entry card": Reader(
        "card.json",
        lambda run: EntryCard(name="a", reported=0.5, venue="ICLR 2020").to_json().encode(),
        lambda path: EntryCard.from_json(path.read_bytes().decode("utf-8", "replace")),
    ),
    "model info": Reader(
        "cifar10/Linf/a.json", lambda run: json.dumps(INFO).encode(), lambda path: model_info.read_folder(path.parent)
    ),
    "targets": Reader("t.csv", lambda run: b"a,3\nb,4\n", lambda path: LabelList.from_file(path, ["a", "b"])),
    "adapter": Reader("a.toml", lambda run: ADAPTER.encode(), Adapter.read),
    "training npz": Reader(
        "t.npz",
        arrays(x_train=TRAINING["x"], y_train=TRAINING["y"], x_test=TRAINING["x"], y_test=TRAINING["y"]),
        cifar10_sheets.read,
    ),
    "training sheet": Reader("sheets/data_batch_2.png", sheet, of_sheets),
    "training labels": Reader(f"sheets/{cifar10_sheets.TEST_LABELS}", lambda run: b"[0, 1]", of_sheets),
    "checkpoint": Reader(
        "c.safetensors",
        lambda run: save(
            {"w": torch.ones(2)}, {"training": json.dumps({"identity": {}, "epochs_done": 1, "seconds": 2.0})}
        ),
        lambda path: Checkpoint.read(path, {}),
    ),
    "corrupted images": Reader("c/fog.npy", array(np.zeros((5, 8, 8, 3), np.uint8)), of_cell),
    "corrupted labels": Reader("c/labels.npy", array(np.zeros(5, np.int64)), of_cell),
    "hub config": Reader(
        "config.json",
        lambda run: b'{"model_type": "vit", "size": {"shortest_edge": 8}}',
        lambda path: hub.Repository.open(str(path.parent)).read("config.json"),
    ),
    "preprocessing": Reader(
        "config.json",
        lambda run: b'{"size": {"height": 8, "width": 8}, "crop_pct": 0.9, "resample": 2, "image_mean": [0, 0, 0]}',
        lambda path: hub.transformers_preparation(hub.Repository.open(str(path.parent)).read("config.json")),
    ),
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def damaged(draw: st.DrawFn, sound: bytes) -> bytes:
    """Cut a file, flip some of its bits (most of them in its head), or put another value at one of its JSON keys."""
    try:
        tree = json.loads(sound)
    except ValueError:
        tree = None
    if isinstance(tree, dict) and tree and draw(st.booleans()):
        tree[draw(st.sampled_from(sorted(tree)))] = draw(JSON)
        return json.dumps(tree).encode("utf-8", "surrogatepass")
    content = bytearray(sound)
    places = st.integers(0, min(len(sound), 200) - 1) | st.integers(0, len(sound) - 1)
    for place, bit in draw(st.lists(st.tuples(places, st.integers(0, 7)), min_size=1, max_size=6)):
        content[place] ^= 1 << bit
    return bytes(content[: draw(st.just(len(sound)) | st.integers(0, len(sound)))])


@pytest.mark.parametrize("name", READERS)
def test_any_bytes_are_read_or_refused_by_an_error_of_ours(run, tmp_path, monkeypatch, name):
    monkeypatch.setenv("ASSAY_OFFLINE", "1")
    reader = READERS[name]
    path = tmp_path / reader.place
    path.parent.mkdir(parents=True, exist_ok=True)
    if name in ("manifest", "shard", "images", "failures"):
        shutil.copytree(run, tmp_path / "run", dirs_exist_ok=True)
        for old in (tmp_path / "run" / "shards").iterdir():
            old.rename(old.with_name(f"old{old.suffix}"))
    if name == "packed images":
        path.with_suffix(".parquet").write_bytes(packed(run, ".parquet"))
    if name == "zoo":
        shutil.copy(zoo.EMBEDDED / "resnet20-natural.safetensors", tmp_path)
    sound = reader.make(run)
    path.write_bytes(sound)
    reader.read(path)

    @EXAMPLES
    @given(st.binary(max_size=100) | JSON.map(lambda tree: json.dumps(tree).encode()) | damaged(sound))
    def check(content: bytes) -> None:
        path.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with contextlib.suppress(AssayError):
                reader.read(path)

    check()
    for depth in (500, 200_000):
        path.write_bytes(b"[" * depth)
        with pytest.raises(AssayError) if name != "model info" else contextlib.nullcontext():
            reader.read(path)


# ---------------------------------------------------------------- code in files


class Shell:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return os.system, (f"touch '{self.trace}'",)


PICKLED: dict[str, tuple[str, Callable[[Path], object]]] = {
    "weights": ("w.pt", read_weights),
    "old weights": ("w.pth", read_weights),
    "npz": ("a.npz", lambda path: data.load(path)),
    "cifar10": ("test_batch", lambda path: data.load(f"cifar10:{path}")),
    "training": ("t.npz", cifar10_sheets.read),
    "corruptions": ("fog.npy", of_cell),
}


@pytest.mark.parametrize("kind", PICKLED)
def test_no_pickle_is_run_wherever_it_stands(tmp_path, kind):
    name, read = PICKLED[kind]
    bomb, trace, path = Shell(tmp_path / "trace"), tmp_path / "trace", tmp_path / name
    pickle.loads(pickle.dumps(bomb))
    assert trace.exists(), "the bomb must work, or refusing it proves nothing"
    trace.unlink()
    objects = np.array([bomb], dtype=object)
    if kind == "weights":
        torch.save({"w": bomb}, path)
    elif kind in ("old weights", "cifar10"):
        path.write_bytes(pickle.dumps({"data": bomb, "labels": [0]}, 2))
    elif name.endswith(".npy"):
        np.save(path, objects, allow_pickle=True)
    else:
        np.savez(path, x=objects, y=objects, x_train=objects, y_train=objects, x_test=objects, y_test=objects)
    with pytest.raises((BadData, BadWeights)):
        read(path)
    assert not trace.exists()


def test_a_model_that_somebody_sent_is_not_run_unless_the_user_names_it(run, tmp_path, capsys):
    """A records file may name any model; that of a Python file would be code."""
    from robustassay.cli import main

    trace, code = tmp_path / "trace", tmp_path / "evil.py"
    code.write_text(f"open({str(trace)!r}, 'w').close()\ndef make(): raise SystemExit\n")
    sent = forge(run, tmp_path / "sent", lambda manifest: manifest["spec"]["model"].update(name=f"{code}:make"))
    main(["leaderboard", "check", str(sent)])
    assert "unverified" in capsys.readouterr().out
    assert not trace.exists()


# ---------------------------------------------------------------- bombs


def zip_bomb(path: Path, member: str, head: bytes, megabytes: int) -> None:
    """Write an archive with a member that unpacks to a thousand times its size."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(member, "w", force_zip64=True) as file,
    ):
        file.write(head)
        for _ in range(megabytes):
            file.write(bytes(1 << 20))


def npy_head(*shape: int) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "member", "read"),
    [
        ("a.npz", "x.npy", data.load),
        ("t.npz", "x_train.npy", cifar10_sheets.read),
        ("w.pt", "archive/data/0", read_weights),
    ],
)
def test_an_archive_that_would_fill_the_memory_is_refused_unopened(tmp_path, monkeypatch, name, member, read):
    zip_bomb(tmp_path / name, member, npy_head(64 << 20), 64)
    assert (tmp_path / name).stat().st_size < 1 << 20
    monkeypatch.setattr("robustassay.data.safe_files.max_unpacked_bytes", lambda: 32 << 20)
    with pytest.raises(AssayError, match=r"KiB to 64 MiB, more than this machine holds"):
        read(tmp_path / name)


def test_half_the_memory_is_what_an_archive_may_hold():
    from robustassay.data.safe_files import max_unpacked_bytes

    assert 1 << 28 < max_unpacked_bytes() < 1 << 50


def test_a_header_that_lies_about_its_size_takes_no_memory(tmp_path):
    """A terabyte is promised and a few bytes are there."""
    zip_bomb(tmp_path / "a.npz", "x.npy", npy_head(1 << 40), 0)
    with pytest.raises(BadData, match=r"cannot be read as \.npz"):
        data.load(tmp_path / "a.npz")


def test_a_picture_of_millions_of_pixels_is_refused_by_its_head(tmp_path):
    """Pillow's own limit, with a real picture: 20,000 x 20,000 pixels in a few hundred kilobytes."""
    (tmp_path / "set" / "a").mkdir(parents=True)
    Image.new("1", (20_000, 20_000)).save(tmp_path / "set" / "a" / "x.png")
    assert (tmp_path / "set" / "a" / "x.png").stat().st_size < 1 << 20
    with pytest.raises(BadData, match="too many pixels"):
        data.load(tmp_path / "set")


def test_numbers_that_take_for_ever_are_refused_at_once():
    for text in ("1e999999999", "1/1e999999999", "1e-999999999", "1/1e-999999999"):
        with pytest.raises(BadRequest, match="eps must be"):
            ra.LInf(text)  # type: ignore[arg-type]


def test_a_card_cannot_ask_for_a_network_without_end(tmp_path):
    shutil.copy(zoo.EMBEDDED / "resnet20-natural.safetensors", tmp_path)
    card = models.card("resnet20-natural")
    for shape in ({"depth": 6 * 10**9 + 2}, {"depth": 20, "width": 10**9}):
        greedy = dataclasses.replace(card, architecture={"name": "resnet", **shape})
        (tmp_path / "resnet20-natural.json").write_text(greedy.to_json())
        with pytest.raises(BadWeights, match="which no network has"):
            zoo.load("resnet20-natural", folder=tmp_path)


# ---------------------------------------------------------------- paths that lead out, hashes that lie, markup


def test_nothing_a_publisher_says_leads_out_of_the_download_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_download", lambda url, part, resumable: part.write_bytes(b"{}"))
    for place in ("../outside", "hub/../../outside", str(tmp_path / "outside")):
        with pytest.raises(BadRequest, match="not a valid download path"):
            cache.fetch("https://example.org/x", place)
    told = {"sha": "../../../..", "siblings": [{"rfilename": "config.json"}]}
    monkeypatch.setattr(hub, "fetch_json", lambda url, place: told)
    with pytest.raises(BadRequest, match="not a valid download path"):
        hub.Repository.open("a/b").read("config.json")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["..", ".", "../x", "a/b", "", ".hidden", "a b", "a\n"])
def test_an_entry_is_filed_nowhere_but_below_its_board(name):
    with pytest.raises(BadData, match="name"):
        EntryCard.from_json(json.dumps({"name": name}))


def test_a_board_keeps_to_its_folder_and_writes_markup_as_text(run, tmp_path):
    """Every name in a records file is its author's: dataset, norm, hardware and flags end up in files and tables."""
    from robustassay.cli import main

    evil = "<script>alert(1)</script>\n# heading"

    def change(manifest: dict[str, Any]) -> None:
        manifest["spec"]["data"]["name"] = ".."
        manifest["spec"]["threat"]["norm"] = "../../../escaped"
        manifest["hardware"]["device"] = evil
        manifest["flags"] = {"x": evil}

    sent = forge(run, tmp_path / "sent" / "run", change)
    assert main(["leaderboard", "build", str(sent), "--out", str(tmp_path / "a" / "b" / "board")]) == 0
    written = [path for path in tmp_path.rglob("*") if path.is_file() and "sent" not in path.parts]
    assert len(written) >= 4
    assert all(path.is_relative_to(tmp_path / "a" / "b" / "board") for path in written)
    text = (tmp_path / "a" / "b" / "board" / "board.md").read_text()
    assert "<script>" not in text
    assert "&lt;script>" in text
    assert "\n# heading" not in text


def test_a_card_that_lies_about_its_hash_loads_nothing(tmp_path):
    for name in ("resnet20-natural", "vgg11-natural"):
        shutil.copy(zoo.EMBEDDED / f"{name}.safetensors", tmp_path)
    card = models.card("resnet20-natural")
    other = models.card("vgg11-natural")
    for lie in ("", "0" * 64, other.sha256, card.sha256.upper(), card.sha256[:12]):
        (tmp_path / "resnet20-natural.json").write_text(dataclasses.replace(card, sha256=lie).to_json())
        with pytest.raises(BadWeights, match="not those of its card"):
            zoo.load("resnet20-natural", folder=tmp_path)
    (tmp_path / "resnet20-natural.json").write_text(card.to_json())
    zoo.load("resnet20-natural", folder=tmp_path)


def test_markup_in_names_is_printed_as_it_is(tmp_path, capsys):
    """Square brackets are colours to the terminal library, and would vanish from a table."""
    from robustassay.cli.terminal import Terminal

    Terminal().listing(["model"], [["[red]hello[/red] <b>x</b>"]])
    assert "[red]hello[/red] <b>x</b>" in capsys.readouterr().out


def test_members_of_an_archive_are_never_files(tmp_path, monkeypatch):
    """Reading unpacks to memory alone, whatever a member is called."""
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("a.npz", "w") as archive:
        for name in ("../escaped.npy", "/tmp/escaped-by-assay.npy", "x.npy"):
            archive.writestr(name, npy_head(1) + b"\0")
    with pytest.raises(BadData, match="needs images x and labels y"):
        data.load("a.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]
    assert not Path("/tmp/escaped-by-assay.npy").exists()


# ---------------------------------------------------------------- no word to anybody

SILENT = """
import socket, sys

def refuse(*args, **kwargs):
    raise AssertionError(f"the network was used: {args}")

for name in ("connect", "connect_ex", "sendto", "bind"):
    setattr(socket.socket, name, refuse)
socket.getaddrinfo = socket.create_connection = refuse
import robustassay as ra, torch
from robustassay.cli import main
from torch import nn

net = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)).eval()
ra.evaluate(net, "cifar10-1k", ra.LInf(1 / 255), ["fgsm", "square:steps=5"], limit=8, out=sys.argv[1])
assert main(["list", "models"]) == 0
request = ["eval", "resnet20-natural", "--attack", "fgsm", "--limit", "8", "--self-test", "1"]
assert main([*request, "--out", sys.argv[1] + "2"]) == 0
assert main(["report", sys.argv[1], "--out", sys.argv[1] + "3"]) == 0
"""


def test_nothing_is_sent_on_import_evaluation_or_report(tmp_path):
    done = subprocess.run([sys.executable, "-c", SILENT, str(tmp_path / "run")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    refused = subprocess.run(
        [
            sys.executable,
            "-c",
            SILENT.replace(
                "import robustassay as ra,", "socket.create_connection(('localhost', 1))\nimport robustassay as ra,"
            ),
        ],
        capture_output=True,
        text=True,
    )
    assert "the network was used" in refused.stderr, "the guard must work, or passing it proves nothing"


def test_every_pin_of_the_set_up_has_hashes():
    """A version that is raised without `python -m tools.lock` would be installed unchecked, or not at all."""
    root = Path(__file__).parents[2]
    pins = read_pins(root / "constraints.txt") | read_pins(root / "tests/oracles.txt")
    pins.pop("torch")
    locked: dict[str, str] = {}
    for file in ("run", "test", "oracles"):
        lock = (root / f"locks/{file}.txt").read_text()
        found = re.findall(r"^(\S+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", lock, re.MULTILINE)
        locked |= {name: version for name, version, _ in found}
    assert locked == pins
