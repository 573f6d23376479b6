"""Does the study's work, each piece once: makes the sets of examples and shows them to every model."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, final

import pandas as pd
import torch
from torch import Tensor

from robustassay.attacks import FG, FGSM
from robustassay.attacks.gradient.liu import Liu
from robustassay.data import Dataset
from robustassay.errors import BadRequest
from robustassay.evaluation.progress import Progress
from robustassay.studies.cache import TableCache
from robustassay.studies.crafting import Crafting, LoadedModel
from robustassay.studies.liu2017.plan import Kind, Scale
from robustassay.studies.measures import line_search
from robustassay.studies.measures.geometry import unit
from robustassay.studies.measures.transfer_matrix import Examples, meet, ranks
from robustassay.target import EnsembleModel, TargetModel
from robustassay.threat import L2, Goal, LInf, Norm, RandomTarget, Targeted, ThreatModel, Untargeted, labels_of
from robustassay.threat.rmsd import l2_of_rmsd, rmsd

CLEAN: Final = "clean images"
EVERYWHERE: Final = LInf(1.0)
"""The radius of an attack that is not held back: the pixel box itself."""


@final
@dataclass(frozen=True, eq=False)
class Bench:
    """The models, the images that all of them know, and where finished work lies."""

    members: dict[str, LoadedModel]
    dataset: Dataset = field(repr=False)  # all that may be chosen from
    scale: Scale
    out: Path
    seed: int
    progress: Progress = field(repr=False)

    @property
    def cache(self) -> TableCache:
        """Where finished tables lie."""
        return TableCache(self.out / "work")

    @property
    def networks(self) -> dict[str, TargetModel]:
        """The models as they are asked."""
        return {name: member.network for name, member in self.members.items()}

    @cached_property
    def clean(self) -> pd.DataFrame:
        """What each model says of every image: columns model, sample_id, label, label_rank."""
        told = [self.dataset.sha256, list(self.dataset.ids), self._identities]
        return self.cache.frame("clean", told, lambda: self.watched(CLEAN, self._look))

    @cached_property
    def images(self) -> Dataset:
        """The first images that all models classify correctly, as many as are asked for."""
        wrong = set(self.clean.loc[self.clean["label_rank"] > 0, "sample_id"])
        rows = [row for row, sample in enumerate(self.dataset.ids) if sample not in wrong]
        if not rows:
            raise BadRequest("No image is classified correctly by all models: take more images, or other models.")
        return self.dataset.select(rows[: self.scale.images])

    @cached_property
    def x(self) -> Tensor:
        """The chosen images themselves."""
        return self.images.images(slice(None)).to(self._device)

    def goal(self, targeted: bool) -> Goal:
        """Return what attacks on the chosen images want; targets are drawn, the same for all models."""
        labels = self.images.labels.to(self._device)
        if not targeted:
            return Untargeted(labels)
        blank = torch.zeros(len(labels), len(self.dataset.classes), device=self._device)
        return Targeted(RandomTarget().choose(self.images.ids, labels, blank, self.seed))

    def sources(self, kind: Kind) -> dict[str, tuple[LoadedModel, ...]]:
        """Return the members that each row of a set is made on, by the row's name."""
        if not kind.ensemble:
            return {name: (member,) for name, member in self.members.items()}
        return {
            f"-{left}": tuple(member for name, member in self.members.items() if name != left) for left in self.members
        }

    def outcomes(self, kind: Kind) -> pd.DataFrame:
        """Return what a set of examples does to every model, with a column `rmsd` (see `analysis.transfer`)."""
        return self.cache.frame(kind.name, self.told(kind), lambda: self._outcomes(kind))

    def told(self, kind: Kind) -> list[object]:
        """Return all that a set's outcomes depend on."""
        base = [kind.name, self.dataset.sha256, list(self.images.ids), self._identities, self.seed]
        return [
            *base,
            self.scale.steps,
            *(self.scale.rate_of(each, len(self.members)) for each in (kind, kind.paced_by)),
        ]

    def examples(self, kind: Kind, source: str) -> Examples:
        """Return the examples of one row of a set, from its folder."""
        crafting = self.crafting(kind, source)
        return crafting.examples(self.folder(kind, crafting), self.progress)

    def folder(self, kind: Kind, crafting: Crafting) -> Path:
        """Return the folder of one source's examples."""
        place = crafting.source.replace(":", "-").replace("|", "-").replace("/", "-")
        return self.out / "examples" / kind.name / f"{place}-{crafting.spec.key[:8]}"

    def crafting(self, kind: Kind, source: str) -> Crafting:
        """Say how the examples of one source are made; a fast gradient goes as far as optimisation did on average."""
        members, rule = self.sources(kind)[source], RandomTarget() if kind.targeted else None
        if kind.method.startswith("opt"):
            attack: Any = Liu(self.scale.steps, self.scale.rate_of(kind, len(members)) / 255)
            threat, join = ThreatModel(EVERYWHERE, rule), "updates" if kind.ensemble else "probabilities"
            return Crafting(source, members, attack, threat, self.images, self.seed, join)  # type: ignore[arg-type]
        pace = self.outcomes(kind.paced_by)
        wanted = float(pace.loc[pace["source"] == source, "rmsd"].mean())
        fast = FG() if kind.method == "fg" else FGSM()
        norm = self._matched(kind, source, wanted)
        return Crafting(source, members, fast, ThreatModel(norm, rule), self.images, self.seed)

    def direction(self, kind: Kind, source: str) -> Tensor:
        """Return the way a fast gradient set goes, of unit RMS."""
        members = self.sources(kind)[source]
        whole = members[0].network if len(members) == 1 else EnsembleModel([member.network for member in members])
        slope, _ = whole.gradient(self.x, lambda logits, goal: goal.loss(logits), self.goal(kind.targeted))
        return unit(slope if kind.method == "fg" else slope.sign())

    def watched(self, title: str, make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        """Do a piece of work under its name."""
        self.progress.start(title, len(self.dataset) if title == CLEAN else len(self.images), 0)
        try:
            return make()
        finally:
            self.progress.finish()

    def _matched(self, kind: Kind, source: str, wanted: float) -> Norm:
        """Return the radius at which a fast gradient's images lie `wanted` away on average."""
        way = self.direction(kind, source)
        strength = line_search.matched(lambda strength: line_search.along(self.x, way, strength), self.x, wanted)
        return LInf(min(1.0, strength / 255)) if kind.method == "fgs" else L2(l2_of_rmsd(strength, self.x[0].numel()))

    def _outcomes(self, kind: Kind) -> pd.DataFrame:
        made = {source: self.examples(kind, source) for source in self.sources(kind)}
        modules = {name: member.network.module for name, member in self.members.items()}
        found = meet(made, modules, device=self._device)
        far = {source: rmsd(each.x_adv, each.x).tolist() for source, each in made.items()}
        return found.assign(rmsd=[far[source][at] for source, at in zip(found["source"], found["sample"], strict=True)])

    def _look(self) -> pd.DataFrame:
        return pd.concat(list(self._seen()), ignore_index=True)

    def _seen(self) -> Iterator[pd.DataFrame]:
        labels = self.dataset.labels
        for name, network in self.networks.items():
            _check(name, network, self.dataset.images(slice(0, 8)).to(self._device))
            logits = network.logits(self.dataset.images(slice(None)).to(self._device)).cpu()
            columns = {"label": labels.numpy(), "said": labels_of(logits).numpy(), "label_rank": ranks(logits, labels)}
            yield pd.DataFrame({"model": name, "sample_id": list(self.dataset.ids), **columns})

    @property
    def _identities(self) -> list[object]:
        return [[name, member.identity] for name, member in self.members.items()]

    @property
    def _device(self) -> torch.device:
        return next(iter(self.members.values())).network.device


def _check(name: str, network: TargetModel, x: Tensor) -> None:
    """Refuse models that this study would be wrong about."""
    with torch.no_grad():
        first, second = (network.module(x) for _ in range(2))
    if first.shape[1] != network.classes:
        raise BadRequest(f"{name} knows {first.shape[1]} classes and the data {network.classes}: name other models.")
    if not torch.equal(first, second):
        raise BadRequest(f"{name} draws random numbers, so what it says of an example is no fact: name another model.")
