"""How many samples are in flight, where nobody says."""

from typing import Final

import torch

from robustassay.data import Dataset

WAVE_SIZE: Final = {"cpu": 128, "cuda": 2048}
WAVE_VALUES: Final = {"cpu": 1 << 22, "cuda": 1 << 24}
LEAST_WAVE: Final = 16


def fitting_wave(device: torch.device, dataset: Dataset) -> int:
    """Return how many samples to hold in flight: fewer of large images, of which an attack keeps many copies."""
    values = dataset.images(slice(0, 1)).numel()
    return min(WAVE_SIZE.get(device.type, 128), max(LEAST_WAVE, WAVE_VALUES.get(device.type, 1 << 22) // values))
