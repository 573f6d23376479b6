"""Submissions that attack whoever checks them: no name in a manifest runs code, reads a path or opens a socket."""

import contextlib
import json
import os
import shutil
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import robustassay as ra
from robustassay import data, models
from robustassay.cli import main
from robustassay.errors import AssayError, BadData, BadRequest
from robustassay.evaluation.model_ref import ModelRef
from robustassay.leaderboard import add, gather, records_file, whitelist
from robustassay.leaderboard.card import EntryCard
from robustassay.leaderboard.checking import CheckRequest, check_here
from robustassay.leaderboard.columns import HEADING
from robustassay.registry import describe
from tests.support.forging import forge


@pytest.fixture(scope="module")
def honest(tmp_path_factory) -> Path:
    out: Path = tmp_path_factory.mktemp("honest") / "run"
    ra.evaluate("resnet20-natural", "cifar10-1k", ra.LInf(8 / 255), "fgsm", limit=8, out=out)
    return out


def edited(run: Path, sent: Path, **parts: Any) -> Path:
    """Copy a run with another specification."""

    def change(manifest: dict[str, Any]) -> None:
        for part, value in parts.items():
            manifest["spec"][part] |= value

    return forge(run, sent, change)


@pytest.fixture
def trap(tmp_path, monkeypatch) -> Path:
    """Lay out a Python file that leaves a trace, and refuse every connection with a trace too."""
    trace: Path = tmp_path / "trace"
    (tmp_path / "evil.py").write_text(f"open({str(trace)!r}, 'w').close()\ndef make(): raise SystemExit\n")

    def refuse(*args: object, **_: object) -> None:
        trace.write_text(f"network: {args}")
        raise OSError("no network in this test")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.chdir(tmp_path)
    return trace


MODELS = [
    "ensemble:members=evil.py:make|resnet20-natural",
    "ensemble:members=resnet20-pgd+evil.py:make|resnet20-natural",
    "ensemble:members=./evil.py:make|resnet20-natural",
    "ensemble:average=logits,members=evil.py:make|resnet20-natural",
    "jpeg|ensemble:members=evil.py:make|resnet20-natural",
    "ensemble:members=hf:someone/something|resnet20-natural",
    "ensemble:members=timm:resnet18|resnet20-natural",
    "ensemble:members=background:evil.py:make|resnet20-natural",
    "naive|ensemble:members=evil.py:make|resnet20-natural",
    "http://127.0.0.1:9/?k=$HOME|resnet20-natural",
    "https://127.0.0.1:9/?k=$HOME",
    "http:adapter.toml|resnet20-natural",
    "evil.py:make",
    "evil.py:make|resnet20-natural",
    "jpeg|evil.py:make",
    "background:evil.py:make",
    "hf:someone/something",
    "onnx:/dev/zero",
    "timm:resnet18:/etc/passwd",
    "../resnet20-natural",
    "resnet20-natural\n|resnet20-natural",
    "naive|resnet20-natural",
    "jpeg:quality=1e999999999|resnet20-natural",
    "noise:sigma=1e999999999|resnet20-natural",
    "noise:copies=1000000000|resnet20-natural",
    "|".join(["jpeg"] * 5000) + "|resnet20-natural",
    "ensemble:members=" + "+".join(["resnet20-pgd"] * 5000) + "|resnet20-natural",
    "",
    "|",
    "x" * 100_000,
]


@pytest.mark.parametrize("name", MODELS, ids=lambda name: name[:60])
def test_no_model_name_of_a_submission_runs_code_or_opens_a_connection(honest, tmp_path, trap, name):
    sent = edited(honest, tmp_path / "sent", model={"name": name})
    checks = check_here(CheckRequest(str(sent)))
    assert not trap.exists(), trap.read_text()
    assert not all(check.passed for check in checks)
    with pytest.raises(BadRequest, match="--model"):
        whitelist.model(name)
    assert not trap.exists()


def test_a_model_that_the_user_names_is_run_for_the_same_submission(honest, tmp_path, trap):
    """The trap works: without it, the test above would prove nothing."""
    sent = edited(honest, tmp_path / "sent", model={"name": MODELS[0]})
    main(["leaderboard", "check", str(sent), "--model", MODELS[0]])
    assert trap.exists()


@pytest.mark.parametrize(
    "name",
    [
        "resnet20-natural",
        "jpeg:quality=50|resnet20-natural",
        "bit-depth:bits=4 | median|resnet20-natural",
        "naive|jpeg|resnet20-natural",
        "ensemble:members=resnet20-pgd+alexnet-natural|resnet20-natural",
        "feature-denoising:after=stage1+stage2,kind=median|resnet20-natural",
        "noise:sigma=0.1,copies=4|resnet20-natural",
    ],
)
def test_embedded_models_behind_defenses_are_rebuilt_as_they_were(name):
    assert ModelRef.of(whitelist.model(name), name).identity == ModelRef.of(name).identity


def test_every_zoo_model_and_every_defense_without_an_open_setting_is_allowed():
    for name in models.names():
        whitelist.check_model(name)
    for defense in ra.defenses.defense_names():
        if defense != "ensemble":
            whitelist.check_model(f"{defense}|resnet20-natural")


@pytest.mark.parametrize(
    "name",
    ["npz:/dev/zero", "folder:.", "folder:/", "cifar10:/dev/zero", "/dev/zero", ".", "evil.npz", "imagenet:/", "~",
     "fog:severity=3|npz:/dev/zero", "frame:size=100000|cifar10-1k", "fog:severity=9|cifar10-1k",
     "fog:severity=1|" * 500 + "cifar10-1k", "cifar10-1k\n", "nips2017:/", "", "$HOME"],
)  # fmt: skip
def test_no_dataset_name_of_a_submission_is_read_as_a_path(honest, tmp_path, trap, monkeypatch, name):
    sent = edited(honest, tmp_path / "sent", data={"name": name})
    monkeypatch.setattr(data, "load", lambda *_: pytest.fail("the dataset was loaded"))
    assert not all(check.passed for check in check_here(CheckRequest(str(sent))))
    with pytest.raises(BadRequest, match="--data"):
        whitelist.dataset(name)


def test_a_report_of_a_strangers_run_reads_no_path_either(honest, tmp_path, monkeypatch):
    sent = edited(honest, tmp_path / "sent", data={"name": "npz:/dev/zero"})
    real = data.load
    monkeypatch.setattr(data, "load", lambda name: real(name) if name == "cifar10-1k" else pytest.fail(name))
    assert main(["report", str(sent), "--out", str(tmp_path / "site")]) == 0


def test_datasets_by_name_are_allowed():
    assert whitelist.dataset("cifar10-1k").sha256 == data.load("cifar10-1k").sha256
    spoilt = "fog:severity=3|cifar10-1k"
    assert whitelist.dataset(spoilt).sha256 == data.load(spoilt).sha256


ATTACKS = [
    {"name": "transfer", "source": "evil.py:make"},
    {"name": "transfer", "source": "resnet20-pgd+evil.py:make"},
    {"name": "transfer", "source": "hf:someone/something"},
    {"name": "transfer", "source": "ensemble:members=evil.py:make|resnet20-natural"},
    {"name": "transfer", "source": "resnet20-pgd", "attack": "transfer:source=evil.py:make"},
    {"name": "transfer", "source": "resnet20-pgd", "attack": {"name": "transfer", "source": "evil.py:make"}},
    {"name": "transfer", "source": "resnet20-pgd", "attack": {"name": "pgd", "steps": 10**15}},
    {"name": "transfer", "source": ["evil.py:make"]},
    {"name": "prgf", "surrogate": "evil.py:make"},
    {"name": "prgf", "surrogate": "http://127.0.0.1:9/"},
    {"name": "pgd", "steps": 10**15},
    {"name": "pgd", "steps": "5"},
    {"name": "pgd", "steps": None},
    {"name": "pgd", "remedy": "smooth"},
    {"name": "evil.py:make"},
    {"name": "os.system"},
    {"name": ["pgd"]},
    {"name": "apgd", "loss": "/etc/passwd"},
    {},
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_no_attack_of_a_submission_names_a_model_outside_the_zoo(trap, attack):
    with pytest.raises(BadRequest, match="attack"):
        whitelist.attack(attack)
    assert not trap.exists()


@pytest.mark.parametrize("name", ra.attacks.attack_names())
def test_every_attack_with_its_default_settings_is_rebuilt(name):
    made = ra.attacks.create(name)
    assert whitelist.attack(json.loads(json.dumps(describe("attack", made)))) == made


def test_a_path_that_exists_is_never_taken_for_a_models_name(tmp_path, trap, capsys):
    """`check entries/*` hands over whatever names somebody packed into an archive."""
    (tmp_path / "evil.py:make").mkdir()
    for name in ("evil.py:make", "./evil.py:make"):
        assert main(["leaderboard", "check", name]) == 2
        assert "holds no submission" in capsys.readouterr().err
    os.rmdir("evil.py:make")
    (tmp_path / "evil.py:make").symlink_to("nowhere")
    assert main(["leaderboard", "check", "evil.py:make"]) == 2
    assert not trap.exists()


# ---------------------------------------------------------------- one bad entry beside a good one


def put(path: tuple[str, ...], value: object) -> Callable[[dict[str, Any]], None]:
    def change(manifest: dict[str, Any]) -> None:
        inside = manifest
        for key in path[:-1]:
            inside = inside[key]
        inside[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        put(("hardware",), None),
        put(("hardware",), []),
        put(("flags",), {"a": 7}),
        put(("flags",), "none"),
        put(("stages",), 3),
        put(("started",), None),
        put(("title",), 7),
        put(("confirms",), "abc"),
        put(("spec", "model", "name"), "x" * 5000),
        put(("spec", "model", "name"), ""),
        put(("spec", "model", "name"), None),
        put(("spec", "model", "weights"), ["a"]),
        put(("spec", "data", "name"), 3),
        put(("spec", "threat", "eps"), "wide"),
        put(("spec", "seed"), "zero"),
        put(("spec", "threat", "eps"), -1),
        put(("spec", "threat", "norm"), {}),
        put(("spec", "threat", "query_budget"), "many"),
        put(("spec", "attack", "name"), []),
    ],
)
def test_one_bad_entry_is_listed_with_its_reason_and_the_others_are_ranked(honest, tmp_path, change):
    forge(honest, tmp_path / "runs" / "bad", change)
    shutil.copytree(honest, tmp_path / "runs" / "good")
    found = gather([tmp_path / "runs"])
    assert [entry.card.name for entry in found.entries] == ["resnet20-natural"]
    assert len(found.problems) == 1
    assert main(["leaderboard", "build", str(tmp_path / "runs"), "--out", str(tmp_path / "board"), "--quiet"]) == 0


# ---------------------------------------------------------------- what is written for people


def test_cells_are_no_formulas_and_markdown_holds_no_links_or_images(honest, tmp_path):
    card = {"name": "+cmd", "venue": "=1+1", "architecture": "@x", "authors": "\\[a](javascript:alert(1))"}
    card |= {"title": "=HYPERLINK(1)"}
    for link in ("javascript:alert(1)", " JavaScript:alert(1)", "data:text/html,x"):
        with pytest.raises(BadData, match="link"):
            EntryCard.from_json(json.dumps(card | {"link": link}))
    records_file.pack(honest, tmp_path / "entry")
    (tmp_path / "entry" / "card.json").write_text(json.dumps(card | {"venue": "![x](http://127.0.0.1/x.png)"}))
    assert main(["leaderboard", "build", str(tmp_path / "entry"), "--out", str(tmp_path / "board"), "--quiet"]) == 0
    table = pd.read_csv(tmp_path / "board" / "board.csv", dtype=str, keep_default_na=False)
    assert not [cell for cell in table.to_numpy().ravel() if cell[:1] in tuple("=+-@")]
    assert table["id"].tolist() == ["'+cmd"]
    text = (tmp_path / "board" / "board.md").read_text()
    assert "](" in text, "the text itself is kept"
    assert "[" not in text.replace("&#91;", "")


def ends(call: Callable[[], object]) -> bool:
    """Say whether a call comes back within seconds, with whatever outcome."""

    def run() -> None:
        with contextlib.suppress(AssayError):
            call()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(10)
    return not thread.is_alive()


@pytest.mark.parametrize("place", ["0.parquet", "shards/0.parquet"])
def test_a_pipe_among_the_files_of_a_submission_does_not_block_a_board(honest, tmp_path, place):
    sent = forge(honest, tmp_path / "all" / "sent")
    os.mkfifo(sent / place)
    assert ends(lambda: gather([tmp_path / "all", honest]))


def test_a_huge_card_is_refused_before_it_is_read(tmp_path):
    with (tmp_path / "card.json").open("wb") as card:
        card.truncate(100 << 30)
    with pytest.raises(BadData, match="MiB"):
        EntryCard.read(tmp_path / "card.json")


def test_adding_records_of_a_stranger_copies_no_file_that_they_link_to(honest, tmp_path):
    packed = records_file.pack(honest, tmp_path / "sent")
    (tmp_path / "private").write_text("my key")
    packed.with_suffix(".safetensors").unlink()
    packed.with_suffix(".safetensors").symlink_to(tmp_path / "private")
    with pytest.raises(BadData, match="images"):
        add(EntryCard(name="m"), [packed], tmp_path / "board")
    assert not any(path.read_text(errors="replace") == "my key" for path in (tmp_path / "board").rglob("*.s*"))


def test_no_text_of_a_stranger_reaches_the_terminal_with_escape_sequences(honest, tmp_path, capsys):
    sent = forge(honest, tmp_path / "sent", put(("title",), "\x1b[2J\x1b]0;gone\x07 \u202e passed\r\n all"))
    main(["leaderboard", "check", str(sent), "--reattack", "0"])
    main(["leaderboard", "build", str(sent), "-o", str(tmp_path / "out")])
    printed = capsys.readouterr()
    found = {one for one in printed.out + printed.err if not one.isprintable()}
    assert found <= {"\n"}


@pytest.mark.parametrize("place", [".", "sub"])
def test_a_check_fails_where_a_board_would_count_more_runs_than_it_sees(honest, tmp_path, place):
    folder = add(EntryCard(name="m"), [honest], tmp_path / "board").folder
    hidden = forge(honest, tmp_path / "hidden")
    shutil.copytree(hidden, folder / place, dirs_exist_ok=True)
    checks = check_here(CheckRequest(str(folder), reattack=0))
    assert [check.passed for check in checks if "A board would count" in check.text] == [False]


def test_no_text_of_a_stranger_adds_cells_to_a_row(honest, tmp_path):
    records_file.pack(honest, tmp_path / "entry")
    card = {"name": "m", "architecture": "a\\| ICLR \\| alice (SHA256:abc) | x"}
    (tmp_path / "entry" / "card.json").write_text(json.dumps(card))
    assert main(["leaderboard", "build", str(tmp_path / "entry"), "--out", str(tmp_path / "board"), "--quiet"]) == 0
    (row,) = [line for line in (tmp_path / "board" / "board.md").read_text().splitlines() if "alice" in line]
    assert row.count("|") == len(HEADING) + 1
