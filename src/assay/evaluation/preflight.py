"""Catches, before any long work, what would make every number wrong."""

from typing import Any, Final

import torch
from torch import Tensor, nn

from assay.attacks.attack import Attack
from assay.data import Dataset
from assay.errors import BadData, BadModel, BadRequest, WrongFolder
from assay.target import WhiteBox
from assay.target.network import LANES, full_precision, image_dtype
from assay.threat import Goal, ThreatModel, Untargeted

_CLOSE: Final = 1e-3
"""Two answers to one image that differ by more than this part of their size are no rounding."""


def check_model(module: nn.Module, dataset: Dataset, device: torch.device) -> int:
    """Return the model's number of classes, or say what is wrong with it."""
    if not isinstance(module, nn.Module):
        raise BadModel(
            f"The model must be a torch.nn.Module from [0, 1] images to logits, not {type(module).__name__}."
        )
    _check_mode(module)
    x = dataset.images(slice(0, min(LANES, len(dataset)))).to(device)
    logits = _first_logits(module.to(device), x)
    _check_logits(logits)
    _check_stable(module, x, logits)
    _check_labels(dataset, logits.shape[1])
    return logits.shape[1]


def check_attack(
    attack: Attack[Any], threat: ThreatModel, module: nn.Module, dataset: Dataset, device: torch.device
) -> None:
    """Refuse an attack that does not know the norm, or that needs gradients the model does not give."""
    name = type(attack).__name__
    if type(threat.norm) not in attack.norms:
        known = ", ".join(norm.name for norm in attack.norms)
        raise BadRequest(f"{name} does not work under {threat.norm.name}: use it with {known}.")
    if threat.target is not None and not attack.can_target:
        raise BadRequest(f"{name} cannot aim at a chosen class: use it untargeted, or another attack for targets.")
    if issubclass(attack.access, WhiteBox):
        rows = slice(0, min(LANES, len(dataset)))
        _check_gradient(module, dataset.images(rows).to(device), Untargeted(dataset.labels[rows].to(device)))


def probe(module: nn.Module, dataset: Dataset, device: torch.device) -> list[float]:
    """Return how the model answers the first image and a fixed pattern: what tells models apart that hash alike."""
    first = dataset.images(slice(0, 1))
    pattern = (torch.arange(first.numel()) % 7 / 6).view_as(first)
    x = torch.cat((first, pattern)).repeat(LANES // 2, *(1,) * (first.dim() - 1)).to(device)
    with torch.no_grad(), full_precision(device):
        logits: list[float] = module(x.to(image_dtype(module)))[:2].float().flatten().tolist()
    return logits


def check_probe(held: list[float], found: list[float], folder: object) -> None:
    """Refuse to add to a run whose model answered differently, whatever its hash says."""
    before, now = torch.tensor(held), torch.tensor(found)
    if before.shape != now.shape or not torch.allclose(before, now, rtol=0, atol=_CLOSE * float(now.abs().max())):
        raise WrongFolder(
            f"{folder} holds a run of a model with the same weights that answers differently (its preprocessing or "
            "code has changed): choose another folder with --out, or delete that one."
        )


def _check_mode(module: nn.Module) -> None:
    training = next((name for name, part in module.named_modules() if part.training), None)
    if training is not None:
        where = f"its part {training!r}" if training else "it"
        raise BadModel(f"The model would be judged in training mode ({where} is): call model.eval() first.")


def _first_logits(module: nn.Module, x: Tensor) -> Tensor:
    shape = tuple(x.shape[1:])
    try:
        with torch.no_grad(), full_precision(x.device):
            logits = module(x.to(image_dtype(module)))
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise BadModel(
            f"The model cannot process images of shape {shape} ({reason}): give it data of its own input size."
        ) from error
    if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != len(x):
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise BadModel(f"The model must return one row of logits an image, not {got}: wrap it to return those only.")
    return logits.float()


def _check_logits(logits: Tensor) -> None:
    if logits.shape[1] < 2:
        raise BadModel(
            "The model returns a single number an image: a classifier needs at least two classes; "
            "for a binary one return both logits, such as [0, z]."
        )
    if not logits.isfinite().all():
        raise BadModel("The model returns NaN or infinity on clean images: mend it before judging its robustness.")
    sums = logits.sum(1)
    if logits.min() >= 0 and logits.max() <= 1 and torch.allclose(sums, torch.ones_like(sums), atol=1e-3):
        raise BadModel(
            "The model returns probabilities: return logits, the values before softmax, or gradients vanish "
            "and attacks fail unseen."
        )


def _check_stable(module: nn.Module, x: Tensor, logits: Tensor) -> None:
    with torch.no_grad(), full_precision(x.device):
        again = module(x.to(image_dtype(module))).float()
        apart = torch.cat([module(image[None].to(image_dtype(module))).float() for image in x[:2]])
    size = logits.abs().amax().clamp(min=1e-12)
    if (again - logits).abs().amax() > _CLOSE * size:
        raise BadModel(
            "The model draws random numbers: two passes over one image differ, so no verdict can be repeated; "
            "fix its randomness or average it out before judging it."
        )
    if (apart - logits[:2]).abs().amax() > _CLOSE * size:
        raise BadModel(
            "The model's answer for an image depends on the other images of its batch: use batch statistics "
            "from training (model.eval()) so that each image is judged alone."
        )


def _check_labels(dataset: Dataset, classes: int) -> None:
    highest = int(dataset.labels.max())
    if highest >= classes:
        row = int((dataset.labels >= classes).nonzero()[0])
        raise BadData(
            f"Sample {dataset.ids[row]!r} has label {int(dataset.labels[row])}, but the model knows classes "
            f"0 to {classes - 1} only: use the data this model was made for, or renumber the labels."
        )


@torch.enable_grad()
def _check_gradient(module: nn.Module, x: Tensor, goal: Goal) -> None:
    images = x.requires_grad_()
    try:
        margin = goal.margin(module(images.to(image_dtype(module))).float())
        (gradient,) = torch.autograd.grad(margin.sum(), images)
    except RuntimeError as error:
        raise BadModel(
            "No gradient reaches the image (a no_grad block, detach() or a non-differentiable step is in the way): "
            "mend that, or use a black-box attack."
        ) from error
    if not gradient.any():
        raise BadModel(
            "The gradient is exactly zero on every image tried (a rounding, sign or argmax is in the way), so "
            "gradient attacks would stand still and the model look robust: mend that, or use a black-box attack."
        )
