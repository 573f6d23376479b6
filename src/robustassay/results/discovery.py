"""Finds the folders of runs."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from robustassay.errors import BadRequest
from robustassay.store import MANIFEST, Store


def run_folders(folder: Path) -> list[Path]:
    """Return the folder itself where it holds a run, else the folders of all runs below it."""
    if Store(folder).exists():
        return [folder]
    # Other programs write a manifest.json too; a run has a folder `shards` beside it.
    return sorted(path.parent for path in folder.rglob(MANIFEST) if (path.parent / "shards").is_dir())


def child_run_folders(folder: Path) -> list[Path]:
    """Return the folders of the runs directly below a folder."""
    return sorted(child for child in folder.glob("*") if Store(child).exists()) if folder.is_dir() else []


def holds_runs(folder: Path) -> bool:
    """Say whether there is a run in a folder or below it."""
    return bool(run_folders(folder))


def find_stores(folders: Iterable[Path]) -> Iterator[Store]:
    """Open every run in these folders or below them, each folder once."""
    seen: set[Path] = set()
    for folder in folders:
        found = run_folders(folder)
        if not found:
            raise BadRequest(
                f"{folder} holds no run: give the folder named by --out of an evaluation, or one above it."
            )
        for path in found:
            if path.resolve() not in seen:
                seen.add(path.resolve())
                yield Store.at(path)
    if not seen:
        raise BadRequest("A report needs at least one run: give the folder named by --out of an evaluation.")
