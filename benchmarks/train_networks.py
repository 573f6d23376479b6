"""Trains the networks on which express and AutoAttack are compared; the same call resumes.

    python -m benchmarks.train_networks --train train.npz --out DIR --device cuda [--networks resnet18-linf,...]

`train.npz` holds uint8 images [n, 32, 32, 3] and their labels; its last 1,000 images are not trained on. A network's
name is ARCHITECTURE-NORM, with -sSEED and -eEPOCHS where they are not 0 and the architecture's own: resnet18-linf,
resnet18-l1-s2, preresnet20-linf-s21-e4, ...
Training is adversarial under Linf 8/255, L2 0.5 or L1 12. Each network gives `NAME.safetensors` in half precision,
and a JSON line on the terminal and in `networks.jsonl`.
"""

import argparse
import dataclasses
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import networks
from robustassay.data.safe_files import check_unpacked
from robustassay.models.weights import sha256_of
from robustassay.threat import L1
from robustassay.train.checkpoint import Checkpoint
from robustassay.train.data import TrainingData
from robustassay.train.measure import batches, is_correct
from robustassay.train.pgd import frozen, linf_pgd
from robustassay.train.pgd_l2 import l2_pgd
from robustassay.train.publish import hardware_of, write_half
from robustassay.train.recipe import Recipe
from robustassay.train.trainer import Trainer

HELD_OUT: Final = 1000
EPOCHS: Final = {"preresnet8": 8, "wrn28-10": 8, "tiny": 1}
"""The others train for `USUAL_EPOCHS`."""

USUAL_EPOCHS: Final = 20
DEFAULT: Final = "resnet18-linf,resnet18-l2,resnet18-l1,wrn28-10-linf,wrn28-10-l2,wrn28-10-l1"


@dataclass(frozen=True)
class InnerAttack:
    """Finds the images to train on, within `eps`, by a few steps."""

    run: Callable[[nn.Module, Tensor, Tensor, float, int, torch.Generator], Tensor]
    eps: float
    steps: int


def linf_ascent(network: nn.Module, x0: Tensor, y: Tensor, eps: float, steps: int, rng: torch.Generator) -> Tensor:
    """Take sign steps that together reach twice across the radius."""
    return linf_pgd(network, x0, y, eps, 2 * eps / steps, steps, rng)


def l2_ascent(network: nn.Module, x0: Tensor, y: Tensor, eps: float, steps: int, rng: torch.Generator) -> Tensor:
    """Follow the normalised gradient from a random point of the sphere."""
    return l2_pgd(network, x0, y, eps, 2 * eps / steps, steps, rng)


def l1_ascent(network: nn.Module, x0: Tensor, y: Tensor, eps: float, steps: int, rng: torch.Generator) -> Tensor:
    """Move the steepest values only, fewer in every step, as APGD does under L1 (arXiv:2103.01208)."""
    centre = x0.flatten(1)
    radius = torch.full_like(centre[:, 0], eps)
    delta = torch.empty_like(centre).normal_(generator=rng)
    delta = L1(eps).project(delta, -centre, 1 - centre, radius)
    for k in range(steps):
        x = centre + delta
        gradient = _gradient(network, x.view_as(x0), y).flatten(1)
        free = gradient.masked_fill(((x <= 0) & (gradient < 0)) | ((x >= 1) & (gradient > 0)), 0)
        count = max(int(centre.shape[1] * 0.2 / (k + 1)), 1)
        floor = free.abs().topk(count, sorted=True).values[:, -1:]
        signs = free.sign() * (free.abs() >= floor)
        step = eps / (1 + k / 2) * signs / signs.abs().sum(1, keepdim=True).clamp(min=1)
        delta = L1(eps).project(delta + step, -centre, 1 - centre, radius)
    return (centre + delta).clamp(0, 1).view_as(x0)


def _gradient(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(F.cross_entropy(network(x), y, reduction="sum"), x)[0]


INNER: Final = {
    "linf": InnerAttack(linf_ascent, 8 / 255, 4),
    "l2": InnerAttack(l2_ascent, 0.5, 4),
    "l1": InnerAttack(l1_ascent, 12.0, 6),
}


@dataclass(frozen=True, kw_only=True)
class AdversarialTraining(Recipe):
    """Cross-entropy on the images of the inner attack of one norm."""

    title: ClassVar[str] = "adversarial training with a few steps"

    norm: str = "linf"
    batch: int = 256
    rate: float = 0.2
    average: float = 0.998

    def loss(self, network: nn.Module, x: Tensor, y: Tensor, rng: torch.Generator, progress: Tensor) -> Tensor:
        """Return the mean cross-entropy of the batch after the attack."""
        inner = INNER[self.norm]
        with frozen(network):
            x_adv = inner.run(network, x, y, inner.eps, inner.steps, rng)
        return F.cross_entropy(network(x_adv), y)


@dataclass(frozen=True)
class Job:
    """One network: its architecture, the norm of its training, its seed and its length of training."""

    architecture: str
    norm: str
    seed: int
    epochs: int
    named_epochs: bool = False
    """Whether the name says for how many epochs it was trained."""

    @property
    def name(self) -> str:
        """The name of its files."""
        epochs = f"-e{self.epochs}" if self.named_epochs else ""
        return f"{self.architecture}-{self.norm}" + (f"-s{self.seed}" if self.seed else "") + epochs

    @property
    def title(self) -> str:
        """The name, as architectures have one."""
        return self.name

    def build(self, classes: int) -> nn.Module:
        """Return the network with fresh weights."""
        return networks.build(self.architecture, classes)


def job_of(name: str, epochs: int | None = None) -> Job:
    """Read the name of a network."""
    architecture = networks.architecture_of(name)
    found = re.fullmatch(r"-(\w+?)(?:-s(\d+))?(?:-e(\d+))?", name.removeprefix(architecture))
    if not found or found[1] not in INNER:
        raise SystemExit(f"{name} is no network: write such as {architecture}-linf or {architecture}-l1-s2-e4.")
    length = int(found[3] or 0) or epochs or EPOCHS.get(architecture, USUAL_EPOCHS)
    return Job(architecture, found[1], int(found[2] or 0), length, bool(found[3]))


def read_arrays(path: Path) -> tuple[Tensor, Tensor]:
    """Read images and labels; the first 4-D array holds the images, the first 1-D array the labels."""
    check_unpacked(path)
    with np.load(path, allow_pickle=False) as file:
        arrays = [file[key] for key in file.files]
    images = [array for array in arrays if array.ndim == 4 and array.dtype == np.uint8]
    labels = [array for array in arrays if array.ndim == 1]
    if not images or not labels or len(images[0]) != len(labels[0]):
        raise SystemExit(f"{path.name} must hold uint8 images [n, 32, 32, 3] and as many labels.")
    return torch.from_numpy(images[0]).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels[0].astype(np.int64))


def read(path: Path) -> TrainingData:
    """Read the file of training images."""
    x, y = read_arrays(path)
    if len(y) <= 2 * HELD_OUT:
        raise SystemExit(f"{path.name} holds {len(y)} images: training needs over {2 * HELD_OUT}.")
    return TrainingData(x[:-HELD_OUT], y[:-HELD_OUT], x[-HELD_OUT:], y[-HELD_OUT:])


def train(job: Job, data: TrainingData, out: Path, device: torch.device, batch: int | None = None) -> dict[str, Any]:
    """Train one network, or go on from its checkpoint; write the weights and return what was measured."""
    recipe = AdversarialTraining(norm=job.norm, batch=batch or AdversarialTraining.batch)
    identity = {"job": dataclasses.asdict(job), "batch": recipe.batch, "images": len(data.x_train)}
    checkpoint_path = out / f"{job.name}.checkpoint.safetensors"
    trainer = Trainer(recipe, job, data, job.seed, job.epochs, device, compiled=False)
    first, seconds = 0, 0.0
    if checkpoint := Checkpoint.read(checkpoint_path, identity):
        trainer.restore(checkpoint.tensors)
        first, seconds = checkpoint.epochs_done, checkpoint.seconds
    with torch.backends.cudnn.flags(enabled=True, benchmark=device.type == "cuda"):
        for epoch in range(first, job.epochs):
            start = time.perf_counter()
            loss = trainer.run_epoch(epoch)
            seconds += time.perf_counter() - start
            print(f"{job.name} {epoch + 1}/{job.epochs} loss {loss:.4f} {seconds:.0f} s", file=sys.stderr, flush=True)
            Checkpoint(identity, epoch + 1, seconds, trainer.state()).write(checkpoint_path)
    trainer.average.write_to(trainer.network)
    path = out / f"{job.name}.safetensors"
    write_half(trainer.network, path)
    row = describe(job, path, data, device) | {"seconds": round(seconds, 1)}
    checkpoint_path.unlink(missing_ok=True)
    return row


def describe(job: Job, path: Path, data: TrainingData, device: torch.device) -> dict[str, Any]:
    """Measure the written file on the images that were held out: clean, and under its own attack with 20 steps."""
    network, inner = networks.load(path).to(device), INNER[job.norm]
    rng = torch.Generator(device).manual_seed(job.seed)
    clean = robust = 0
    with frozen(network):
        for x, y in batches(data.x_test.to(device), data.y_test.to(device)):
            right = is_correct(network, x, y)
            clean += int(right.sum())
            x_adv = inner.run(network, x, y, inner.eps, 20, rng)
            robust += int((right & is_correct(network, x_adv, y)).sum())
    return {
        "name": job.name,
        "architecture": job.architecture,
        "norm": job.norm,
        "eps": inner.eps,
        "steps": inner.steps,
        "epochs": job.epochs,
        "seed": job.seed,
        "clean": clean / len(data.y_test),
        "pgd20": robust / len(data.y_test),
        "held_out": len(data.y_test),
        "hardware": hardware_of(device),
        "sha256": sha256_of(path),
    }


def main(words: Sequence[str] | None = None) -> None:
    """Train the networks that are not there yet, one after the other."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--train", type=Path, required=True, help="training images and labels, .npz")
    options.add_argument("--out", type=Path, required=True, help="folder for weights and checkpoints")
    options.add_argument("--networks", default=DEFAULT, help="names, separated by commas")
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--epochs", type=int, help="instead of each architecture's own")
    options.add_argument("--batch", type=int, help="images per step")
    options.add_argument("--images", type=int, help="train on the first so many images only, for a smoke run")
    chosen = options.parse_args(words)
    jobs = [job_of(name, chosen.epochs) for name in chosen.networks.split(",")]
    data = read(chosen.train)
    if chosen.images:
        data = dataclasses.replace(data, x_train=data.x_train[: chosen.images], y_train=data.y_train[: chosen.images])
    chosen.out.mkdir(parents=True, exist_ok=True)
    for job in jobs:
        if (chosen.out / f"{job.name}.safetensors").exists():
            continue
        row = json.dumps(train(job, data, chosen.out, torch.device(chosen.device), chosen.batch))
        with (chosen.out / "networks.jsonl").open("a") as file:
            file.write(row + "\n")
        print(row, flush=True)


if __name__ == "__main__":
    main()
