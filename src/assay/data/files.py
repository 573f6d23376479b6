"""Reading a file whole, with a sentence where that fails."""

from pathlib import Path

from assay.errors import BadData


def read_file(path: Path) -> bytes:
    """Return the bytes of a regular file; a pipe or device would block or never end."""
    if not path.is_file():
        raise BadData(f"{path} is not a regular file: replace or remove it.")
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadData(f"{path} cannot be read ({error.strerror}): check that it is yours to read.") from error
