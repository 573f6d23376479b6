"""Writes a site to its folder: file by file, the first page last; files of an older site are removed."""

import json
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from robustassay.errors import BadRequest, StoreFailed
from robustassay.files import write_atomically

INDEX: Final = "index.html"
LIST: Final = ".assay-report.json"
"""Lists the files of the site, so that building again removes stale ones and touches nothing else."""


def write(out: Path, files: Iterable[tuple[str, str | bytes]]) -> Path:
    """Write the files, given by their path in the site, and return the first page."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        old = _listed_files(out)
        written, first = [], None
        for name, content in files:
            if name == INDEX:
                first = content
                continue
            _place(out / name, content)
            written.append(name)
        if first is not None:
            _place(out / INDEX, first)
            written.append(INDEX)
        _place(out / LIST, json.dumps({"files": sorted(written)}, indent=1))
        for name in old - set(written):
            _remove(out, name)
    except (FileExistsError, NotADirectoryError) as error:
        raise BadRequest(f"{out} is a file: choose a folder for the report.") from error
    except OSError as error:
        raise StoreFailed(f"The report cannot be written to {out} ({error.strerror}): choose another.") from error
    return out / INDEX


def _place(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)


def _listed_files(out: Path) -> set[str]:
    """Read the list of an older site; paths that lead out of the folder are ignored."""
    try:
        listed = json.loads((out / LIST).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    names = [PurePosixPath(name) for name in listed if isinstance(name, str)]
    return {str(name) for name in names if not name.is_absolute() and ".." not in name.parts}


def _remove(out: Path, name: str) -> None:
    path = out / name
    path.unlink(missing_ok=True)
    for folder in [*path.parents][: len(PurePosixPath(name).parts) - 1]:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
