"""A submission is checked in a process without network, secrets and unlimited time or memory; its answers are data."""

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import robustassay as ra
from robustassay.analysis.rates import Rate
from robustassay.cli import main
from robustassay.errors import BadRequest, EvaluationFailed
from robustassay.evaluation.progress import NoProgress
from robustassay.leaderboard import limited_check
from robustassay.leaderboard.checking import CheckRequest
from robustassay.leaderboard.limited_check import Limits, check_limited
from tests.support.processes import alive_after

LINUX = sys.platform.startswith("linux")


@pytest.fixture(scope="module")
def honest(tmp_path_factory) -> Path:
    out: Path = tmp_path_factory.mktemp("honest") / "run"
    ra.evaluate("resnet20-natural", "cifar10-1k", ra.LInf(2 / 255), "pgd:steps=3", limit=8, out=out)
    return out


class Seen:
    def __init__(self) -> None:
        self.events: list[str] = []

    def start(self, title: str, samples: int, finished: int) -> None:
        self.events.append("start")

    def update(self, finished: float, robust: Rate) -> None:
        self.events.append("update")

    def finish(self) -> None:
        self.events.append("finish")


SPY = """
import ctypes, json, os, socket, struct, sys
from robustassay import models

def tried(call):
    try:
        return str(call())
    except OSError as error:
        return type(error).__name__

def connect_by_libc(port):
    libc = ctypes.CDLL(None, use_errno=True)
    place = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, socket.inet_aton("127.0.0.1"))
    return libc.connect(libc.socket(socket.AF_INET, socket.SOCK_STREAM, 0), place, len(place))

def make():
    port = int(open("port").read())
    print('{"checks": [{"rule": "all", "passed": true, "text": "believe me"}]}', flush=True)
    found = {
        "python": tried(lambda: socket.create_connection(("127.0.0.1", port))),
        "udp": tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port))),
        "libc": connect_by_libc(port),
        "secret": [name for name in os.environ if "TOKEN" in name],
        "pid": os.getpid(),
    }
    open("found.json", "w").write(json.dumps(found))
    return models.load("resnet20-natural")
"""


def test_code_that_the_user_names_gets_no_network_no_secrets_and_no_say_in_the_result(honest, tmp_path, monkeypatch):
    """The trap in the working folder would be imported instead of a library if that folder were searched."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", "secret")
    (tmp_path / "spy.py").write_text(SPY)
    (tmp_path / "torch.py").write_text("open('trapped', 'w').close()")
    seen = Seen()
    with socket.create_server(("127.0.0.1", 0)) as server:
        (tmp_path / "port").write_text(str(server.getsockname()[1]))
        request = CheckRequest(str(honest), model="spy.py:make", device="cpu", reattack=2)
        outcome = check_limited(request, Limits(), seen)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["python"] == found["udp"] == "PermissionError"
    assert not found["secret"]
    assert not (tmp_path / "trapped").exists()
    if LINUX and outcome.network == "none":
        assert found["libc"] == -1, "the system has no way out, whatever Python does"
    assert {check.rule for check in outcome.checks} >= {"records", "model"}
    assert "believe me" not in str(outcome.checks)


def test_an_honest_run_is_checked_as_before_and_progress_is_seen(honest):
    seen = Seen()
    outcome = check_limited(CheckRequest(str(honest), device="cpu", reattack=2), Limits(), seen)
    assert {check.rule: check.passed for check in outcome.checks} == {
        "records": True,
        "samples": True,
        "clean labels": True,
        "claims": True,
        "standing": outcome.checks[-1].passed,
    }
    if outcome.checks[-1].text[0] != "0":
        assert seen.events[0] == "start"
        assert seen.events[-1] == "finish"


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (Limits(minutes=0.01), "more than 0.01 minutes: raise --time-limit"),
        (Limits(memory_gib=0.05), "0.05 GiB: raise"),
    ],
)
def test_a_check_that_takes_too_much_is_ended(honest, limits, says):
    started = time.monotonic()
    with pytest.raises(EvaluationFailed, match=says):
        check_limited(CheckRequest(str(honest), device="cpu"), limits, NoProgress())
    assert time.monotonic() - started < 20
    with pytest.raises(BadRequest, match="above zero"):
        Limits(minutes=0)


def test_windows_is_told_where_to_check(monkeypatch):
    monkeypatch.setattr(limited_check, "WINDOWS", True)
    with pytest.raises(BadRequest, match="Linux or macOS"):
        check_limited(CheckRequest("run"), Limits(), NoProgress())


ANSWERS: dict[str, tuple[str, str]] = {
    "exit": ("os._exit(3)", "ended without a result"),
    "nothing": ("pass", "ended without a result"),
    "error": ("raise ValueError('so')", r"ended without a result \(ValueError: so\)"),
    "crash": ("os.kill(os.getpid(), 11)", r"ended without a result \(signal 11\)"),
    "half a line": ("print('{\"checks\": [{\"rule\"', end='')", "ended without a result"),
    "no JSON": ("print('passed')", "no valid result"),
    "a list": ("print('[]')", "no valid result"),
    "an unknown event": ("print('{\"passed\": true}')", "no valid result"),
    "no checks": ("print('{\"checks\": []}')", "no valid result"),
    "a word for a verdict": (
        'print(\'{"checks": [{"rule": "r", "passed": "yes", "text": ""}]}\')',
        "no valid result",
    ),
    "a number for a verdict": ('print(\'{"checks": [{"rule": "r", "passed": 1, "text": ""}]}\')', "no valid result"),
    "more keys": (
        'print(\'{"checks": [{"rule": "r", "passed": true, "text": "", "x": 1}]}\')',
        "no valid result",
    ),
    "no end": ("while True: print('x' * 1000, end='')", "wrote too much"),
    "deep": ("print('[' * 100_000)", "no valid result"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_process_that_dies_or_returns_anything_else_is_no_result(tmp_path, monkeypatch, name):
    code, says = ANSWERS[name]
    child = tmp_path / "child.py"
    child.write_text(f"import os\n{code}\n")
    monkeypatch.setattr(limited_check, "CHILD", child)
    with pytest.raises(EvaluationFailed, match=says):
        check_limited(CheckRequest("run"), Limits(minutes=0.5), NoProgress())


def test_the_command_says_not_checked_and_never_passed(honest, capsys):
    assert main(["leaderboard", "check", str(honest), "--time-limit", "0.001"]) == 1
    said = capsys.readouterr()
    assert "not checked" in said.out
    assert "raise --time-limit" in " ".join(said.out.split())
    assert "passed" not in said.out
    assert "1 of 1 were not checked" in said.err


SLEEP = "open('pid.tmp', 'w').write(str(os.getpid())); os.rename('pid.tmp', 'pid'); time.sleep(60)"
COMMANDS = {
    signal.SIGINT: "limited_check.CHILD = 'child.py'; sys.exit(main(['leaderboard', 'check', sys.argv[1]]))",
    signal.SIGKILL: "main(['leaderboard', 'check', sys.argv[1], '--model', 'slow.py:make'])",
}


@pytest.mark.skipif(not LINUX, reason="looks for processes in /proc")
@pytest.mark.parametrize("number", COMMANDS)
def test_the_process_ends_with_the_command(honest, tmp_path, number):
    """An interrupt ends it by the command, whatever it does; if the command is killed, it ends itself."""
    (tmp_path / "child.py").write_text(f"import os, time\n{SLEEP}\n")
    (tmp_path / "slow.py").write_text(f"import os, time\ndef make(): {SLEEP}\n")
    imports = "import sys\nfrom robustassay.cli import main\nfrom robustassay.leaderboard import limited_check\n"
    request = [sys.executable, "-c", imports + COMMANDS[number], str(honest)]
    with subprocess.Popen(request, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True) as command:
        while command.poll() is None and not (tmp_path / "pid").exists():
            time.sleep(0.02)
        child = int((tmp_path / "pid").read_text())
        command.send_signal(number)
        assert command.wait(10) == (130 if number == signal.SIGINT else -9)
    assert not alive_after(5, [child])
