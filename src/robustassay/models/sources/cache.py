"""Downloads: cached in one folder, checked by hash, resumed after an interruption, and forbidden when offline.

    ASSAY_CACHE     the folder; by default the user's cache folder of the operating system
    ASSAY_OFFLINE   set to 1, nothing is downloaded and only what is in the folder is used

A file appears under its name only when it is whole and its hash is the promised one. Where a publisher promises
none, the hash of the first download is kept beside the file and holds from then on.
"""

import contextlib
import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from robustassay.cache_folder import cache_folder
from robustassay.errors import BadRequest, BadWeights
from robustassay.files import move_into_place, write_atomically

CHUNK: Final = 1 << 20
TIMEOUT_SECONDS: Final = 30.0
ATTEMPTS: Final = 5
"""Attempts to resume a download before an error is raised."""


def is_offline() -> bool:
    """Return whether downloads are forbidden."""
    return os.environ.get("ASSAY_OFFLINE", "").lower() not in ("", "0", "false", "no")


def fetch(url: str, place: str, sha256: str | None = None) -> Path:
    """Return the file of a URL, kept at a place in the cache; `sha256` is its hash or the first digits of it."""
    # Parts of the path come from publishers: none may leave the folder.
    if Path(place).is_absolute() or ".." in Path(place).parts:
        raise BadRequest(f"{place!r} is not a valid download path: check the name, and do not trust its publisher.")
    path = cache_folder() / place
    if path.is_file():
        _check(path, sha256 or _first_hash(path), f"delete {path} and try again")
        return path
    if is_offline():
        raise BadRequest(
            f"{place} is not in {cache_folder()} and ASSAY_OFFLINE is set: unset it to download {url}, "
            "or put the file there."
        )
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _download(url, part, resumable=sha256 is not None)
        try:
            _check(part, sha256, "nothing was kept; try again, or tell its publisher")
        except BadWeights:
            part.unlink()
            raise
        if sha256 is None:
            write_atomically(path.with_name(f"{path.name}.sha256"), _sha256(part))
        move_into_place(part, path)
    except OSError as error:
        raise BadRequest(
            f"{path} cannot be written ({error.strerror or error}): name another folder in ASSAY_CACHE."
        ) from error
    return path


def fetch_json(url: str, place: str) -> Any:
    """Return the JSON at a URL, and cache it for offline use."""
    path = cache_folder() / place
    if not is_offline() and ".." not in path.parts:
        path.unlink(missing_ok=True)
        path.with_name(f"{path.name}.sha256").unlink(missing_ok=True)
    try:
        return json.loads(fetch(url, place).read_text(encoding="utf-8"))
    except ValueError as error:
        path.unlink(missing_ok=True)
        raise BadWeights(f"{url} did not return JSON: check the name and the network.") from error


def _download(url: str, part: Path, resumable: bool) -> None:
    """Download a URL to a file; resume a partial file only if a hash can verify the result."""
    if not resumable:
        part.unlink(missing_ok=True)
    for _ in range(ATTEMPTS):
        held = part.stat().st_size if part.exists() else 0
        with _opened(url, held) as response:
            if response is None:  # the file is complete
                return
            if not response.continues:
                held = 0
            _refuse_web_page(response, url)
            with part.open("ab" if response.continues else "wb") as file, _shown(part.stem, response.size) as advance:
                advance(held)
                for chunk in response.chunks():
                    file.write(chunk)
                    advance(len(chunk))
            if response.size is None or part.stat().st_size >= response.size:
                return
    raise BadWeights(f"{url} was interrupted {ATTEMPTS} times: run the same command again to resume the download.")


@final
@dataclass(frozen=True)
class _Response:
    raw: Any
    continues: bool
    size: int | None  # of the whole file
    kind: str

    def chunks(self) -> Iterator[bytes]:
        """Yield the received bytes; after a broken connection the size shows that some are missing."""
        with contextlib.suppress(http.client.HTTPException, OSError):
            while chunk := self.raw.read(CHUNK):
                yield chunk


@contextlib.contextmanager
def _opened(url: str, held: int) -> Iterator[_Response | None]:
    headers = {"User-Agent": "assay"} | ({"Range": f"bytes={held}-"} if held else {})
    try:
        raw = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and held:
            yield None
            return
        raise BadWeights(f"{url} returned {error.code} {error.reason}: check the name and the access rights.") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise BadWeights(
            f"{url} cannot be reached ({reason}): check the network, or set ASSAY_OFFLINE=1 to use what is at hand."
        ) from error
    with raw:
        length = raw.headers.get("Content-Length")
        continues = held > 0 and raw.status == 206
        size = None if length is None else int(length) + (held if continues else 0)
        yield _Response(raw, continues, size, raw.headers.get("Content-Type", ""))


def _refuse_web_page(response: _Response, url: str) -> None:
    if response.kind.startswith("text/html"):
        raise BadWeights(f"{url} returned a web page instead of a file: download it by hand.")


@contextlib.contextmanager
def _shown(name: str, size: int | None) -> Iterator[Any]:
    """Show a progress bar in a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(name, total=size)
        yield lambda step: bars.advance(task, step)


def _check(path: Path, promised: str | None, remedy: str) -> None:
    found = _sha256(path)
    if promised is not None and not found.startswith(promised.lower()):
        raise BadWeights(
            f"{path.name.removesuffix('.part')} is not the file that was promised (sha256 {found[:12]}..., expected "
            f"{promised[:12]}...): {remedy}."
        )


def _first_hash(path: Path) -> str | None:
    beside = path.with_name(f"{path.name}.sha256")
    return beside.read_text().strip() if beside.is_file() else None


def _sha256(path: Path) -> str:
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
