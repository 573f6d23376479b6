"""The table of the showcase as a file: `showcase.json`, which `assay run` writes and the report reads."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, final

from robustassay.errors import StoreFailed
from robustassay.files import write_atomically

FILE: Final = "showcase.json"
VERSION: Final = 1


@final
@dataclass(frozen=True)
class ShowcaseRow:
    """One line: what PGD says of a model, what assay says, and why. Rates are fractions."""

    label: str  # for people
    model: str  # for `assay eval`
    clean: float
    pgd: float | None  # None where no gradients are used
    assay: float
    low: float
    high: float
    evidence: str
    why: str
    command: str
    runs: tuple[str, ...]  # folders of the runs, relative to that of the file


@final
@dataclass(frozen=True)
class CorruptionBar:
    """The accuracy of one model on corrupted images, as a mean over the kinds, with its 95 % interval."""

    model: str
    clean: float
    corrupted: float
    low: float
    high: float


@final
@dataclass(frozen=True)
class Corruptions:
    """Accuracy without an attacker: common corruptions at one severity."""

    kinds: tuple[str, ...]
    severity: int
    images: int
    bars: tuple[CorruptionBar, ...]


@final
@dataclass(frozen=True)
class Showcase:
    """What `assay run` has found."""

    data: str
    images: int
    threat: str
    seed: int
    rows: tuple[ShowcaseRow, ...]
    corruptions: Corruptions
    next: str  # the command for a model of the user


def write_showcase(showcase: Showcase, folder: Path) -> None:
    """Write the file into a folder."""
    content = json.dumps({"version": VERSION, **asdict(showcase)}, indent=2, ensure_ascii=False) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / FILE, content)
    except OSError as error:
        raise StoreFailed(
            f"{folder} cannot be written ({error.strerror or error}): choose another with --out."
        ) from error


def read_showcase(folder: Path) -> Showcase | None:
    """Read the file of a folder; None where there is none, or one of another version."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("version") != VERSION:
            return None
        rows = tuple(ShowcaseRow(**{**row, "runs": tuple(row["runs"])}) for row in content.pop("rows"))
        corrupted = content.pop("corruptions")
        bars = tuple(CorruptionBar(**bar) for bar in corrupted.pop("bars"))
        kinds = tuple(corrupted.pop("kinds"))
        return Showcase(rows=rows, corruptions=Corruptions(kinds, bars=bars, **corrupted), **content)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StoreFailed(f"{path} cannot be read ({error}): delete it and run `assay run` again.") from error
