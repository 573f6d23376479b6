"""The specification of a run: everything that changes its results and nothing else, hashed into a key."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, final

from robustassay.errors import WrongFolder

SPEC_VERSION: Final = 6
"""Raise this whenever the same specification gives other records than before."""


@final
@dataclass(frozen=True)
class RunSpec:
    """The identity of a run.

    The set of samples is not part of it: a sample's record does not depend on the others, so a run of 500 samples can
    be extended to 1,000. Batch size and workers are not part of it either: they change no bit on one device. The device
    is named in the manifest.
    """

    model: Mapping[str, Any]
    data: Mapping[str, Any]
    threat: Mapping[str, Any]
    attack: Mapping[str, Any]
    seed: int
    version: int = SPEC_VERSION

    @property
    def canonical(self) -> str:
        """The text that is hashed."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)

    @property
    def key(self) -> str:
        """The first 16 hex digits of the SHA-256 of the canonical text."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()[:16]


def check_version(manifest: Mapping[str, Any], folder: Path) -> None:
    """Refuse a run that another version wrote, whose records mean something else."""
    spec, software = (held if isinstance(held := manifest.get(name), Mapping) else {} for name in ("spec", "software"))
    version = spec.get("version")
    if version != SPEC_VERSION:
        writer = software.get("robustassay") or software.get("assay") or "of unknown number"
        raise WrongFolder(
            f"{folder} was written by version {writer} (run format {version}; this version has {SPEC_VERSION}): choose "
            "another folder with --out and evaluate again."
        )
