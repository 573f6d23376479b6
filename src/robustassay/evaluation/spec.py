"""What a run is: everything that changes its results and nothing else, hashed into a key."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, final

SPEC_VERSION: Final = 4
"""Raise this whenever the same specification would give other records than before."""


@final
@dataclass(frozen=True)
class RunSpec:
    """The identity of a run.

    Which samples are asked for is not part of it: a sample's record does not depend on the others, so a run of
    500 samples can be extended to 1,000. Nor are batch size and workers, which
    change no bit on one device, nor the device, which is named in the manifest.
    """

    model: Mapping[str, Any]
    data: Mapping[str, Any]
    threat: Mapping[str, Any]
    attack: Mapping[str, Any]
    seed: int
    version: int = SPEC_VERSION

    @property
    def canonical(self) -> str:
        """Write the specification in the one form that is hashed."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)

    @property
    def key(self) -> str:
        """Return the first 16 hex digits of the SHA-256 of the canonical form."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()[:16]
