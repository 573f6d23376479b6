"""Trains a network by a recipe, with checkpoints, and writes its weights and card."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from robustassay.errors import BadRequest, ModelFailed
from robustassay.models.architectures.architecture import Architecture, describe
from robustassay.models.card import ModelCard
from robustassay.registry import name_of
from robustassay.train.checkpoint import Checkpoint
from robustassay.train.data import TrainingData
from robustassay.train.publish import TrainingRun, publish
from robustassay.train.recipe import Recipe
from robustassay.train.trainer import Trainer


@dataclass(frozen=True)
class EpochDone:
    """The progress of a training; `seconds` includes earlier sessions, but not the time between them."""

    epoch: int
    epochs: int
    loss: float
    seconds: float


def train(
    recipe: Recipe,
    architecture: Architecture,
    data: TrainingData,
    out: Path,
    name: str,
    seed: int = 0,
    epochs: int = 30,
    device: str | torch.device = "cpu",
    on_epoch: Callable[[EpochDone], None] = lambda done: None,
    compiled: bool = False,
) -> ModelCard:
    """Train, then write `out/NAME.safetensors` and `.json`; the same call resumes an interrupted training."""
    if epochs < 1:
        raise BadRequest(f"epochs must be 1 or more, not {epochs}.")
    if compiled and not recipe.compiles:
        raise BadRequest(f"{recipe.title} does not support compiled networks: leave out --compiled.")
    device = torch.device(device)
    identity = identity_of(recipe, architecture, data, seed, epochs)
    path = out / f"{name}.checkpoint.safetensors"
    trainer = Trainer(recipe, architecture, data, seed, epochs, device, compiled)
    first, earlier_seconds = 0, 0.0
    if checkpoint := Checkpoint.read(path, identity):
        trainer.restore(checkpoint.tensors)
        first, earlier_seconds = checkpoint.epochs_done, checkpoint.seconds

    start = time.perf_counter()
    seconds = earlier_seconds
    with torch.backends.cudnn.flags(enabled=True, benchmark=device.type == "cuda"):
        for epoch in range(first, epochs):
            loss = trainer.run_epoch(epoch)
            if not isfinite(loss):
                raise ModelFailed(f"Training diverged in epoch {epoch + 1}: try a lower rate than {recipe.rate}.")
            seconds = earlier_seconds + time.perf_counter() - start
            Checkpoint(identity, epoch + 1, seconds, trainer.state()).write(path)
            on_epoch(EpochDone(epoch + 1, epochs, loss, seconds))

    trainer.average.write_to(trainer.network)
    run = TrainingRun(recipe, architecture, seed, epochs, seconds, device, compiled)
    finished = publish(trainer.network, run, data, out, name)
    path.unlink()
    return finished


def identity_of(
    recipe: Recipe, architecture: Architecture, data: TrainingData, seed: int, epochs: int
) -> dict[str, Any]:
    """Return the identity of a training, which its checkpoint must match."""
    return {
        "recipe": {"name": name_of("recipe", type(recipe)), **asdict(recipe)},
        "architecture": describe(architecture),
        "dataset": data.dataset,
        "images": len(data.x_train),
        "seed": seed,
        "epochs": epochs,
    }
