"""Checks a submission in a process of its own: without network, with limits of time and memory, without secrets.

The process gets a request and returns lines of JSON, which are checked like any other file of a stranger. A process
that ends without a result leaves its submission unchecked.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, final

from robustassay.analysis.rates import Rate
from robustassay.errors import BadRequest, EvaluationFailed
from robustassay.evaluation.progress import Progress
from robustassay.files import WINDOWS
from robustassay.leaderboard.admission import Check
from robustassay.leaderboard.checking import CheckRequest

CHILD: Final = Path(__file__).with_name("isolation.py")
_POLL_SECONDS: Final = 0.1
_MOST_BYTES: Final = 16 << 20
_MOST_CHECKS: Final = 10_000
_NETWORKS: Final = ("none", "guarded", "allowed")
_HANDED_OVER: Final = frozenset(
    {
        "ASSAY_CACHE", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "DYLD_LIBRARY_PATH", "GOMP_SPINCOUNT", "HF_HOME", "HOME",
        "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "LOGNAME", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "PATH",
        "SYSTEMROOT", "TORCH_HOME", "TZ", "USER", "XDG_CACHE_HOME",
    }
)  # fmt: skip
"""Environment variables that the process gets: settings, no keys and passwords."""


@final
@dataclass(frozen=True)
class Limits:
    """What a check may use."""

    minutes: float = 60.0
    memory_gib: float = 8.0
    network: bool = False

    def __post_init__(self) -> None:
        if not (self.minutes > 0 and self.memory_gib > 0):
            raise BadRequest("The limits of a check must be above zero.")

    @property
    def memory_bytes(self) -> int:
        """The memory limit in bytes."""
        return int(self.memory_gib * (1 << 30))


@final
@dataclass(frozen=True)
class Outcome:
    """The checks of one submission, and how the process was cut off: "none", "guarded" or "allowed"."""

    checks: list[Check]
    network: str


def check_limited(request: CheckRequest, limits: Limits, progress: Progress) -> Outcome:
    """Check in a process of its own; raise EvaluationFailed where it ends without a result."""
    if WINDOWS:
        raise BadRequest("Windows cannot limit a check of a submission: run this command on Linux or macOS, or in WSL.")
    with tempfile.TemporaryDirectory(prefix="assay-check-") as scratch, open(f"{scratch}/errors", "wb+") as errors:
        child = subprocess.Popen(
            [sys.executable, "-P", str(CHILD)],  # -P: no module is imported from the working folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=_environment(scratch),
            start_new_session=True,
        )
        try:
            _send(child, request, limits)
            return _receive(child, limits, progress, Path(errors.name))
        finally:
            _end(child)


def _environment(scratch: str) -> dict[str, str]:
    handed_over = {name: value for name, value in os.environ.items() if name in _HANDED_OVER}
    return handed_over | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": scratch}


def _send(child: "subprocess.Popen[bytes]", request: CheckRequest, limits: Limits) -> None:
    assert child.stdin is not None
    content = {
        "check": asdict(request),
        "memory_bytes": limits.memory_bytes,
        "network": limits.network,
        "parent": os.getpid(),
    }
    try:
        child.stdin.write(json.dumps(content).encode() + b"\n")
        child.stdin.close()
    except BrokenPipeError:
        pass  # it has ended, which is noticed below


def _receive(child: "subprocess.Popen[bytes]", limits: Limits, progress: Progress, errors: Path) -> Outcome:
    """Pass on progress until the result is there."""
    network = "guarded"
    for line in _lines(child, limits):
        event = _parse(line)
        if "network" in event:
            network = _valid(event["network"], event["network"] in _NETWORKS)
        elif "checks" in event:
            return Outcome(_checks(event["checks"]), network)
        elif "error" in event:
            raise (BadRequest if event.get("exit_code") == BadRequest.exit_code else EvaluationFailed)(
                str(event["error"])
            )
        else:
            _show(event, progress)
    code = child.wait()
    last = errors.read_bytes()[-2_000:].decode(errors="replace").strip().splitlines()
    why = f"signal {-code}" if code < 0 else last[-1][:300] if last else f"exit code {code}"
    raise EvaluationFailed(f"The process that checks it ended without a result ({why}): run the check again.")


def _lines(child: "subprocess.Popen[bytes]", limits: Limits) -> Iterator[bytes]:
    """Read lines until the output ends; raise where a limit is exceeded."""
    assert child.stdout is not None
    end, rest, total = time.monotonic() + 60 * limits.minutes, b"", 0
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            ready = selector.select(_POLL_SECONDS)
            if time.monotonic() > end:
                raise EvaluationFailed(f"The check took more than {limits.minutes:g} minutes: raise --time-limit.")
            if _memory_of(child.pid) > limits.memory_bytes:
                raise EvaluationFailed(f"The check used more than {limits.memory_gib:g} GiB: raise --memory-limit.")
            if not ready:
                continue
            chunk = os.read(child.stdout.fileno(), 1 << 16)
            total += len(chunk)
            if not chunk:
                return
            if total > _MOST_BYTES:
                raise EvaluationFailed("The process that checks it wrote too much: do not trust this submission.")
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines


def _memory_of(pid: int) -> int:
    """Return the bytes of memory that a process uses; 0 where the system does not say."""
    try:
        if sys.platform.startswith("linux"):
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        found = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return 1024 * int(found.stdout)
    except (OSError, ValueError, IndexError):
        return 0


def _parse(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    return dict(_valid(event, isinstance(event, dict)))


def _checks(found: Any) -> list[Check]:
    _valid(found, isinstance(found, list) and 0 < len(found) <= _MOST_CHECKS)
    return [Check(**_valid(one, _is_check(one))) for one in found]


def _is_check(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and one.keys() == {"rule", "passed", "text"}
        and isinstance(one["rule"], str)
        and isinstance(one["text"], str)
        and (one["passed"] is None or isinstance(one["passed"], bool))
    )


def _show(event: dict[str, Any], progress: Progress) -> None:
    match event:
        case {"start": [str(title), int(samples), int(finished)]}:
            progress.start(title, samples, finished)
        case {"update": [int() | float() as finished, int(count), int(total)]}:
            progress.update(finished, Rate(count, total))
        case {"finish": []}:
            progress.finish()
        case _:
            _valid(event, False)


def _valid(value: Any, fits: bool) -> Any:
    if not fits:
        raise EvaluationFailed("The process that checks it returned no valid result: do not trust this submission.")
    return value


def _end(child: "subprocess.Popen[bytes]") -> None:
    """Kill the process and whatever it has started in its session."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        child.kill()
    child.wait()
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            stream.close()
