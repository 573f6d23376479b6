"""Opens the target of a run: a module of this process, or a service behind HTTP."""

from typing import Final

import torch
from torch import nn

from robustassay.data import Dataset
from robustassay.errors import ModelFailed
from robustassay.evaluation.flags import Flag, find_flags
from robustassay.evaluation.options import Precision
from robustassay.evaluation.preflight import check_model
from robustassay.remote import RemoteModel, Service
from robustassay.rng import seeded
from robustassay.target import LocalModel, TargetModel
from robustassay.target.batching import LANES
from robustassay.target.surrogate import find_surrogate

_LOOKS: Final = 8
"""Images on which a surrogate must answer as its model does."""

CONTRADICTS: Final = Flag(
    "contradicts-itself",
    "The service gave two answers to one image: it draws random numbers or has changed, so a sample that stands may "
    "fall at the next try.",
)


def open_network(
    module: nn.Module,
    dataset: Dataset,
    device: torch.device,
    batch_size: int | None,
    eot: int,
    despite_flags: bool,
    precision: Precision = "exact",
) -> tuple[TargetModel, tuple[Flag, ...]]:
    """Look at a model before any long work; return it as the engine calls it, with every warning it gives."""
    if isinstance(module, Service):
        network, contradicts = RemoteModel.open(module, dataset, device)
        return network, (CONTRADICTS,) * contradicts
    traits = check_model(module, dataset, device, despite_flags)
    draws = eot if traits.random else 1
    late = device.type == "cuda"
    local = LocalModel(module, traits.classes, device, batch_size, draws, traits.random, checks_late=late)
    with seeded("flags", device):
        try:
            flags = find_flags(local, dataset.whole, traits.probabilities)
            local.check()
        except ModelFailed:  # on some sample, perhaps; then those must do that it was shown before
            local = local.on(device)
            flags = find_flags(local, dataset.take(min(LANES, len(dataset))), traits.probabilities)
            local.check()
    if precision == "fast" and not (traits.random or local.is_adaptive):
        local.surrogate = find_surrogate(module, dataset.images(slice(0, _LOOKS)).to(device))
    return local, flags
