"""A service as a target: scores or labels, and no gradient."""

from collections.abc import Callable
from typing import Final, final

import torch
from torch import Tensor, nn

from robustassay.data import Dataset
from robustassay.errors import BadRequest, ModelFailed
from robustassay.remote.quantisation import SMALLEST_STEP, quantise
from robustassay.remote.service import Service
from robustassay.target import Loss, TargetModel
from robustassay.target.batching import Batching
from robustassay.target.calls import SeenAs
from robustassay.target.differentiation import LossOf
from robustassay.target.forward import Forward
from robustassay.target.nan_watch import NanWatch
from robustassay.target.target_model import unchanged
from robustassay.threat import Goal

PATTERNS: Final = 4
PATTERNS_WITH_LABELS_ONLY: Final = 16
"""How many images distinguish two models: scores differ on every image, labels only on some."""

NO_GRADIENTS: Final = "A service shows no gradients: use an attack on scores or on labels."


@final
class RemoteModel(TargetModel):
    """A classifier behind HTTP."""

    is_remote = True
    gives_gradients = False

    def __init__(self, service: Service, classes: int, device: torch.device, gives_scores: bool) -> None:
        rounds = service.adapter.eight_bits
        super().__init__(
            service,
            _ServiceCalls(service, device),
            classes,
            device,
            NanWatch(ModelFailed),
            quantise=quantise if rounds else unchanged,
        )
        self.service, self.gives_scores = service, gives_scores
        self.smallest_step = SMALLEST_STEP if rounds else 0.0

    @classmethod
    def open(cls, service: Service, dataset: Dataset, device: torch.device) -> "tuple[RemoteModel, bool]":
        """Ask about the first image twice; return the target, and whether the service contradicted itself."""
        x = dataset.images(slice(0, 1))
        first, again = (service.ask_again(x) for _ in range(2))
        labels = service.learn_classes(dataset.classes, first.labels)
        labels.logits([first, again])  # raises where a label means nothing
        gives_scores = first.scores is not None
        service.recognise(x.shape[1:], PATTERNS if gives_scores else PATTERNS_WITH_LABELS_ONLY)
        return cls(service, labels.count, device, gives_scores), not first.is_like(again)

    @property
    def exact(self) -> "RemoteModel":
        """This service."""
        return self

    def on(self, device: torch.device) -> "RemoteModel":
        """Return the same service, with answers on a device."""
        return RemoteModel(self.service, self.classes, device, self.gives_scores)

    def with_draws(self, draws: int) -> "RemoteModel":
        """Return the same service: answers are never averaged, as every one costs a query."""
        return self.on(self.device)

    def with_module(self, module: nn.Module) -> TargetModel:
        """Refuse: the module of a service is unknown."""
        raise BadRequest("A service has no module to replace: name a model of this process.")

    def with_head(
        self, head: Callable[[nn.Module], nn.Module], classes: int, tried: Tensor | None = None
    ) -> TargetModel:
        """Refuse, as `with_module`."""
        return self.with_module(self.module)


@final
class _ServiceCalls:
    """Asks a service, through its cache."""

    def __init__(self, service: Service, device: torch.device) -> None:
        self._service = service
        self.forward: Forward = _ServiceForward(service)
        self.batching = Batching(device, batch_size=1)

    def logits(self, x: Tensor) -> Tensor:
        """Ask about images; a failed request raises and is never a label."""
        return self._service.search(x)

    def gradient(
        self, x: Tensor, loss: Loss, goal: Goal, *per_row: Tensor, seen_as: SeenAs | None = None
    ) -> tuple[Tensor, Tensor]:
        raise BadRequest(NO_GRADIENTS)

    def jacobian(self, x: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        raise BadRequest(NO_GRADIENTS)


@final
class _ServiceForward(Forward):
    """Asks a service without its cache."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    def call(self, images: Tensor) -> Tensor:
        return self._service.forward(images)

    def call_without_graph(self, images: Tensor) -> Tensor:
        return self._service.forward(images)

    def call_differentiable(self, images: Tensor) -> Tensor:
        raise BadRequest(NO_GRADIENTS)

    def call_before_gradient(self, images: Tensor) -> Tensor:
        raise BadRequest(NO_GRADIENTS)

    def gradient(self, logits: Tensor, loss_of: LossOf, images: Tensor) -> Tensor | None:
        raise BadRequest(NO_GRADIENTS)
