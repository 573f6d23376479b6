"""Opens the target of a run: a module of this process, or a service behind HTTP."""

from typing import Final, Literal

import torch
from torch import nn

from assay.data import Dataset
from assay.errors import ModelFailed
from assay.evaluation.flags import Flag, find_flags
from assay.evaluation.preflight import check_model
from assay.remote import RemoteNetwork, Service
from assay.rng import seeded
from assay.target import Network
from assay.target.network import LANES
from assay.target.twin import find_twin

Precision = Literal["fast", "exact"]
"""Whether attacks search on a quicker twin of the model, where it has one; they are judged on the model anyway."""

_LOOKS: Final = 8
"""Images on which a twin must answer as its model does."""

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
) -> tuple[Network, tuple[Flag, ...]]:
    """Look at a model before any long work; return it as the engine calls it, with every warning it gives."""
    if isinstance(module, Service):
        network, contradicts = RemoteNetwork.open(module, dataset, device)
        return network, (CONTRADICTS,) * contradicts
    nature = check_model(module, dataset, device, despite_flags)
    draws = eot if nature.random else 1
    late = device.type == "cuda"
    local = Network(module, nature.classes, device, batch_size, draws, nature.random, checks_late=late)
    with seeded("flags", device):
        try:
            flags = find_flags(local, dataset.whole, nature.probabilities)
            local.check()
        except ModelFailed:  # on some sample, perhaps; then those must do that it was shown before
            local = local.on(device)
            flags = find_flags(local, dataset.take(min(LANES, len(dataset))), nature.probabilities)
            local.check()
    if precision == "fast" and not (nature.random or local.is_adaptive):
        local.twin = find_twin(module, dataset.images(slice(0, _LOOKS)).to(device))
    return local, flags
