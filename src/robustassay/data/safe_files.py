"""Reads untrusted files, with limits on their size."""

import os
import zipfile
from pathlib import Path

from robustassay.errors import AssayError, BadData


def read_file(path: Path) -> bytes:
    """Return the bytes of a regular file; a pipe or a device is refused, because reading it may never end."""
    if not path.is_file():
        raise BadData(f"{path} is not a regular file: replace or remove it.")
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadData(f"{path} cannot be read ({error.strerror}): check its permissions.") from error


def max_unpacked_bytes() -> int:
    """Return the limit for unpacked files: half the memory of this machine, because loading makes a copy."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):  # not every system reports its memory
        return 8 << 30


def check_unpacked(path: Path, kind: type[AssayError] = BadData) -> None:
    """Refuse an archive that would fill the memory, before unpacking it; other files pass."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return  # not an archive, or damaged: its reader reports that
    if size > max_unpacked_bytes():
        raise kind(
            f"{path} unpacks from {path.stat().st_size >> 10} KiB to {size >> 20} MiB, more than this machine holds: "
            "split it, and do not trust its origin."
        )
