"""Inspects a model before a run: its traits, its flags, and the target that attacks see."""

from dataclasses import dataclass, replace
from typing import Final, final

import torch
from torch import Tensor, nn

from robustassay.data import Dataset
from robustassay.errors import ModelFailed
from robustassay.evaluation.checks import DependsOnBatch, ModelTraits, check_model
from robustassay.evaluation.first_state import FirstState
from robustassay.evaluation.flags import NO_GRADIENTS, RANDOMISED, SAMPLES, Flag, find_flags
from robustassay.evaluation.gradient_noise import DRAWS, STEADY, GradientNoise, measure_gradient_noise
from robustassay.evaluation.options import Precision
from robustassay.evaluation.repeatability import History, compare_with_unused, unused_copy
from robustassay.evaluation.wave_result import MAX_FAILED
from robustassay.remote import as_service, open_remote
from robustassay.rng import seeded
from robustassay.target import NAN_GRADIENT, LocalModel, SurrogateModel, TargetModel
from robustassay.target.batching import LANES
from robustassay.target.surrogate import find_surrogate

CONTRADICTS: Final = Flag(
    "contradicts-itself",
    "The service gave two answers to one image: it draws random numbers or has changed, so an unbroken sample may "
    "be broken at the next try.",
)

STATEFUL: Final = Flag(
    "stateful",
    "The model's output for an image depends on the images that it has seen before. Where the model can be copied, "
    "every call was made on a copy that had seen none; otherwise every number depends on the order of queries. Make "
    "the forward pass leave the model unchanged.",
)


@final
@dataclass(frozen=True)
class InspectedModel:
    """A model after its inspection: the target that attacks see, its traits, and its flags."""

    target: TargetModel
    traits: ModelTraits
    flags: tuple[Flag, ...]


def inspect_model(
    module: nn.Module,
    dataset: Dataset,
    device: torch.device,
    batch_size: int | None,
    eot: int | None,
    despite_flags: bool,
    precision: Precision = "exact",
) -> InspectedModel:
    """Inspect a model before any long work."""
    if (service := as_service(module)) is not None:
        target, contradicts = open_remote(service, dataset, device)
        traits = ModelTraits(target.classes, random=False, probabilities=False)
        return InspectedModel(target, traits, (CONTRADICTS,) * contradicts)
    unused = unused_copy(module, device)
    arguments = (dataset, device, batch_size, eot, despite_flags, precision)
    try:
        found = _inspect(module, *arguments)
    except DependsOnBatch:  # or on what an earlier call has left behind
        if unused is None or not compare_with_unused(module, unused, _first_images(dataset, device)).changed:
            raise
        return _stateful(_inspect(FirstState(unused), *arguments))
    history = compare_with_unused(module, unused, _first_images(dataset, device))
    if history.changed and unused is not None and not found.target.is_adaptive:
        return _stateful(_inspect(FirstState(unused), *arguments))
    return replace(found, flags=_told_apart(found.flags, history))


def _stateful(found: InspectedModel) -> InspectedModel:
    """Add the flag."""
    return replace(found, flags=tuple(dict.fromkeys((*found.flags, STATEFUL))))


def _inspect(
    module: nn.Module,
    dataset: Dataset,
    device: torch.device,
    batch_size: int | None,
    eot: int | None,
    despite_flags: bool,
    precision: Precision,
) -> InspectedModel:
    """Inspect a model that does not change with its calls."""
    traits = check_model(module, dataset, device, despite_flags, batch_size)
    late = device.type == "cuda"
    local = LocalModel(module, traits.classes, device, batch_size, 1, traits.random, checks_late=late)
    noise = _gradient_noise(local, dataset.whole) if traits.random and eot is None else None
    if traits.random:
        local = local.with_draws(eot or (noise.draws if noise else DRAWS[0]))
    with seeded("flags", device):
        try:
            flags = find_flags(local, dataset.whole, traits.probabilities)
            local.check()
        except ModelFailed:  # perhaps on some samples only
            local, flags = _flags_without_failing(local.on(device), dataset.whole, traits.probabilities)
    if noise is not None and noise.cosine(local.draws) < STEADY:
        flags = (*flags, _unsteady(noise, local.draws))
    if local.device.type == "cuda":
        local = local.replayed()
    if precision == "fast" and not (traits.random or local.is_adaptive or local.nan_gradient_is_zero):
        surrogate = find_surrogate(module, _first_images(dataset, device))
        if surrogate is not None:
            return InspectedModel(SurrogateModel(local, surrogate), traits, flags)
    return InspectedModel(local, traits, flags)


def _gradient_noise(local: LocalModel, dataset: Dataset) -> GradientNoise | None:
    """Measure the noise of gradients; None where the model fails on the images for it."""
    try:
        with seeded("gradient noise", local.device):
            return measure_gradient_noise(local, dataset)
    except ModelFailed:
        return None


def _unsteady(noise: GradientNoise, draws: int) -> Flag:
    return Flag(
        "noisy-gradients",
        f"The mean gradient over {draws} draws has an expected cosine of {noise.cosine(draws):.2f} with the exact one, "
        "so gradient attacks move almost at random: use more draws (--eot), and trust attacks without gradients more.",
    )


def _told_apart(flags: tuple[Flag, ...], history: History) -> tuple[Flag, ...]:
    """Add a flag if outputs depend on earlier images; they then differ between passes without random numbers."""
    if not history.changed:
        return flags
    return (*(flag for flag in flags if history.draws or flag.name != RANDOMISED), STATEFUL)


def _first_images(dataset: Dataset, device: torch.device) -> Tensor:
    return dataset.images(slice(0, min(LANES, len(dataset)))).to(device)


def _flags_without_failing(
    local: LocalModel, dataset: Dataset, probabilities: bool
) -> tuple[LocalModel, tuple[Flag, ...]]:
    """Find the flags on images on which the model does not fail; where many gradients are NaN, they count as zero."""
    kept, errors = _split_failing(local, dataset)
    tried, others = len(kept) + len(errors), [error for error in errors if str(error) != NAN_GRADIENT]
    if others or (kept and len(errors) <= max(1, int(MAX_FAILED * tried))):
        if not kept:
            raise errors[-1]
        flags = find_flags(local, dataset.select(kept), probabilities)
        local.check()
        return local, flags
    local = local.on(local.device).with_nan_gradient_as_zero()
    flags = find_flags(local, dataset, probabilities)
    local.check()
    return local, (_nan_gradients(len(errors), tried), *(flag for flag in flags if flag.name != NO_GRADIENTS))


def _nan_gradients(count: int, tried: int) -> Flag:
    """Return the flag with which attacks that need gradients are refused: those of other samples prove nothing."""
    return Flag(
        NO_GRADIENTS,
        f"The gradient is NaN on {count} of {tried} samples tried, and counts as zero there: look for a square root, a "
        "norm or a division at zero, and until it is mended trust only attacks without gradients.",
    )


def _split_failing(local: LocalModel, dataset: Dataset) -> tuple[list[int], list[ModelFailed]]:
    """Return the first images on which neither the model nor its gradient fails, and the errors on the others."""
    kept: list[int] = []
    errors: list[ModelFailed] = []
    for row in range(min(SAMPLES, len(dataset))):
        try:
            find_flags(local, dataset.select([row]), probabilities=False)
            local.check()
            kept.append(row)
        except ModelFailed as error:
            local.discard_unchecked_outputs()
            errors.append(error)
    return kept, errors
