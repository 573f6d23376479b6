"""Writes a trained network in the format of the zoo, and measures the written file."""

import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from robustassay.errors import ModelFailed
from robustassay.files import write_atomically
from robustassay.models.architectures.architecture import Architecture, describe
from robustassay.models.card import ModelCard
from robustassay.models.weights import read_weights, sha256_of
from robustassay.models.zoo import assemble
from robustassay.registry import name_of, spell
from robustassay.train.data import TrainingData
from robustassay.train.measure import ATTACK, clean_accuracy, robust_accuracy
from robustassay.train.recipe import HasMeasurements, Recipe

LICENCE = "Apache-2.0"
ROBUST_IMAGES = 1_000


@dataclass(frozen=True)
class TrainingRun:
    """The settings and the duration of a training."""

    recipe: Recipe
    architecture: Architecture
    seed: int
    epochs: int
    seconds: float
    device: torch.device
    compiled: bool


def publish(network: nn.Module, run: TrainingRun, data: TrainingData, out: Path, name: str) -> ModelCard:
    """Write weights and card; accuracies are measured on the written file, in half precision."""
    path = out / f"{name}.safetensors"
    write_half(network, path)
    published = assemble(run.architecture, data.classes, read_weights(path)).to(run.device)
    x, y = data.x_test.to(run.device), data.y_test.to(run.device)
    few_x, few_y = x[:ROBUST_IMAGES], y[:ROBUST_IMAGES]
    card = ModelCard(
        name=name,
        title=f"{run.architecture.title}, {run.recipe.title}",
        architecture=describe(run.architecture),
        dataset=data.dataset,
        classes=data.classes,
        recipe=name_of("recipe", type(run.recipe)),
        recipe_fields=asdict(run.recipe),
        command=command_of(run, name),
        seed=run.seed,
        epochs=run.epochs,
        seconds=round(run.seconds, 1),
        hardware=hardware_of(run.device),
        training_data=data.source,
        clean_accuracy=clean_accuracy(published, x, y),
        clean_images=len(x),
        robust_accuracy=robust_accuracy(published, few_x, few_y),
        robust_images=len(few_x),
        robust_attack=ATTACK,
        parameters=sum(parameter.numel() for parameter in published.parameters()),
        sha256=sha256_of(path),
        licence=LICENCE,
        measurements=extra_measurements(run.recipe, published, few_x, few_y),
        notes=run.recipe.note,
    )
    write_atomically(out / f"{name}.json", card.to_json().encode())
    return card


def extra_measurements(recipe: Recipe, network: nn.Module, x: Tensor, y: Tensor) -> dict[str, Any]:
    """Return the additional measurements of this recipe."""
    return recipe.measurements(network, x, y) if isinstance(recipe, HasMeasurements) else {}


def write_half(network: nn.Module, path: Path) -> None:
    """Write a network's state with all floating-point tensors in half precision."""
    state = {
        name: (tensor.half() if tensor.is_floating_point() else tensor).cpu().contiguous()
        for name, tensor in network.state_dict().items()
    }
    if not all(tensor.isfinite().all() for tensor in state.values()):
        raise ModelFailed("Some weights exceed half precision: train with more weight decay.")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, save(state))


def command_of(run: TrainingRun, name: str) -> str:
    """Return the command that trains this network."""
    flags = {
        "arch": spell("architecture", run.architecture),
        "epochs": run.epochs,
        "seed": run.seed,
        "device": run.device.type,
        "data": "FOLDER",
        "name": name,
        "out": "DIR",
    }
    words = ["assay", "train", spell("recipe", run.recipe)]
    words += [f"--{flag} {value}" for flag, value in flags.items()]
    return " ".join([*words, "--compiled"] if run.compiled else words)


def hardware_of(device: torch.device) -> str:
    """Return the name of the GPU, or the kind of CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} CPU"
