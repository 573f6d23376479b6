"""Signatures of submissions, made and verified by OpenSSH: researchers have SSH keys, and no library is needed.

A signature covers the SHA-256 of every file of a submission (card and records files) or of a run (manifest, failures
and all shards, the last one included); the hashes of images are inside these files. It proves that the holder of a key
has signed these files, not that their records are true, and not who the holder is.
"""

import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from robustassay import shards
from robustassay.errors import BadData, BadRequest, StoreFailed
from robustassay.files import write_atomically
from robustassay.leaderboard.admission import Check
from robustassay.leaderboard.card import CARD
from robustassay.leaderboard.records_file import SUFFIX
from robustassay.store import MANIFEST

SIGNATURE: Final = "submission.sig"
NOT_SIGNED: Final = "not signed"
FORMAT: Final = "assay-submission-1"
NAMESPACE: Final = "assay-submission"
"""Separates these signatures from others made with the same key, such as those of commits."""

_RECORDS: Final = (f"*{SUFFIX}", "shards/*.parquet", "failures/*.json")
_SSH_KEYGEN: Final = "ssh-keygen"
_FINGERPRINT: Final = re.compile(r"with \S+ key (SHA256:[A-Za-z0-9+/]{43})")
_MOST_BYTES: Final = 1 << 16
_SECONDS: Final = 30


@final
@dataclass(frozen=True)
class Signer:
    """The holder of a key: its fingerprint, and its name where the user's list of signers has one."""

    fingerprint: str
    name: str | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.fingerprint})" if self.name else f"unknown key {self.fingerprint}"


def statement(folder: Path) -> bytes:
    """Return the text that is signed: the hashes of all files of a submission, or of a run."""
    heads = [folder / name for name in (CARD, MANIFEST) if (folder / name).exists()]
    if not heads:
        raise BadRequest(f"{folder} holds no submission and no run: make one with `assay leaderboard add`.")
    # Both kinds of files at once: a run that somebody puts beside a signed card is not signed.
    paths = [*heads, *(path for pattern in _RECORDS for path in sorted(folder.glob(pattern)))]
    files = {path.relative_to(folder).as_posix(): _sha256(path) for path in paths}
    return json.dumps({"format": FORMAT, "files": files}, sort_keys=True).encode()


def sign(folder: Path, key: Path) -> Signer:
    """Sign a submission or a run with an SSH key; a public key file stands for its private key in the SSH agent."""
    text = statement(folder)
    made = _run(["-Y", "sign", "-n", NAMESPACE, "-f", str(key)], text, seconds=None)
    if made.returncode:
        raise BadRequest(f"{key} cannot sign ({_last_line(made)}): name an SSH key, such as ~/.ssh/id_ed25519.")
    try:
        write_atomically(folder / SIGNATURE, made.stdout)
    except OSError as error:
        raise StoreFailed(f"{folder / SIGNATURE} cannot be written ({error.strerror or error}).") from error
    return verify(folder)


def verify(folder: Path, signers: Path | None = None) -> Signer:
    """Return who signed a submission; raise BadData where the signature does not fit its files."""
    path, text = folder / SIGNATURE, statement(folder)
    try:
        shards.read_limited(path, _MOST_BYTES)
    except (OSError, ValueError) as error:
        raise BadData(f"The signature {path} cannot be read ({error}): sign again, or delete it.") from error
    place = str(path.absolute())
    checked = _run(["-Y", "check-novalidate", "-n", NAMESPACE, "-s", place], text)
    found = _FINGERPRINT.search(checked.stdout.decode(errors="replace"))
    if checked.returncode or found is None:
        raise BadData(f"The signature {path} does not fit the files beside it: they were changed, or sign them again.")
    return Signer(found[1], None if signers is None else _name(place, text, signers))


def signed_by(folder: Path, signers: Path | None = None) -> str:
    """Return who signed, as a board shows it."""
    if not has_signature(folder):
        return NOT_SIGNED
    return "signature not verified" if shutil.which(_SSH_KEYGEN) is None else str(verify(folder, signers))


def check_signature(folder: Path, signers: Path | None = None) -> Check:
    """Check the signature of a submission or a run; an unknown signer leaves it unverified."""
    if not has_signature(folder):
        return Check("signature", None, "It is not signed.")
    try:
        signer = verify(folder, signers)
    except BadData as error:
        return Check("signature", False, str(error))
    except BadRequest as error:
        return Check("signature", None, str(error))
    if signer.name is None:
        return Check("signature", None, f"Signed by {signer}: nothing was changed since, but you do not know the key.")
    return Check("signature", True, f"Signed by {signer}; nothing was changed since.")


def has_signature(folder: Path) -> bool:
    """Say whether somebody says that this is signed."""
    return (folder / SIGNATURE).exists() or (folder / SIGNATURE).is_symlink()


def _name(signature: str, text: bytes, signers: Path) -> str | None:
    """Return the name of the signer in a list of signers of the user; None where the list lacks the key."""
    if not signers.is_file():
        raise BadRequest(f"There is no list of signers {signers}: write lines such as `alice ssh-ed25519 AAAA...`.")
    listed = _run(["-Y", "find-principals", "-s", signature, "-f", str(signers)], b"")
    names = listed.stdout.decode(errors="replace").splitlines()
    if listed.returncode or not names:
        return None
    options = ["-f", str(signers), "-I", names[0], "-n", NAMESPACE, "-s", signature]
    return None if _run(["-Y", "verify", *options], text).returncode else names[0]


def _run(arguments: list[str], text: bytes, seconds: float | None = _SECONDS) -> "subprocess.CompletedProcess[bytes]":
    program = shutil.which(_SSH_KEYGEN)
    if program is None:
        raise BadRequest("Signatures need ssh-keygen: install OpenSSH 8.2 or newer.")
    try:
        return subprocess.run([program, *arguments], input=text, capture_output=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadRequest(f"ssh-keygen did not answer ({error}): check the installation of OpenSSH.") from error


def _last_line(done: "subprocess.CompletedProcess[bytes]") -> str:
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else f"exit code {done.returncode}"


def _sha256(path: Path) -> str:
    try:
        shards.check_readable(path, shards.MOST_BYTES)
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError) as error:
        raise BadData(f"{path} cannot be read ({error}): fetch the submission again.") from error
