"""Writes the output of a command to a folder that may hold other files: only files of an earlier output are replaced.

The folder gets a list of the files that were written. A file that is not on the list belongs to somebody else. The list
is written first, so that a command that was killed knows its files when it is run again.
"""

import json
from collections.abc import Collection, Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from robustassay.errors import BadRequest, StoreFailed
from robustassay.files import write_atomically

_NAMED: Final = 3


def write_output(
    out: Path, files: Iterable[tuple[str, str | bytes]], list_name: str, also_ours: Collection[str] = ()
) -> None:
    """Write files, given by their path in the folder, in their order; remove those of the earlier output that are left.

    `also_ours` are files of an earlier output without a list.
    """
    contents = dict(files)
    try:
        out.mkdir(parents=True, exist_ok=True)
        old = _listed(out / list_name)
        _check_foreign(out, contents.keys() - old - set(also_ours))
        _write_list(out / list_name, old | contents.keys())
        for name, content in contents.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(out / name, content)
        for name in old - contents.keys():
            if _is_inside(out, name):
                _remove(out, name)
        _write_list(out / list_name, contents.keys())
    except (FileExistsError, NotADirectoryError) as error:
        raise BadRequest(
            f"{error.filename or out} is a file where a folder is needed: choose another place."
        ) from error
    except OSError as error:
        raise StoreFailed(f"{out} cannot be written ({error.strerror or error}): choose another place.") from error


def _check_foreign(out: Path, names: Collection[str]) -> None:
    """Refuse to replace files that no earlier output wrote."""
    found = sorted(name for name in names if (out / name).exists() or (out / name).is_symlink())
    if found:
        few = ", ".join(found[:_NAMED]) + (" and others" if len(found) > _NAMED else "")
        raise BadRequest(f"{out} holds {few}, which this command did not write: choose another folder with -o.")


def _listed(path: Path) -> set[str]:
    """Read the list of an earlier output; paths that lead out of the folder are ignored."""
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return set()
    names = [PurePosixPath(name) for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    return {str(name) for name in names if not name.is_absolute() and ".." not in name.parts}


def _write_list(path: Path, names: Collection[str]) -> None:
    write_atomically(path, json.dumps({"files": sorted(names)}, indent=1))


def _is_inside(out: Path, name: str) -> bool:
    """Say whether a listed file is one in the folder: not a folder, and not behind a linked one."""
    path = out / name
    inside = path.parent.resolve().is_relative_to(out.resolve())
    return inside and (path.is_file() or path.is_symlink())


def _remove(out: Path, name: str) -> None:
    path = out / name
    path.unlink(missing_ok=True)
    for folder in [*path.parents][: len(PurePosixPath(name).parts) - 1]:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
