"""The embedded default: small embedded models against the gradient attacks, on embedded images."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from robustassay.errors import Interrupted
from robustassay.evaluation import Result, evaluate
from robustassay.evaluation.interrupt import graceful_interrupt
from robustassay.evaluation.progress import Progress
from robustassay.threat import L2, LInf, Norm

DATA: Final = "cifar10-1k"
MODELS: Final = ("resnet20-natural", "resnet56-natural", "resnet20-pgd", "resnet20x2-pgd")
"""The embedded models that two cores can attack in a minute or so each; `resnet20x4-pgd` takes longer."""
THREATS: Final[tuple[tuple[Norm, tuple[str, ...]], ...]] = (
    (LInf(8 / 255), ("uniform-noise", "fgsm", "bim", "mim", "pgd:steps=20,rel_step=0.25")),
    (L2(0.5), ("uniform-noise", "fg", "bim", "mim", "pgd:steps=20,rel_step=0.25")),
)


@final
@dataclass(frozen=True)
class Cell:
    """One run of the study."""

    model: str
    norm: Norm
    attack: str

    @property
    def folder(self) -> Path:
        """Where the run lives inside the study's folder."""
        return Path(self.model) / self.norm.name.lower() / self.attack.partition(":")[0]


def cells(model_names: tuple[str, ...] | None = None) -> list[Cell]:
    """List the runs, model by model."""
    names = model_names or MODELS
    return [Cell(name, norm, attack) for name in names for norm, attacks in THREATS for attack in attacks]


def run(
    out: Path, limit: int | None, seed: int, progress: Progress, model_names: tuple[str, ...] | None = None
) -> Iterator[tuple[Cell, Result]]:
    """Run each cell, or read it where it is finished; images are kept of the strongest attack only."""
    for cell in cells(model_names):
        with graceful_interrupt() as stop:
            result = evaluate(
                cell.model,
                DATA,
                cell.norm,
                cell.attack,
                limit=limit,
                seed=seed,
                out=out / cell.folder,
                keep_images=cell.attack.startswith("pgd"),
                progress=progress,
            )
        yield cell, result
        if stop.asked:
            raise Interrupted("Stopped between two runs: run the same command again to resume.")
