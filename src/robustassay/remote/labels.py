"""Maps the labels of a service to the classes of the data."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from robustassay.errors import BadRequest, ModelFailed
from robustassay.printable import escape, shorten
from robustassay.remote.adapter import Adapter
from robustassay.remote.public_form import HIDDEN
from robustassay.remote.response_formats import Answer

FLOOR: Final = 1e-12
"""Stands for a probability that is shown as zero, whose logarithm would be infinite."""


@final
@dataclass(frozen=True)
class LabelMap:
    """From labels to classes; labels outside the data may count as one more class, which is always wrong."""

    classes: tuple[str, ...]
    meaning: Mapping[str, int]
    outside_is_wrong: bool
    kind: str

    @classmethod
    def of(cls, adapter: Adapter, classes: Sequence[str], seen: Sequence[str] = ()) -> "LabelMap":
        """Use the adapter's mapping, else the exact names of the classes, or their numbers.

        Data whose classes are numbers may lack the last classes of the service; `seen` are labels of the service.
        """
        wanted = seen if adapter.label_map is None else [str(name) for name in adapter.label_map.values()]
        if list(classes) == [str(index) for index in range(len(classes))]:
            numbers = [int(label) for label in wanted if label.isascii() and label.isdigit() and len(label) < 6]
            classes = [str(index) for index in range(max([len(classes) - 1, *numbers]) + 1)]
        known = {str(index): index for index in range(len(classes))} | {name: i for i, name in enumerate(classes)}
        if adapter.label_map is None:
            meaning = {escape(name): index for name, index in known.items()}
            return cls(tuple(classes), meaning, adapter.outside == "wrong", adapter.kind)
        unknown = sorted(set(wanted) - known.keys())
        if unknown:
            raise BadRequest(
                f"The label mapping names {unknown[0]!r}, which is no class of the data: use {', '.join(classes[:12])}."
            )
        meaning = {escape(label): known[str(name)] for label, name in adapter.label_map.items()}
        return cls(tuple(classes), meaning, adapter.outside == "wrong", adapter.kind)

    @property
    def count(self) -> int:
        """How many classes there are, the one outside included."""
        return len(self.classes) + self.outside_is_wrong

    def logits(self, answers: Sequence[Answer]) -> Tensor:
        """Return one row of logits per answer, with the class of the first label highest."""
        return torch.tensor([self._row(answer) for answer in answers], dtype=torch.float32).view(-1, self.count)

    def _row(self, answer: Answer) -> list[float]:
        """Give each class the highest score of its labels.

        Classes without a label share the remaining probability evenly, or get a score below the lowest one.
        """
        first = self._class_of(answer.labels[0])
        if answer.scores is None:
            return [float(index == first) for index in range(self.count)]
        shown: dict[int, float] = {}
        for label, score in zip(answer.labels, answer.scores, strict=True):
            index = self._class_of(label)
            shown[index] = max(shown.get(index, -math.inf), score)
        lowest, hidden = min(answer.scores), self.count - len(shown)
        if self.kind == "probabilities":
            rest = min(lowest, max(0.0, 1 - math.fsum(answer.scores)) / max(1, hidden))
            row = [math.log(max(shown.get(index, rest), FLOOR)) for index in range(self.count)]
        else:
            row = [shown.get(index, lowest - 1) for index in range(self.count)]
        return _with_highest(first, row)

    def _class_of(self, label: str) -> int:
        if label in self.meaning:
            return self.meaning[label]
        if self.outside_is_wrong:
            return len(self.classes)
        raise ModelFailed(
            f"The service says '{shorten(label)}', which is no class of the data: map its labels in the adapter file, "
            'or let labels outside count as wrong ([labels] outside = "wrong").'
            f"{' Here *** stands for a secret of the adapter.' * (HIDDEN in label)}"
        )


def _with_highest(first: int, row: list[float]) -> list[float]:
    """Where a tie would give the label to another class, raise the service's own choice by one rounding step."""
    best = max(range(len(row)), key=lambda index: (torch.tensor(row[index]).item(), -index))
    if best != first:
        lead = torch.nextafter(torch.tensor(max(row)), torch.tensor(math.inf))
        row[first] = float(lead)
    return row
