"""Opens the target of a run: a module of this process, or a service behind HTTP."""

from typing import Final

import torch
from torch import nn

from assay.data import Dataset
from assay.evaluation.flags import Flag, find_flags
from assay.evaluation.preflight import check_model
from assay.remote import RemoteNetwork, Service
from assay.rng import seeded
from assay.target import Network

CONTRADICTS: Final = Flag(
    "contradicts-itself",
    "The service gave two answers to one image: it draws random numbers or has changed, so a sample that stands may "
    "fall at the next try.",
)


def open_network(
    module: nn.Module, dataset: Dataset, device: torch.device, batch_size: int, eot: int, despite_flags: bool
) -> tuple[Network, tuple[Flag, ...]]:
    """Look at a model before any long work; return it as the engine calls it, with every warning it gives."""
    if isinstance(module, Service):
        network, contradicts = RemoteNetwork.open(module, dataset, device)
        return network, (CONTRADICTS,) * contradicts
    nature = check_model(module, dataset, device, despite_flags)
    draws = eot if nature.random else 1
    local = Network(module, nature.classes, device, batch_size, draws, nature.random)
    with seeded("flags", device):
        return local, find_flags(local, dataset.whole, nature.probabilities)
