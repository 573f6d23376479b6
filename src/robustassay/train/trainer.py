"""The trainer: the state that changes from step to step, and the training step."""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from robustassay.errors import BadRequest
from robustassay.models import zoo
from robustassay.models.architectures.architecture import Architecture
from robustassay.train.augment import CropsAndFlips
from robustassay.train.average import MovingAverage
from robustassay.train.capture import CapturedStep
from robustassay.train.data import TrainingData
from robustassay.train.recipe import Recipe


class Trainer:
    """Trains one network epoch by epoch; on a CPU the same seed and epochs give the same weights.

    On a GPU the step runs in mixed precision as one CUDA graph; weights are then the same only up to rounding.
    """

    def __init__(
        self,
        recipe: Recipe,
        architecture: Architecture,
        data: TrainingData,
        seed: int,
        epochs: int,
        device: torch.device,
        compiled: bool,
    ) -> None:
        self._recipe, self._seed, self._device = recipe, seed, device
        self._batch = min(recipe.batch, len(data.x_train))
        self._steps_per_epoch = len(data.x_train) // self._batch
        self._all_steps = self._steps_per_epoch * epochs

        self.network = build_seeded(architecture, data.classes, seed).to(device)
        if recipe.start:
            start_from(recipe.start, self.network)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.average = MovingAverage(self.network)
        if compiled:
            self.network.compile()
        self._images = CropsAndFlips.of(data.x_train.to(device))
        self._labels = data.y_train.to(device)

        # The recorded step reads these tensors in place.
        self._index = torch.zeros(self._batch, dtype=torch.int64, device=device)
        self._rate = torch.zeros((), device=device)
        self._blend = torch.zeros((), device=device)
        self._progress = torch.zeros((), device=device)
        self._loss_sum = torch.zeros((), device=device)
        self._rng = torch.Generator(device)
        self._optimizer = torch.optim.SGD(
            self.network.parameters(),
            lr=self._rate,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            nesterov=True,
            fused=True,
        )
        self._run_step: Callable[[], None] = (
            CapturedStep(self._step, self._rng) if device.type == "cuda" else self._step
        )

    def run_epoch(self, epoch: int) -> float:
        """Train one epoch on all images in random order, and return the mean loss."""
        # New seeds per epoch, so that a resumed training draws the same numbers as an uninterrupted one.
        seed = stream_seed(self._seed, epoch)
        self._rng.manual_seed(seed)
        order = torch.randperm(len(self._labels), generator=torch.Generator().manual_seed(seed))
        # The last images, fewer than a batch, are left out in this epoch.
        batches = order[: self._steps_per_epoch * self._batch].view(-1, self._batch).to(self._device)
        self.network.train()
        self._loss_sum.zero_()
        for step, index in enumerate(batches, start=epoch * self._steps_per_epoch):
            self._index.copy_(index)
            progress = (step + 0.5) / self._all_steps
            self._progress.fill_(progress)
            self._rate.fill_(self._recipe.rate_at(progress))
            self._blend.fill_(1 - self._recipe.average_at(step))
            self._run_step()
        return float(self._loss_sum) / self._steps_per_epoch

    def state(self) -> dict[str, Tensor]:
        """Return all tensors that training changes, by name."""
        names = [name for name, _ in self.network.named_parameters()]
        momenta = [state["momentum_buffer"] for state in self._optimizer.state.values()]
        return {
            **{f"network.{name}": tensor for name, tensor in self.network.state_dict().items()},
            **{f"momentum.{name}": tensor for name, tensor in zip(names, momenta, strict=True)},
            "average": self.average.flat,
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore a state from `state`."""
        for name, tensor in self.network.state_dict().items():
            tensor.copy_(state[f"network.{name}"])
        for name, parameter in self.network.named_parameters():
            momentum = torch.empty_like(parameter).copy_(state[f"momentum.{name}"])
            self._optimizer.state[parameter] = {"momentum_buffer": momentum}
        self.average.flat.copy_(state["average"])

    def _step(self) -> None:
        x = self._images.draw(self._index, self._rng)
        y = self._labels[self._index]
        self._optimizer.zero_grad(set_to_none=True)
        with self._mixed_precision():
            loss = self._recipe.loss(self.network, x, y, self._rng, self._progress)
        torch.autograd.backward(loss)
        if self._recipe.clip:
            nn.utils.clip_grad_norm_(self.network.parameters(), self._recipe.clip)
        self._optimizer.step()
        self.average.update(self._blend)
        self._loss_sum += loss.detach()

    def _mixed_precision(self) -> AbstractContextManager[object]:
        return torch.autocast("cuda", torch.bfloat16) if self._device.type == "cuda" else nullcontext()


def build_seeded(architecture: Architecture, classes: int, seed: int) -> nn.Module:
    """Return a network whose initial weights depend only on the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return architecture.build(classes)


def start_from(name: str, network: nn.Module) -> None:
    """Copy the weights of a zoo model into a network."""
    try:
        network.load_state_dict(zoo.load(name).state_dict())
    except RuntimeError as error:
        raise BadRequest(f"{name} has another architecture: set it with --arch to start from its weights.") from error


def stream_seed(seed: int, epoch: int) -> int:
    """Return the seed of one epoch, independent of other epochs and runs."""
    return int.from_bytes(hashlib.sha256(f"assay/train/{seed}/{epoch}".encode()).digest()[:7])
