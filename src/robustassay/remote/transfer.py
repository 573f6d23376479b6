"""Adversarial examples of other models, sent to a service: section 7 of Liu et al. 2017 (arXiv:1611.02770)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from robustassay.errors import BadRequest
from robustassay.remote.service import Service


@final
@dataclass(frozen=True)
class Submitted:
    """The answer of a service to one image, and to its clean original."""

    label: str  # of the service
    predicted: int  # the class of the data that this means; the number of classes stands for none of them
    truth: int
    target: int | None
    clean_label: str | None
    clean_predicted: int | None
    labels: tuple[str, ...] = ()  # all that the service returned, in its order
    clean_labels: tuple[str, ...] = ()

    @property
    def counts(self) -> bool:
        """Whether the clean image was classified correctly, or not sent: else an error proves nothing."""
        return self.clean_predicted in (None, self.truth)

    @property
    def wrong(self) -> bool:
        """Whether the label is not the true one."""
        return self.predicted != self.truth

    @property
    def matches(self) -> bool:
        """Whether the label is the one the attacker chose."""
        return self.target is not None and self.predicted == self.target


@final
@dataclass(frozen=True)
class ServiceTransfer:
    """Transfer rates, over the images whose clean original the service classified correctly."""

    images: tuple[Submitted, ...]

    @property
    def counted(self) -> int:
        """How many images the rates count."""
        return sum(image.counts for image in self.images)

    @property
    def error_rate(self) -> float:
        """Fraction of images with a wrong label; NaN without images."""
        return self._rate([image.wrong for image in self.images])

    @property
    def matching_rate(self) -> float:
        """Fraction of images with the target label; NaN for untargeted examples."""
        aimed = any(image.target is not None for image in self.images)
        return self._rate([image.matches for image in self.images]) if aimed else float("nan")

    def _rate(self, hits: list[bool]) -> float:
        counted = [hit for hit, image in zip(hits, self.images, strict=True) if image.counts]
        return sum(counted) / len(counted) if counted else float("nan")

    def __str__(self) -> str:
        aimed = f", matching rate {self.matching_rate:.1%}" if self.matching_rate == self.matching_rate else ""
        return f"error rate {self.error_rate:.1%}{aimed} ({self.counted} of {len(self.images)} images counted)"


def submit(
    service: Service,
    x_adv: Tensor,
    labels: Tensor,
    classes: Sequence[str],
    targets: Tensor | None = None,
    x0: Tensor | None = None,
) -> ServiceTransfer:
    """Send each image once, and its clean original where given, and compare the labels."""
    if len(x_adv) != len(labels) or any(more is not None and len(more) != len(x_adv) for more in (targets, x0)):
        raise BadRequest("The numbers of images, labels, targets and clean images must be equal.")
    meaning = service.learn_classes(classes)

    def ask(x: Tensor) -> list[tuple[tuple[str, ...], int]]:
        answers = service.answers(x, "transfer")
        return [
            (answer.labels, predicted)
            for answer, predicted in zip(answers, meaning.logits(answers).argmax(1).tolist(), strict=True)
        ]

    clean: Sequence[tuple[tuple[str, ...], int | None]] = [((), None)] * len(x_adv) if x0 is None else ask(x0)
    aims: Sequence[int | None] = [None] * len(x_adv) if targets is None else torch.as_tensor(targets).tolist()
    rows = zip(ask(x_adv), clean, labels.tolist(), aims, strict=True)
    return ServiceTransfer(
        tuple(
            Submitted(said[0], predicted, truth, aim, before[0] if before else None, clean_predicted, said, before)
            for (said, predicted), (before, clean_predicted), truth, aim in rows
        )
    )
