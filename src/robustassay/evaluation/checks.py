"""Checks before a run: whatever would make every number wrong is refused."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from robustassay.attacks.attack import Attack
from robustassay.data import Dataset
from robustassay.errors import AssayError, BadData, BadModel, BadRequest, WrongFolder
from robustassay.evaluation.flags import NO_GRADIENTS, Flag
from robustassay.evaluation.repeatability import (
    MANY_REPEATS,
    REPEATS,
    depends_on_batch,
    differs,
    generator_states,
    varies,
)
from robustassay.rng import seeded
from robustassay.target import GradientAccess, call_module
from robustassay.target.batching import LANES
from robustassay.threat import ThreatModel


@final
@dataclass(frozen=True)
class ModelTraits:
    """What is found out about a model before a run."""

    classes: int
    random: bool  # two forward passes over one image differ
    probabilities: bool  # outputs are probabilities instead of logits


class DependsOnBatch(BadModel):
    """The outputs for an image differ between batches, as they also do where a model keeps a state."""


def check_model(
    module: nn.Module, dataset: Dataset, device: torch.device, despite_flags: bool, batch_size: int | None = None
) -> ModelTraits:
    """Return the traits of a model, or refuse it; `batch_size` is that of the search, if one was chosen."""
    if isinstance(module, torch.export.ExportedProgram):
        raise BadModel("An exported program is called through its module: give program.module().")
    if not isinstance(module, nn.Module):
        raise BadModel(
            f"The model must be a torch.nn.Module from [0, 1] images to logits, not {type(module).__name__}."
        )
    _check_mode(module)
    x = dataset.images(slice(0, min(LANES, len(dataset)))).to(device)
    states = generator_states(device)
    logits = _first_logits(module.to(device), x)
    draws = generator_states(device) != states
    _check_logits(logits)
    probabilities = _are_probabilities(logits)
    if probabilities and not despite_flags:
        raise BadModel(
            "The model returns probabilities: return logits, the values before softmax, or gradients vanish "
            "and attacks fail without notice; to evaluate it as it is, accept the flag with --despite-flags."
        )
    random = varies(module, x, logits, MANY_REPEATS if draws else REPEATS)  # a draw may seldom change an answer
    if not random and depends_on_batch(module, x, logits, batch_size, len(dataset.whole)):
        random = varies(module, x, logits, MANY_REPEATS)  # a model that draws one of a few parts may repeat itself
        if not random:
            raise DependsOnBatch(
                "The model's output for an image depends on the other images of its batch, or on their number: use the "
                "batch statistics of training (model.eval())."
            )
    check_labels(dataset, logits.shape[1])
    return ModelTraits(logits.shape[1], random, probabilities)


def check_attack(attack: Attack[Any], threat: ThreatModel, flags: Sequence[Flag], despite_flags: bool) -> None:
    """Refuse an attack that does not support the norm, or that needs gradients where the model has none."""
    name = type(attack).__name__
    if type(threat.norm) not in attack.norms:
        known = ", ".join(norm.name for norm in attack.norms)
        raise BadRequest(f"{name} does not work under {threat.norm.name}: use it with {known}.")
    if threat.target is not None and not attack.can_target:
        raise BadRequest(f"{name} cannot be targeted: use it untargeted, or choose another attack.")
    gradient_free = not issubclass(attack.access, GradientAccess) or attack.tries_without_gradients
    missing = next((flag for flag in flags if flag.name == NO_GRADIENTS), None)
    if missing is not None and not (gradient_free or despite_flags):
        is_nan = "NaN" in missing.text
        what = "NaN on many of the images tried" if is_nan else "exactly zero on every image tried"
        why = "a square root, a norm or a division at zero" if is_nan else "a no_grad block, a rounding, sign or argmax"
        raise BadModel(
            f"The gradient is {what} ({why} is in the way), so {name} would not move and the model would look robust: "
            "declare how to differentiate it, or use square or autoattack."
        )


def probe(module: nn.Module, dataset: Dataset, device: torch.device) -> list[float]:
    """Return the logits of the first image and of a fixed pattern: they distinguish models with equal hashes."""
    first = dataset.images(slice(0, 1))
    pattern = (torch.arange(first.numel()) % 7 / 6).view_as(first)
    x = torch.cat((first, pattern)).repeat(LANES // 2, *(1,) * (first.dim() - 1)).to(device)
    with seeded("probe", device):
        logits = call_module(module, x)[:2].float()
    _check_logits(logits)
    outputs: list[float] = logits.flatten().tolist()
    return outputs


def check_probe(held: list[float], found: list[float], folder: object) -> None:
    """Refuse to resume a run whose model had other outputs, even if the hashes are equal."""
    before, now = torch.tensor(held), torch.tensor(found)
    if before.shape != now.shape or differs(before.view(2, -1), now.view(2, -1)):
        raise WrongFolder(
            f"{folder} holds a run of a model with the same weights and other outputs (its preprocessing or "
            "code has changed): choose another folder with --out, or delete that one."
        )


def _check_mode(module: nn.Module) -> None:
    # An exported module keeps the mode of its export, and has an `eval` of its own that only raises.
    exported = {id(inner) for part in module.modules() if "eval" in vars(part) for inner in part.modules()}
    parts = ((name, part) for name, part in module.named_modules() if id(part) not in exported)
    training = next(
        (name for name, part in parts if getattr(part, "training", False)), None
    )  # a frozen script has none
    if training is not None:
        where = f" (its part {training!r} is)" if training else ""
        raise BadModel(f"The model is in training mode{where}: call model.eval() first.")
    if any(value.is_inference() for value in (*module.parameters(), *module.buffers())):
        raise BadModel(
            "The weights of the model were made inside torch.inference_mode(), so it has no gradients: load it outside."
        )


def _first_logits(module: nn.Module, x: Tensor) -> Tensor:
    shape = tuple(x.shape[1:])
    try:
        logits = call_module(module, x)
    except AssayError:  # a part of ours already says what is wrong
        raise
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise BadModel(
            f"The model cannot process images of shape {shape} ({reason}): give it data of its own input size."
        ) from error
    if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != len(x):
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise BadModel(f"The model must return one row of logits per image, not {got}: wrap it to return only these.")
    return logits.float()


def _check_logits(logits: Tensor) -> None:
    if logits.shape[1] < 2:
        raise BadModel(
            "The model returns a single number per image: a classifier needs at least two classes; "
            "for a binary one return both logits, such as [0, z]."
        )
    if not logits.isfinite().all():
        raise BadModel(
            "The model returns NaN or infinity on images inside [0, 1]: mend it before evaluating its robustness."
        )


def _are_probabilities(logits: Tensor) -> bool:
    sums = logits.sum(1)
    inside = bool(logits.min() >= 0) and bool(logits.max() <= 1)
    return inside and torch.allclose(sums, torch.ones_like(sums), atol=1e-3)


def check_labels(dataset: Dataset, classes: int) -> None:
    """Refuse labels that the model has no class for."""
    highest = int(dataset.labels.max())
    if highest >= classes:
        row = int((dataset.labels >= classes).nonzero()[0])
        raise BadData(
            f"Sample {dataset.ids[row]!r} has label {int(dataset.labels[row])}, but the model has classes "
            f"0 to {classes - 1} only: use data with the classes of this model, or renumber the labels."
        )
