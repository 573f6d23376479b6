"""The frame of a model: its input size, at which perturbations are made and measured."""

from torch import nn

from robustassay.data.dataset import Dataset
from robustassay.data.frame import Frame
from robustassay.data.photo_frames import apply_frame
from robustassay.models.sources.preparation import Prepared


def input_frame(module: nn.Module) -> Frame | None:
    """Return the frame of a model, also inside defenses, or None if it defines none."""
    parts = module.modules() if isinstance(module, nn.Module) else ()
    preparation = next((part.preparation for part in parts if isinstance(part, Prepared)), None)
    return None if preparation is None else Frame(preparation.size, preparation.resize, preparation.interpolation)


def as_model_input(module: nn.Module, dataset: Dataset) -> Dataset:
    """Return photographs with the frame of the model; other datasets, or a model without frame, change nothing."""
    frame = input_frame(module)
    return dataset if frame is None else apply_frame(dataset, frame)
