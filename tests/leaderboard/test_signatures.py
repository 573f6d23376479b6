"""Signatures: any change of a signed submission is noticed, and unknown keys are called unknown."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import robustassay as ra
from robustassay.cli import main
from robustassay.errors import BadData, BadRequest
from robustassay.leaderboard import add, boards, gather, signature, write
from robustassay.leaderboard.card import CARD, EntryCard
from robustassay.leaderboard.signature import SIGNATURE, check_signature, sign, signed_by, verify
from robustassay.shards import read_binding


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("keys")
    for name in ("alice", "mallory"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)]
        subprocess.run(command, check=True)
    return folder


@pytest.fixture(scope="module")
def honest(tmp_path_factory) -> Path:
    out: Path = tmp_path_factory.mktemp("honest") / "run"
    how = ra.Execution(wave_size=4)
    ra.evaluate("resnet20-natural", "cifar10-1k", ra.LInf(8 / 255), "fgsm", limit=12, out=out, execution=how)
    return out


@pytest.fixture
def sent(honest, keys, tmp_path) -> Path:
    folder = add(EntryCard(name="m", title="A model"), [honest], tmp_path / "board").folder
    sign(folder, keys / "alice")
    return folder


def fingerprint(key: Path) -> str:
    return subprocess.run(["ssh-keygen", "-l", "-f", str(key)], capture_output=True, text=True).stdout.split()[1]


def known(keys: Path, tmp_path: Path, *names: str) -> Path:
    path = tmp_path / "signers"
    path.write_text("".join(f"{name} {(keys / name).with_suffix('.pub').read_text()}" for name in names))
    return path


def test_a_signer_is_known_by_name_or_called_unknown(sent, keys, tmp_path):
    alice = fingerprint(keys / "alice")
    assert signed_by(sent) == f"unknown key {alice}"
    assert signed_by(sent, known(keys, tmp_path, "mallory")) == f"unknown key {alice}"
    assert signed_by(sent, known(keys, tmp_path, "mallory", "alice")) == f"alice ({alice})"
    assert check_signature(sent).passed is None
    assert check_signature(sent, known(keys, tmp_path, "alice")).passed is True
    with pytest.raises(BadRequest, match="no list of signers"):
        signed_by(sent, tmp_path / "nowhere")


def edit_card(folder: Path) -> None:
    held = json.loads((folder / CARD).read_text())
    (folder / CARD).write_text(json.dumps(held | {"title": "Another model"}))


def swap_a_byte(folder: Path) -> None:
    (path,) = folder.glob("*.parquet")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def add_a_file(folder: Path) -> None:
    (path,) = folder.glob("*.parquet")
    shutil.copy(path, folder / "0.parquet")


def delete_a_file(folder: Path) -> None:
    (path,) = folder.glob("*.parquet")
    path.unlink()


def break_the_signature(folder: Path) -> None:
    (folder / SIGNATURE).write_text("-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n")


def link_to_zeros(folder: Path) -> None:
    (folder / SIGNATURE).unlink()
    (folder / SIGNATURE).symlink_to("/dev/zero")


def add_a_run(folder: Path) -> None:
    """A board would count this run as one of the submission."""
    (folder / "shards").mkdir()
    (folder / "manifest.json").write_text("{}")


def add_endless_records(folder: Path) -> None:
    (folder / "0.parquet").symlink_to("/dev/zero")


def add_a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "0.parquet")


@pytest.mark.parametrize(
    "change",
    [
        edit_card,
        swap_a_byte,
        add_a_file,
        delete_a_file,
        break_the_signature,
        link_to_zeros,
        add_a_run,
        add_endless_records,
        add_a_pipe,
    ],
)
def test_any_change_makes_a_signature_wrong(sent, change):
    verify(sent)
    change(sent)
    assert check_signature(sent).passed is False
    with pytest.raises(BadData, match=r"does not fit|cannot be read"):
        signed_by(sent)


def test_a_signature_for_something_else_is_none_for_a_submission(sent, keys):
    command = ["ssh-keygen", "-Y", "sign", "-n", "git", "-f", str(keys / "alice")]
    made = subprocess.run(command, input=signature.statement(sent), capture_output=True, check=True)
    (sent / SIGNATURE).write_bytes(made.stdout)
    assert check_signature(sent).passed is False


def test_the_last_shard_of_a_signed_run_cannot_be_deleted_unnoticed(honest, keys, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(honest, run)
    assert check_signature(run).text == "It is not signed."
    sign(run, keys / "alice")
    verify(run)
    bindings = {path: read_binding(path) for path in (run / "shards").glob("*.parquet")}
    continued = {name for binding in bindings.values() if binding for name in binding.previous}
    (last,) = [path for path in bindings if path.stem not in continued]
    last.unlink()
    assert check_signature(run).passed is False


def test_a_failure_of_a_signed_run_cannot_be_deleted_unnoticed(honest, keys, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(honest, run)
    (run / "failures").mkdir()
    (run / "failures" / "0.json").write_text('{"a sample": "its error"}')
    sign(run, keys / "alice")
    (run / "failures" / "0.json").unlink()
    assert check_signature(run).passed is False


def test_a_run_beside_a_signed_card_is_not_shown_as_signed(sent, honest, keys, tmp_path):
    shutil.copy(honest / "manifest.json", sent)
    shutil.copytree(honest / "shards", sent / "shards")
    with pytest.raises(BadRequest, match="does not fit the files beside it"):
        gather([sent], signers=known(keys, tmp_path, "alice"))


def test_the_board_shows_who_signed_and_leaves_out_what_does_not_fit(sent, honest, keys, tmp_path):
    made = boards(gather([sent], signers=known(keys, tmp_path, "alice")).entries)
    write(made, tmp_path / "out")
    alice = f"alice ({fingerprint(keys / 'alice')})"
    assert alice in (tmp_path / "out" / "board.md").read_text()
    assert alice in (tmp_path / "out" / "board.csv").read_text()
    assert json.loads((tmp_path / "out" / "board.json").read_text())["boards"][0]["entries"][0]["signed_by"] == alice
    unsigned = gather([honest])
    assert unsigned.entries[0].signed == "not signed"
    edit_card(sent)
    (problem,) = gather([sent, honest]).problems
    assert "does not fit the files beside it" in problem


def test_the_command_signs_and_says_what_is_wrong(honest, keys, tmp_path, capsys, monkeypatch):
    folder = add(EntryCard(name="m"), [honest], tmp_path / "board").folder
    assert main(["leaderboard", "sign", str(folder), "--key", str(keys / "alice")]) == 0
    assert fingerprint(keys / "alice") in " ".join(capsys.readouterr().err.split())
    assert main(["leaderboard", "sign", str(folder), "--key", str(tmp_path / "no-key")]) == 2
    assert "name an SSH key" in capsys.readouterr().err
    assert main(["leaderboard", "sign", str(tmp_path), "--key", str(keys / "alice")]) == 2
    assert "holds no submission and no run" in capsys.readouterr().err
    monkeypatch.setenv("PATH", "")
    check = check_signature(folder)
    assert check.passed is None
    assert "install OpenSSH" in check.text
    assert signed_by(folder) == "signature not verified"
