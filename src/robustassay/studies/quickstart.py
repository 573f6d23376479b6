"""The study behind `assay run`: small embedded models against gradient attacks, on embedded images."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from robustassay.data import load
from robustassay.evaluation import Result, evaluate
from robustassay.evaluation.progress import Progress
from robustassay.store import Store
from robustassay.studies.study import Plan
from robustassay.studies.task import UNKNOWN_COST, Key, Results, Task, TaskCost
from robustassay.threat import L2, LInf, Norm

DATA: Final = "cifar10-1k"
MODELS: Final = ("resnet20-natural", "resnet56-natural", "resnet20-pgd", "resnet20x2-pgd")
"""The embedded models that two cores attack in about a minute each; `resnet20x4-pgd` takes longer."""

THREATS: Final[tuple[tuple[Norm, tuple[str, ...]], ...]] = (
    (LInf(8 / 255), ("uniform-noise", "fgsm", "bim", "mim", "pgd:steps=20,rel_step=0.25")),
    (L2(0.5), ("uniform-noise", "fg", "bim", "mim", "pgd:steps=20,rel_step=0.25")),
)


@final
@dataclass(frozen=True)
class QuickstartRun(Task):
    """One attack on one model; images are kept of the strongest attack only."""

    model: str
    norm: Norm
    attack: str
    out: Path
    limit: int | None
    seed: int

    @property
    def key(self) -> Key:
        """Name of the result."""
        return self.model, self.norm.name, self.attack

    @property
    def folder(self) -> Path:
        """Where the run is stored."""
        return self.out / self.model / self.norm.name.lower() / self.attack.partition(":")[0]

    def missing(self) -> int:
        """Count the samples that have no record yet."""
        store, ids = Store(self.folder), load(DATA).take(self.limit).ids
        done = store.done() if store.exists() else frozenset()
        return sum(sample not in done for sample in ids)

    def cost(self) -> TaskCost:
        """Return no estimate: the whole study takes minutes."""
        return UNKNOWN_COST

    def run(self, results: Results, progress: Progress) -> Result:
        """Evaluate the missing samples; a finished run is read."""
        return evaluate(
            self.model,
            DATA,
            self.norm,
            self.attack,
            limit=self.limit,
            seed=self.seed,
            out=self.folder,
            keep_images=self.attack.startswith("pgd"),
            progress=progress,
        )


def declared_runs(
    out: Path, limit: int | None, seed: int, models: tuple[str, ...] | None = None
) -> tuple[QuickstartRun, ...]:
    """List the runs, model by model."""
    return tuple(
        QuickstartRun(model, norm, attack, out, limit, seed)
        for model in models or MODELS
        for norm, attacks in THREATS
        for attack in attacks
    )


def plan(runs: tuple[QuickstartRun, ...]) -> Plan[list[Result]]:
    """Plan runs; their results come in the same order."""
    return Plan(runs, lambda results: list(results.values()))
