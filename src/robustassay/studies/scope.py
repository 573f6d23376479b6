"""The scope of a study: which part of a paper, on which models and images, and where results go."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar, final

from robustassay.data import Dataset

S = TypeVar("S")
"""The settings of a paper."""

DatasetName = Literal["cifar10", "imagenet"]
ScopeName = Literal["full", "quick", "imagenet", "imagenet-quick"]


@final
@dataclass(frozen=True)
class ExtraData:
    """Data beside the test images, for papers that use it."""

    members: str | None = None  # a dataset that the models were trained on, for membership inference
    shift: tuple[str, ...] = ()  # datasets of the same classes
    ood: tuple[str, ...] = ()  # out-of-distribution datasets
    published: tuple[Path, ...] = ()  # folders of published leaderboard entries, beside the embedded ones
    robust_limit: int | None = None  # images under attack for models that do not fall at once

    @property
    def words(self) -> list[str]:
        """The options of the command line; of a path the last part, as folders differ between machines."""
        named = {"--members": (self.members,) if self.members else (), "--shift": self.shift, "--ood": self.ood}
        words = [f"{option} {' '.join(Path(name).name for name in names)}" for option, names in named.items() if names]
        return words + ([] if self.robust_limit is None else [f"--robust-limit {self.robust_limit}"])


@final
@dataclass(frozen=True)
class Scope:
    """Which part of a paper to repeat; what is not given is the paper's own choice."""

    out: Path
    dataset: DatasetName = "cifar10"
    quick: bool = False
    data: str | None = None
    limit: int | None = None
    models: tuple[str, ...] = ()
    seed: int = 0
    device: str | None = None
    extra: ExtraData = ExtraData()

    @property
    def name(self) -> ScopeName:
        """The name that a paper lists the settings of this scope under."""
        if self.dataset == "imagenet":
            return "imagenet-quick" if self.quick else "imagenet"
        return "quick" if self.quick else "full"

    @property
    def on_imagenet(self) -> bool:
        """Whether the models are for ImageNet."""
        return self.dataset == "imagenet"

    def command(self, study: str) -> str:
        """Return the command that a study of this scope is repeated with; folders of this machine are left out."""
        kind, colon, _ = (self.data or "").partition(":")
        data = f"{kind}:FOLDER" if colon else self.data
        options = {"--dataset": self.dataset if self.on_imagenet else None, "--data": data, "--limit": self.limit}
        words = [f"{option} {value}" for option, value in options.items() if value is not None]
        names = [Path(name).name if Path(name).is_absolute() else name for name in self.models]
        if names:
            words.append("--models " + " ".join(f'"{name}"' if set(" |&") & set(name) else name for name in names))
        words += [f"--device {self.device}"] * bool(self.device)
        words += [f"--seed {self.seed}"] * bool(self.seed) + ["--quick"] * self.quick
        return " ".join(["assay study", study, *words, *self.extra.words])

    def settings(self, by_name: Mapping[ScopeName, S]) -> S:
        """Choose the settings of this scope."""
        return by_name[self.name]

    def whole_dataset(self) -> Dataset:
        """Load the dataset, all images of it."""
        from robustassay import data as datasets

        return datasets.load(self.data or ("imagenet" if self.on_imagenet else "cifar10-1k"))

    def images(self, default: int | None) -> Dataset:
        """Load the first images: as many as asked for, else the default number, else all."""
        whole = self.whole_dataset()
        return whole.take(min(default or len(whole), len(whole)) if self.limit is None else self.limit)
