"""The models of the study, and what is known of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from robustassay import models as zoo
from robustassay.errors import BadRequest
from robustassay.studies.photographs import entry_of
from robustassay.studies.runs import is_available


@final
@dataclass(frozen=True)
class StudiedModel:
    """One model; comparisons that need an unknown fact leave it out."""

    name: str
    family: str
    parameters: int | None = None
    depth: int | None = None
    accuracy: float | None = None  # on the whole test set; measured on the study's images where unknown
    accuracy_source: str = "its card"

    @property
    def label(self) -> str:
        """Short name for tables and figures."""
        return self.name.removesuffix("-natural").rpartition(":")[2]


def choose(names: Sequence[str] | None) -> tuple[StudiedModel, ...]:
    """Return the models asked for, or all of the zoo that were trained on clean images only."""
    if names is None:
        names = [name for name in zoo.names() if zoo.card(name).recipe == "natural"]
    return tuple(_studied(name) for name in dict.fromkeys(names))


def _studied(name: str) -> StudiedModel:
    if not is_available(name):
        raise BadRequest(f"There is no model called {name!r}: see `assay list models`.")
    if name not in zoo.names():
        entry = entry_of(name)
        if entry is None or "|" in name:
            return StudiedModel(name, name)
        return StudiedModel(name, entry.family, entry.parameters, entry.depth, entry.top1, "its publisher")
    card = zoo.card(name)
    depth = card.architecture.get("depth")
    return StudiedModel(name, str(card.architecture["name"]), card.parameters, depth, card.clean_accuracy)
