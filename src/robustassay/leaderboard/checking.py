"""Checks a submission, a run or a records file in this process; `limited_check` does so in a limited one."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TextIO, final

from robustassay.analysis.rates import Rate
from robustassay.errors import AssayError
from robustassay.evaluation.model_ref import choose_device
from robustassay.evaluation.parent_death import die_with_parent
from robustassay.evaluation.progress import NoProgress, Progress
from robustassay.leaderboard.admission import Check
from robustassay.leaderboard.card import CARD
from robustassay.leaderboard.recheck import REATTACKED, check_records
from robustassay.leaderboard.signature import check_signature, has_signature
from robustassay.leaderboard.submission import Submission
from robustassay.store import Store

_LONGEST: Final = 5_000


@final
@dataclass(frozen=True)
class CheckRequest:
    """What to check, with what the user says about it."""

    what: str
    model: str | None = None
    data: str | None = None
    device: str | None = None
    reattack: int = REATTACKED
    signers: str | None = None


def holds_records(what: str) -> bool:
    """Say whether this is the path of a submission, a run or a records file."""
    path = Path(what)
    return (path / CARD).is_file() or path.suffix == ".parquet" or Store(path).exists()


def count_runs(what: str) -> int:
    """Return the number of runs in it."""
    return len(Submission(Path(what)).files) if (Path(what) / CARD).is_file() else 1


def check_here(request: CheckRequest, progress: Progress | None = None) -> list[Check]:
    """Check in this process, without limits."""
    path, device = Path(request.what), choose_device(request.device)
    options = (request.model, request.data, device, request.reattack, progress or NoProgress())
    signers = None if request.signers is None else Path(request.signers)
    if (path / CARD).is_file():
        return Submission(path).check(*options, signers)
    signature = [check_signature(path, signers)] if has_signature(path) else []
    return signature + check_records(path, *options)[0]


def answer(request: dict[str, Any], network: str, answers: TextIO) -> None:
    """Check, as a process that another one has started; write progress and the result, one JSON object per line."""
    die_with_parent(request["parent"])
    sender = _Sender(answers)
    sender.send(network=network)
    try:
        if (device := choose_device(request["check"]["device"])).type == "cpu":
            _limit_memory(request["memory_bytes"])
        checks = check_here(CheckRequest(**{**request["check"], "device": str(device)}), sender)
    except AssayError as error:
        sender.send(error=str(error)[:_LONGEST], exit_code=error.exit_code)
    else:
        sender.send(checks=[asdict(check) | {"text": check.text[:_LONGEST]} for check in checks])


def _limit_memory(most_bytes: int) -> None:
    """Refuse allocations beyond twice the limit at once; the parent sees what is used, but only now and then."""
    try:
        import resource
    except ImportError:  # not on this system
        return
    resource.setrlimit(resource.RLIMIT_DATA, (2 * most_bytes, 2 * most_bytes))


@final
class _Sender:
    """Sends progress to the parent process."""

    def __init__(self, answers: TextIO) -> None:
        self._answers = answers

    def send(self, **event: Any) -> None:
        print(json.dumps(event), file=self._answers, flush=True)

    def start(self, title: str, samples: int, finished: int) -> None:
        """A task begins."""
        self.send(start=[title[:_LONGEST], samples, finished])

    def update(self, finished: float, robust: Rate) -> None:
        """Some samples are done."""
        self.send(update=[float(finished), robust.count, robust.total])

    def finish(self) -> None:
        """The task has ended."""
        self.send(finish=[])
