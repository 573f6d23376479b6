"""What a model wants of photographs: its own input size, at which perturbations then live and are measured."""

from torch import nn

from robustassay.data.dataset import Dataset
from robustassay.data.frame import Frame
from robustassay.data.photo_frames import apply_frame
from robustassay.models.sources.preparation import Prepared


def input_frame(module: nn.Module) -> Frame | None:
    """Return how a model, behind whatever defenses, is shown photographs; None where it does not say."""
    parts = module.modules() if isinstance(module, nn.Module) else ()
    found = next((part.preparation for part in parts if isinstance(part, Prepared)), None)
    return None if found is None else Frame(found.size, found.resize, found.interpolation)


def as_model_input(module: nn.Module, dataset: Dataset) -> Dataset:
    """Return photographs as a model sees them; other datasets, and models that do not say, leave them as they are."""
    frame = input_frame(module)
    return dataset if frame is None else apply_frame(dataset, frame)
