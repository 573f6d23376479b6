"""Prepares an evaluation: resolves its arguments and checks everything that can be checked before the first wave."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import torch

from robustassay import attacks
from robustassay.attacks.attack import Attack
from robustassay.attacks.nearest.minimum_radius import MinimumRadius
from robustassay.data import Dataset
from robustassay.errors import BadRequest
from robustassay.evaluation.adaptive import Advice, ask_adviser
from robustassay.evaluation.arguments import as_dataset, as_list, as_threat, distinct_names
from robustassay.evaluation.backends import Backend, choose_backend
from robustassay.evaluation.checks import ModelTraits, check_attack, check_labels
from robustassay.evaluation.flags import Flag
from robustassay.evaluation.inspection import InspectedModel, inspect_model
from robustassay.evaluation.model_ref import ModelRef, choose_device
from robustassay.evaluation.notebook_progress import default_progress
from robustassay.evaluation.options import Execution, Search, default_wave_size, whole
from robustassay.evaluation.progress import Progress
from robustassay.evaluation.spec import RunSpec
from robustassay.models.input_frame import as_model_input
from robustassay.registry import describe, name_of
from robustassay.target import TargetModel, check_supports
from robustassay.target.batching import LANES
from robustassay.threat import ThreatModel


@final
@dataclass(frozen=True)
class PreparedEvaluation:
    """Everything that is known about an evaluation before its first wave."""

    model_ref: ModelRef
    inspected: InspectedModel
    dataset: Dataset
    threat: ThreatModel
    attacks: Mapping[str, Attack[Any]]  # by the name of their part
    one_folder_per_attack: bool  # and the result is the worst case of all attacks
    seed: int
    keep_images: bool
    search: Search
    execution: Execution
    backend: Backend
    progress: Progress
    confirming: Attack[Any] | None = None  # attacks the samples in doubt at the end
    advice: Advice = field(default_factory=Advice)

    @property
    def target(self) -> TargetModel:
        """The model as attacks see it."""
        return self.inspected.target

    @property
    def traits(self) -> ModelTraits:
        """What kind of model it is."""
        return self.inspected.traits

    @property
    def flags(self) -> tuple[Flag, ...]:
        """The warnings about this model."""
        return self.inspected.flags

    @property
    def wave_size(self) -> int:
        """How many samples are attacked together."""
        return self.execution.wave_size or default_wave_size(self.target.device, self.dataset)

    @property
    def key(self) -> str:
        """8 hex digits that differ wherever the runs of this evaluation differ."""
        keys = [self.spec(attack).key for attack in self.attacks.values()]
        return (keys[0] if len(keys) == 1 else hashlib.sha256("+".join(keys).encode()).hexdigest())[:8]

    def spec(self, attack: Attack[Any]) -> RunSpec:
        """Return everything that the records of one attack depend on."""
        norm, rule = self.threat.norm, self.threat.target
        searched = self.target.for_search(attack.needs_exact_search(norm))
        return RunSpec(
            model={
                "name": self.model_ref.name,
                **self.model_ref.identity,
                **({"eot": self.target.draws} if self.target.random else {}),
                **({} if searched.surrogate_name is None else {"search": searched.surrogate_name}),
            },
            data={"name": self.dataset.name, "sha256": self.dataset.sha256},
            threat={
                "norm": norm.name,
                "eps": norm.eps,
                "target": rule.identity if rule else None,
                "query_budget": self.search.query_budget,
            },
            attack=describe("attack", attack),
            seed=self.seed,
        )

    def title(self, attack: Attack[Any]) -> str:
        """Name a run in one line."""
        return f"{self.model_ref.name} on {self.dataset.name}, {name_of('attack', type(attack))}, {self.threat}"

    def on_samples(self, ids: Collection[str]) -> "PreparedEvaluation":
        """Return the same evaluation of some samples, in one shard."""
        rows = [row for row, sample in enumerate(self.dataset.ids) if sample in ids]
        return replace(self, dataset=self.dataset.select(rows), execution=replace(self.execution, shard=(1, 1)))

    def with_target(self, target: TargetModel) -> "PreparedEvaluation":
        """Return the same evaluation through another target."""
        return replace(self, inspected=replace(self.inspected, target=target))


def prepare(
    model: Any,
    data: Any,
    threat: Any,
    attack: Any,
    limit: int | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
    keep_images: bool = True,
    name: str | None = None,
    search: Search = Search(),  # noqa: B008, a frozen value
    execution: Execution = Execution(),  # noqa: B008
    progress: Progress | None = None,
) -> PreparedEvaluation:
    """Resolve and check the arguments of `evaluate`, inspect the model, and diagnose it where that is asked for."""
    chosen_device = choose_device(device)
    model_ref = model if isinstance(model, ModelRef) else ModelRef.of(model, name)
    count = None if limit is None else whole("limit", limit)
    dataset = as_model_input(model_ref.module, as_dataset(data, count)).take(count)
    _check_shard(execution.shard, dataset)
    chosen = _create_attacks(as_list(attack), search.smallest_eps)
    despite_flags = search.despite_flags or search.adaptive is not None
    prepared = PreparedEvaluation(
        model_ref=model_ref,
        inspected=inspect_once(model_ref, dataset, chosen_device, execution.batch_size, search, despite_flags),
        dataset=dataset,
        threat=as_threat(threat),
        attacks=dict(zip(distinct_names(chosen), chosen, strict=True)),
        one_folder_per_attack=not isinstance(attack, str | Attack) or bool(search.confirm or search.adaptive),
        seed=whole("seed", seed),
        keep_images=keep_images,
        search=replace(search, despite_flags=despite_flags),
        execution=execution,
        backend=choose_backend(execution),
        progress=progress or default_progress(),
        confirming=_confirming_attack(search.confirm),
    )
    _check_attacks(prepared)
    return replace(prepared, advice=ask_adviser(search.adaptive, prepared.inspected, dataset, prepared.threat))


def inspect_once(
    model_ref: ModelRef,
    dataset: Dataset,
    device: torch.device,
    batch_size: int | None,
    search: Search,
    despite_flags: bool,
) -> InspectedModel:
    """Inspect a model, unless this `ModelRef` was inspected before on the same data and in the same way."""
    options = (device, batch_size, search.eot, despite_flags, search.precision)
    key = (dataset.sha256, tuple(dataset.ids[:LANES]), options)  # more images are taken from the whole dataset
    if key in model_ref.inspections:
        check_labels(dataset, model_ref.inspections[key].traits.classes)
    else:
        model_ref.inspections[key] = inspect_model(model_ref.module, dataset, *options)
    found: InspectedModel = model_ref.inspections[key]
    found.target.discard_unchecked_outputs()
    return found


def _check_shard(shard: tuple[int, int], dataset: Dataset) -> None:
    part, parts = shard
    if part > len(dataset):
        raise BadRequest(f"Shard {part}/{parts} of {len(dataset)} samples is empty: use fewer shards.")


def _create_attacks(requested: Sequence[str | Attack[Any]], smallest_eps: bool) -> list[Attack[Any]]:
    chosen = [attacks.create(one) for one in requested]
    if not chosen:
        raise BadRequest("Name at least one attack, such as pgd.")
    if smallest_eps:
        return [one if one.seeks_minimum else MinimumRadius(one) for one in chosen]
    return chosen


def _confirming_attack(confirm: bool | str) -> Attack[Any] | None:
    if not confirm:
        return None
    return attacks.create(confirm if isinstance(confirm, str) else "autoattack")


def _check_attacks(prepared: PreparedEvaluation) -> None:
    """Check targets against labels, and attacks against the threat and the model."""
    dataset, threat = prepared.dataset, prepared.threat
    if threat.target is not None:
        threat.target.check(dataset.ids, dataset.labels, prepared.target.classes)
    confirming = () if prepared.confirming is None else (prepared.confirming,)
    for attack in (*prepared.attacks.values(), *confirming):
        check_attack(attack, threat, prepared.flags, prepared.search.despite_flags)
        check_supports(prepared.target, attack)
