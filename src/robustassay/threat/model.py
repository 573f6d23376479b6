"""A threat model: a norm with its radius, and how the attacker's target is chosen."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import torch
from torch import Tensor

from robustassay.errors import BadRequest
from robustassay.rng import Streams
from robustassay.threat.goals import Goal, Targeted, Untargeted
from robustassay.threat.norms import Norm


class TargetRule(ABC):
    """How each sample's target class is chosen, always another one than its true class."""

    @abstractmethod
    def choose(self, ids: Sequence[str], labels: Tensor, clean_logits: Tensor, seed: int) -> Tensor:
        """Choose one target class per sample."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """The text that identifies the rule in a run's specification."""

    @abstractmethod
    def check(self, ids: Sequence[str], labels: Tensor, classes: int) -> None:
        """Refuse invalid targets before the run starts."""


@final
@dataclass(frozen=True)
class RandomTarget(TargetRule):
    """A class drawn uniformly from all wrong ones, the same for a sample in every run with the same seed."""

    identity = "random"

    def choose(self, ids: Sequence[str], labels: Tensor, clean_logits: Tensor, seed: int) -> Tensor:
        """Draw a shift of 1 to classes - 1 and add it to the label."""
        classes = clean_logits.shape[-1]
        streams = Streams.of(seed, [f"target/{sample}" for sample in ids], labels.device)
        shift = 1 + streams.integers(classes - 1, 1).squeeze(1)
        return (labels + shift) % classes

    def check(self, ids: Sequence[str], labels: Tensor, classes: int) -> None:
        """Accept all: this rule always chooses a valid target."""


@final
@dataclass(frozen=True)
class LeastLikely(TargetRule):
    """The wrong class with the lowest logit on the clean image."""

    identity = "least-likely"

    def choose(self, ids: Sequence[str], labels: Tensor, clean_logits: Tensor, seed: int) -> Tensor:
        """Take the lowest logit among wrong classes."""
        return clean_logits.scatter(1, labels[:, None], float("inf")).argmin(1)

    def check(self, ids: Sequence[str], labels: Tensor, classes: int) -> None:
        """Accept all: this rule always chooses a valid target."""


@final
@dataclass(frozen=True)
class LabelList(TargetRule):
    """Targets given by sample id."""

    targets: Mapping[str, int] = field(repr=False)

    @property
    def identity(self) -> str:
        """Hash the pairs of sample and target."""
        pairs = "\n".join(f"{sample}\t{target}" for sample, target in sorted(self.targets.items()))
        return f"list:{hashlib.sha256(pairs.encode()).hexdigest()[:16]}"

    @classmethod
    def from_file(cls, path: Path, ids: Sequence[str]) -> "LabelList":
        """Read lines `sample_id,target`, or a bare target for each of the samples in order."""
        try:
            lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
            if lines and "," not in lines[0]:
                if len(lines) < len(ids):
                    raise BadRequest(
                        f"{path} has {len(lines)} targets for {len(ids)} samples: write one line per sample."
                    )
                return cls({sample: int(line) for sample, line in zip(ids, lines, strict=False)})
            return cls({sample: int(target) for sample, target in (line.rsplit(",", 1) for line in lines)})
        except (OSError, ValueError) as error:
            raise BadRequest(
                f"{path} must be a text file with a line `sample_id,target`, or just a whole number, for each sample."
            ) from error

    def choose(self, ids: Sequence[str], labels: Tensor, clean_logits: Tensor, seed: int) -> Tensor:
        """Return the target of each sample."""
        self.check(ids, labels, clean_logits.shape[-1])
        return torch.tensor([self.targets[sample] for sample in ids], device=labels.device)

    def check(self, ids: Sequence[str], labels: Tensor, classes: int) -> None:
        """Refuse missing samples, classes the model does not have, and the true class."""
        missing = [sample for sample in ids if sample not in self.targets]
        if missing:
            raise BadRequest(
                f"The target list has no class for sample {missing[0]!r} ({len(missing)} missing in all): "
                "give one line `sample_id,target` for each sample."
            )
        for sample, label in zip(ids, labels.tolist(), strict=True):
            target = self.targets[sample]
            if not 0 <= target < classes or target == label:
                raise BadRequest(
                    f"The target class {target} of sample {sample!r} must be one of the model's classes "
                    f"0 to {classes - 1} and differ from its true class: correct the target list."
                )


@final
@dataclass(frozen=True)
class ThreatModel:
    """A norm with its radius, and a goal: any wrong label, or the target that a rule chooses."""

    norm: Norm
    target: TargetRule | None = None

    def __str__(self) -> str:
        return f"{self.norm}" if self.target is None else f"{self.norm} targeted {self.target.identity}"

    def goal(self, ids: Sequence[str], labels: Tensor, clean_logits: Tensor, seed: int) -> Goal:
        """State the goal of each sample."""
        if self.target is None:
            return Untargeted(labels)
        return Targeted(self.target.choose(ids, labels, clean_logits, seed))
