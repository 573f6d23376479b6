"""The models, the images that all of them classify correctly, and the sets of examples, each computed once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from robustassay.attacks import FG, FGSM
from robustassay.attacks.gradient.liu import Liu
from robustassay.data import Dataset
from robustassay.errors import BadRequest
from robustassay.evaluation.progress import NoProgress, Progress
from robustassay.studies.cache import CachedTable
from robustassay.studies.crafting import Crafting, LoadedModel
from robustassay.studies.liu2017.settings import NEEDED, ExampleSet, LiuSettings
from robustassay.studies.measures import line_search
from robustassay.studies.measures.geometry import unit
from robustassay.studies.measures.transfer_matrix import Examples, ranks, transfer_outcomes
from robustassay.studies.photographs import check_framed_once
from robustassay.target import EnsembleModel, TargetModel
from robustassay.threat import L2, Ball, Goal, LInf, Norm, RandomTarget, Targeted, ThreatModel, Untargeted, labels_of
from robustassay.threat.rmsd import l2_of_rmsd, rmsd

UNBOUNDED: Final = LInf(1.0)
"""The radius of an attack without a budget: the whole pixel box."""

SURE: Final = 0.9
"""Confidence of a model that is far from a boundary."""

STRETCH: Final = 16
"""Longest step of FG, in multiples of the whole range of pixels."""

SMALLEST: Final = 1e-6
"""Strength that stands for none: a radius must be positive."""

AT_ONCE: Final = 16
"""Images that are moved together in the search of a radius: few stay in the caches."""

NO_PROGRESS: Final = NoProgress()


@final
@dataclass(frozen=True, eq=False)
class LiuExperiment:
    """What the study measures on. Every method reads the cache and computes only what is not there."""

    models: dict[str, LoadedModel]
    dataset: Dataset = field(repr=False)  # the images to choose from
    settings: LiuSettings
    out: Path
    seed: int
    families: Mapping[str, str] = field(default_factory=dict)  # of models, where known
    _norms: dict[tuple[ExampleSet, str, float], Norm] = field(default_factory=dict, init=False, repr=False)
    _last_gradient: dict[tuple[bool, str], Tensor] = field(default_factory=dict, init=False, repr=False)

    def table(self, name: str, depends_on: object) -> CachedTable:
        """Return a table of the study's cache."""
        return CachedTable(self.out / "cache", name, depends_on)

    @property
    def targets(self) -> dict[str, TargetModel]:
        """The models as they are queried."""
        return {name: model.target for name, model in self.models.items()}

    @cached_property
    def clean(self) -> pd.DataFrame:
        """What each model predicts for every image: columns model, sample_id, label, said, confidence, label_rank."""
        table = self.table("clean", ["confidence", self.dataset.sha256, list(self.dataset.ids), self._identities])
        return table.get(lambda: pd.concat(list(self._predictions()), ignore_index=True))

    @cached_property
    def images(self) -> Dataset:
        """The first images that all models classify correctly, as many as are asked for."""
        wrong = set(self.clean.loc[self.clean["label_rank"] > 0, "sample_id"])
        rows = [row for row, sample in enumerate(self.dataset.ids) if sample not in wrong]
        if not rows:
            raise BadRequest("No image is classified correctly by all models: take more images, or other models.")
        return self.dataset.select(rows[: self.settings.sizes.images])

    @cached_property
    def sure(self) -> list[int]:
        """The rows of images of which all models are sure, else the one they are surest of.

        Around an image next to a boundary there is no region to see.
        """
        least = self.clean.groupby("sample_id")["confidence"].min().loc[list(self.images.ids)].to_numpy(float)
        return np.flatnonzero(least >= SURE).tolist() or [int(least.argmax())]

    @property
    def reference(self) -> tuple[str, str]:
        """The source and the target of the paper's examples: a VGG, and the first model of another family."""
        names = list(self.models)
        source = next((name for name in names if "vgg" in name.lower()), names[0])
        others = [name for name in names if name != source]
        return source, next((name for name in others if self.family(name) != self.family(source)), others[0])

    def family(self, name: str) -> str:
        """Return the family of a model; a model of unknown family is one by itself."""
        return self.families.get(name, name)

    @cached_property
    def x(self) -> Tensor:
        """The chosen images as a tensor."""
        return self.images.images(slice(None)).to(self._device)

    def goal(self, targeted: bool) -> Goal:
        """Return the goal on the chosen images; targets are random, the same for all models."""
        labels = self.images.labels.to(self._device)
        if not targeted:
            return Untargeted(labels)
        blank = torch.zeros(len(labels), len(self.dataset.classes), device=self._device)
        return Targeted(RandomTarget().choose(self.images.ids, labels, blank, self.seed))

    def finished(self) -> "LiuExperiment":
        """Return the experiment without the sets that a page can do without and that are not finished."""
        sets = self.settings.example_sets()
        left_out = {one.name for one in sets if one.name not in NEEDED and not self.outcome_table(one).exists()}
        return replace(self, settings=replace(self.settings, without=self.settings.without | left_out))

    # ---------------------------------------------------------------- sets of examples

    def sources(self, example_set: ExampleSet) -> dict[str, tuple[LoadedModel, ...]]:
        """Return the models that each source of a set consists of; `-name` is the ensemble of all but that one."""
        if not example_set.ensemble:
            return {name: (model,) for name, model in self.models.items()}
        return {
            f"-{left_out}": tuple(model for name, model in self.models.items() if name != left_out)
            for left_out in self.models
        }

    def outcomes(self, example_set: ExampleSet) -> pd.DataFrame:
        """Return what a set of examples does to every model, with a column `rmsd` (see `analysis.transfer`)."""
        return self.outcome_table(example_set).get(lambda: self._outcomes(example_set))

    def outcome_table(self, example_set: ExampleSet) -> CachedTable:
        """Return the cached table of a set's outcomes."""
        return self.table(example_set.name, self.depends_on(example_set))

    def depends_on(self, example_set: ExampleSet) -> list[object]:
        """Return everything that the outcomes of a set depend on."""
        ids = list(self.samples(example_set).ids)
        base = [example_set.name, self.dataset.sha256, ids, self._identities, self.seed]
        settings = self.settings
        rates = [settings.rates.of(each) for each in (example_set, example_set.matched_to)]
        return [*base, settings.sizes.steps, *rates, settings.weight_of(example_set)]

    def samples(self, example_set: ExampleSet) -> Dataset:
        """Return the images of a set, the first ones."""
        return self.images.take(min(self.settings.images_of(example_set), len(self.images)))

    def examples(self, example_set: ExampleSet, source: str, progress: Progress = NO_PROGRESS) -> Examples:
        """Return the examples of one source, from its folder."""
        crafting = self.crafting(example_set, source)
        return crafting.examples(self.folder(example_set, crafting), progress)

    def folder(self, example_set: ExampleSet, crafting: Crafting) -> Path:
        """Return the folder of one source's examples."""
        return self.out / "examples" / example_set.name / f"{_in_folders(crafting.source)}-{crafting.spec.key[:8]}"

    def is_begun(self, example_set: ExampleSet, source: str) -> bool:
        """Say whether there is a folder of a source's examples, perhaps of other settings: this needs no radius."""
        return any((self.out / "examples" / example_set.name).glob(f"{_in_folders(source)}-????????"))

    def crafting(self, example_set: ExampleSet, source: str) -> Crafting:
        """Return how the examples of one source are crafted.

        FG, FGS and the alternative objective get the average RMSD that optimisation reached on the same source.
        """
        models, rule = self.sources(example_set)[source], RandomTarget() if example_set.targeted else None
        samples = self.samples(example_set)
        if example_set.method.startswith("opt"):
            threat = ThreatModel(UNBOUNDED, rule)
            updates = "updates on the loss of the mean" if example_set.method == "opt-mean" else "updates"
            join = updates if example_set.ensemble else "probabilities"
            attack = self._optimisation(example_set, source)
            return Crafting(source, models, attack, threat, samples, self.seed, join)  # type: ignore[arg-type]
        fast: Any = FG() if example_set.method == "fg" else FGSM()
        threat = ThreatModel(self.matched_norm(example_set, source, self.wanted(example_set, source)), rule)
        return Crafting(source, models, fast, threat, samples, self.seed)

    def wanted(self, example_set: ExampleSet, source: str) -> float:
        """Return the average RMSD that optimisation reached on a source, on the images of a set."""
        reference = self.outcomes(example_set.matched_to)
        own = (reference["source"] == source) & (reference["sample"] < len(self.samples(example_set)))
        return float(reference.loc[own, "rmsd"].mean())

    def _optimisation(self, example_set: ExampleSet, source: str) -> Liu:
        settings = self.settings
        weight = settings.weight_of(example_set)
        tau = self.wanted(example_set, source) if example_set.method == "opt-tau" else 0.0
        return Liu(settings.sizes.steps, settings.rates.of(example_set) / 255, weight, tau)

    def gradient(self, example_set: ExampleSet, source: str) -> Tensor:
        """Return the gradient at every image that a set of fast gradients starts with."""
        known = example_set.targeted, source
        if known not in self._last_gradient:  # several planes and lines follow one gradient
            models = self.sources(example_set)[source]
            target = models[0].target if len(models) == 1 else EnsembleModel([model.target for model in models])
            found, _ = target.gradient(self.x, lambda logits, goal: goal.loss(logits), self.goal(example_set.targeted))
            self._last_gradient.clear()
            self._last_gradient[known] = found
        return self._last_gradient[known]

    def direction(self, example_set: ExampleSet, source: str) -> Tensor:
        """Return the direction of a fast-gradient set, of unit RMS."""
        gradient = self.gradient(example_set, source)
        return unit(gradient if example_set.method == "fg" else gradient.sign())

    def matched_norm(self, example_set: ExampleSet, source: str, wanted: float) -> Norm:
        """Return the radius at which the images of a fast-gradient set have an average RMSD of `wanted`.

        The images are made as the attack makes them, so that zeros in gradients and the pixel box count.
        """
        known = example_set, source, wanted
        if known not in self._norms:  # every task asks again
            table = self.table("norm", [self.depends_on(example_set), source, wanted])
            found = table.get(lambda: pd.DataFrame({"eps": [self._find_norm(example_set, source, wanted).eps]}))
            kind = LInf if example_set.method == "fgs" else L2
            self._norms[known] = kind(float(found["eps"].iloc[0]))
        return self._norms[known]

    def _find_norm(self, example_set: ExampleSet, source: str, wanted: float) -> Norm:
        gradient = self.gradient(example_set, source)

        def norm(strength: float) -> Norm:
            if example_set.method == "fgs":
                return LInf(min(1.0, strength / 255))
            return L2(l2_of_rmsd(strength, self.x[0].numel()))

        def mean_rmsd(strength: float) -> float:
            radius, total = norm(max(strength, SMALLEST)), 0.0
            for x, own in zip(torch.split(self.x, AT_ONCE), torch.split(gradient, AT_ONCE), strict=True):
                ball = Ball(radius, x, torch.full((len(x),), radius.eps, device=self._device))
                total += float(rmsd(ball.step(x, own, ball.eps), x).sum())
            return total / len(self.x)

        # A gradient that sits on few pixels is clipped, and its step must be longer to get as far.
        high = 255.0 if example_set.method == "fgs" else 255.0 * STRETCH
        return norm(line_search.strength_for_rmsd(mean_rmsd, wanted, high))

    def _outcomes(self, example_set: ExampleSet) -> pd.DataFrame:
        made = {source: self.examples(example_set, source) for source in self.sources(example_set)}
        modules = {name: model.target.module for name, model in self.models.items()}
        found = transfer_outcomes(made, modules, device=self._device)
        distances = {source: rmsd(each.x_adv, each.x).tolist() for source, each in made.items()}
        pairs = zip(found["source"], found["sample"], strict=True)
        return found.assign(rmsd=[distances[source][sample] for source, sample in pairs])

    def _predictions(self) -> Iterator[pd.DataFrame]:
        labels = self.dataset.labels
        for name, target in self.targets.items():
            x = self.dataset.images(slice(0, 8)).to(self._device)
            check_framed_once(name, target.module, x.shape[-1])
            _check(name, target, x)
            logits = target.logits(self.dataset.images(slice(None)).to(self._device)).cpu()
            columns = {
                "label": labels.numpy(),
                "said": labels_of(logits).numpy(),
                "confidence": logits.double().softmax(1).amax(1).numpy(),
                "label_rank": ranks(logits, labels),
            }
            yield pd.DataFrame({"model": name, "sample_id": list(self.dataset.ids), **columns})

    @property
    def _identities(self) -> list[object]:
        return [[name, model.identity] for name, model in self.models.items()]

    @property
    def _device(self) -> torch.device:
        return next(iter(self.models.values())).target.device


def _in_folders(source: str) -> str:
    """Return the name of a source in names of folders."""
    return source.replace(":", "-").replace("|", "-").replace("/", "-")


def _check(name: str, target: TargetModel, x: Tensor) -> None:
    """Refuse models that this study would measure wrongly."""
    with torch.no_grad():
        first, second = (target.call(x) for _ in range(2))
    if first.shape[1] != target.classes:
        raise BadRequest(f"{name} has {first.shape[1]} classes and the data {target.classes}: name other models.")
    if not torch.equal(first, second):
        raise BadRequest(f"{name} is randomized, and this study needs deterministic predictions: name another model.")
