"""Calibration diagrams, from the tables that `assay analyze --what calibration` and studies write."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import pandas as pd

BINS: Final = "reliability.csv"
ERRORS: Final = "calibration.csv"
_BIN_COLUMNS: Final = {"model", "low", "high", "images", "confidence", "accuracy"}
_ERROR_COLUMNS: Final = {"model", "ece", "ece_low", "ece_high", "temperature"}


@final
@dataclass(frozen=True)
class Reliability:
    """Confidence and accuracy of one model, by bins of confidence."""

    ece: float
    interval: tuple[float, float]
    temperature: float
    images: int
    bins: tuple[tuple[float, float, int], ...]  # mean confidence, accuracy, images; empty bins are left out

    def to_json(self) -> dict[str, Any]:
        """Return the diagram as plain data."""
        return {
            "kind": "reliability",
            "bins": [[round(confidence, 4), round(accuracy, 4), n] for confidence, accuracy, n in self.bins],
            "images": self.images,
        }


def find_reliabilities(places: Sequence[Path]) -> dict[str, Reliability]:
    """Find the diagrams in these places or below them, by the name of the model; the last one found wins."""
    return {name: one for place in places for path in sorted(place.rglob(BINS)) for name, one in _read(path)}


def _read(path: Path) -> Iterator[tuple[str, Reliability]]:
    try:
        bins, errors = pd.read_csv(path), pd.read_csv(path.with_name(ERRORS))
    except (OSError, ValueError):
        return  # some other program's table
    if not (set(bins) >= _BIN_COLUMNS and set(errors) >= _ERROR_COLUMNS):
        return
    for row in errors.to_dict("records"):
        own = bins[(bins["model"] == row["model"]) & (bins["images"] > 0)]
        held = zip(own["confidence"], own["accuracy"], own["images"], strict=True)
        yield (
            str(row["model"]),
            Reliability(
                ece=float(row["ece"]),
                interval=(float(row["ece_low"]), float(row["ece_high"])),
                temperature=float(row["temperature"]),
                images=int(own["images"].sum()),
                bins=tuple((float(confidence), float(accuracy), int(n)) for confidence, accuracy, n in held),
            ),
        )
