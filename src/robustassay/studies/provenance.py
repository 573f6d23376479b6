"""Where the numbers of a study come from: commit, run format, device and dates."""

import hashlib
import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Final, final

import robustassay
from robustassay.errors import BadRequest
from robustassay.evaluation.result import Result
from robustassay.evaluation.spec import SPEC_VERSION
from robustassay.files import write_atomically
from robustassay.studies.task import Key

FOLDER: Final = "provenance"
FILE: Final = "provenance.json"
COMMIT: Final = "ASSAY_COMMIT"
"""Names the commit where the source is a copy without its repository."""


@final
@dataclass(frozen=True, order=True)
class Measured:
    """Who computed something: one file per process setting, so that processes side by side never overwrite another."""

    day: str
    commit: str
    run_format: int
    device: str
    what: str = ""  # the part that was measured there, where it is not all

    @classmethod
    def here(cls, device: str, what: str = "") -> "Measured":
        """Return the provenance of what this process computes."""
        return cls(today().isoformat(), commit(), SPEC_VERSION, device, what)

    def keep(self, out: Path) -> None:
        """Write it beside the records of a study."""
        text = json.dumps(asdict(self), indent=1)
        folder = out / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.json", text)


@final
@dataclass(frozen=True)
class Provenance:
    """Where a page comes from."""

    measured: tuple[Measured, ...]
    written: str  # day
    commit: str  # that wrote the page
    command: str

    @property
    def run_format(self) -> int | None:
        """The oldest run format of the records; none where nothing is known of them."""
        return min((one.run_format for one in self.measured), default=None)

    @property
    def sentence(self) -> str:
        """State it for readers."""
        written = f"Page written on {self.written} with commit `{self.commit}` by `{self.command}`."
        if not self.measured:
            return written
        days = sorted({one.day for one in self.measured})
        span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
        commits = ", ".join(f"`{name}`" for name in _unique(one.commit for one in self.measured))
        devices = ", ".join(_places(self.measured))
        return f"Measured on {span} with commit {commits} (run format {self.run_format}) on {devices}. {written}"

    def write(self, folder: Path) -> None:
        """Write it beside a published page, for the test that a page is not older than the run format."""
        write_atomically(folder / FILE, json.dumps({"run_format": self.run_format, **asdict(self)}, indent=1) + "\n")


NOTHING_KNOWN: Final = Provenance((), "an unknown day", "unknown", "assay study")
"""For pages of measurements that were not read from a study's folder."""


def provenance_of(out: Path, command: str) -> Provenance:
    """Read where the records of a study come from; refuse those of another run format."""
    found = sorted(Measured(**json.loads(path.read_text())) for path in (out / FOLDER).glob("*.json"))
    old = {one.run_format for one in found} - {SPEC_VERSION}
    if old:
        raise BadRequest(
            f"{out} holds results of run format {min(old)}, and this version has {SPEC_VERSION}: measure again with "
            "another --out."
        )
    return Provenance(tuple(found), today().isoformat(), commit(), command)


def devices(out: Path) -> frozenset[str]:
    """Name the devices that the records of a study were measured on; none where there are no records."""
    return frozenset(str(json.loads(path.read_text())["device"]) for path in (out / FOLDER).glob("*.json"))


def other_devices(results: Mapping[Key, Result], named: Callable[[list[Key]], str]) -> list[str]:
    """Name the runs of another device than that of most."""
    runs = defaultdict[str, list[Key]](list)
    for key, result in results.items():
        runs[str(result.manifest.get("hardware", {}).get("device", ""))].append(key)
    usual = max(runs, key=lambda device: len(runs[device]), default="")
    return [
        f"Computed on {'a CPU' if device == 'cpu' else device}, all others on {usual}: {named(keys)}."
        for device, keys in runs.items() if device != usual
    ]  # fmt: skip


@cache
def commit() -> str:
    """Return the commit of the source that runs, marked where it was changed since; else the version."""
    given, package = os.environ.get(COMMIT), Path(robustassay.__file__).resolve()
    if given:
        return given
    if _git(package.parent, "ls-files", "--error-unmatch", package.name) is None:
        return f"version {robustassay.__version__}"
    changed = _git(package.parent, "status", "--porcelain", "--untracked-files=no", ".")
    return f"{_git(package.parent, 'rev-parse', '--short=12', 'HEAD')}{' with changes' if changed else ''}"


def today() -> date:
    """Return the day, in UTC."""
    return datetime.now(UTC).date()


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except OSError:  # no git here
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _places(measured: Iterable[Measured]) -> list[str]:
    """Name each device once, with the parts that it measured where these are not all."""
    by_device: dict[str, list[str]] = {}
    for one in measured:
        by_device.setdefault(one.device, []).append(one.what)
    parts = {device: ", ".join(_unique(", ".join(whats).split(", "))) for device, whats in by_device.items()}
    return [f"{device} ({parts[device]})" if all(whats) else device for device, whats in by_device.items()]


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
