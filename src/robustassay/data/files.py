"""Reading files that strangers made: whole and within limits, with a sentence where that fails."""

import os
import zipfile
from pathlib import Path

from robustassay.errors import AssayError, BadData


def read_file(path: Path) -> bytes:
    """Return the bytes of a regular file; a pipe or device would block or never end."""
    if not path.is_file():
        raise BadData(f"{path} is not a regular file: replace or remove it.")
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadData(f"{path} cannot be read ({error.strerror}): check that it is yours to read.") from error


def max_unpacked_bytes() -> int:
    """Return what a file may unpack to: half the memory of this machine, as a copy of it must be made."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):  # not every system says
        return 8 << 30


def check_unpacked(path: Path, kind: type[AssayError] = BadData) -> None:
    """Refuse an archive that would fill the memory, before any of it is unpacked; other files pass."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return  # no archive, or a damaged one: its own reader says so
    if size > max_unpacked_bytes():
        raise kind(
            f"{path} unpacks from {path.stat().st_size >> 10} KiB to {size >> 20} MiB, more than this machine holds: "
            "cut it into parts, and do not trust whoever made it."
        )
