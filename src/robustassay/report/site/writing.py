"""Writes a site to its folder: file by file, the first page last; files of an older site are removed."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from robustassay.output_files import write_output

INDEX: Final = "index.html"
LIST: Final = ".assay-report.json"
"""Lists the files of the site, so that building again removes stale ones and touches nothing else."""


def write(out: Path, files: Iterable[tuple[str, str | bytes]]) -> Path:
    """Write the files, given by their path in the site, and return the first page."""
    write_output(out, sorted(files, key=lambda file: file[0] == INDEX), LIST)
    return out / INDEX
