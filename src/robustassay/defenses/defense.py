"""The base classes of defenses: frozen settings that turn a module into a defended module."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, final, overload

from torch import Tensor, nn

from robustassay import models
from robustassay.defenses.defended import Defended, Pass, adaptive, draws_random_numbers, naive
from robustassay.errors import BadRequest


def setting(default: Any, low: float = 0, high: float = math.inf, among: Sequence[str] = ()) -> Any:
    """Declare a field with its allowed values: numbers from low to high, or one of some words."""
    return field(default=default, metadata={"low": low, "high": high, "among": tuple(among)})


@dataclass(frozen=True)
class Defense(ABC):
    """A defense declares whether it is random; `|` puts it in front of a model or of another defense.

    A random defense draws new numbers per image and pass from torch's generator, so that the images of a batch are
    independent and `torch.manual_seed` repeats a pass. An adaptive attacker averages its gradients (EOT).
    """

    random: ClassVar[bool]

    @abstractmethod
    def defend(self, model: nn.Module) -> Defended:
        """Return the module with this defense."""

    @property
    def links(self) -> "tuple[Defense, ...]":
        """The single defenses of a chain, in the order of their application."""
        return self.defenses if isinstance(self, DefenseChain) else (self,)

    @overload
    def __or__(self, other: "Defense") -> "Defense": ...
    @overload
    def __or__(self, other: nn.Module | str) -> Defended: ...
    def __or__(self, other: "Defense | nn.Module | str") -> "Defense | Defended":
        if isinstance(other, Defense):
            return chained([*self.links, *other.links])
        module = as_module(other)
        # A new module is in training mode, in which batch norm mixes the images of a batch.
        return self.defend(module).eval()

    def __post_init__(self) -> None:
        for declared in fields(self):
            if declared.metadata:
                value = _checked(type(self).__name__, declared.name, getattr(self, declared.name), declared)
                object.__setattr__(self, declared.name, value)


@final
@dataclass(frozen=True)
class DefenseChain(Defense):
    """Several defenses, in the order of their application."""

    defenses: tuple[Defense, ...]

    @property
    def random(self) -> bool:  # type: ignore[override]  # depends on the links
        """Whether any link draws random numbers."""
        return any(link.random for link in self.defenses)

    def defend(self, model: nn.Module) -> Defended:
        """Apply the links from the last to the first, so that the first one sees the image first."""
        last, *earlier = reversed(self.defenses)
        defended = last.defend(model)
        for link in earlier:
            defended = link.defend(defended)
        return defended


@dataclass(frozen=True)
class Transform(Defense):
    """A defense that transforms the image before the model.

    With a field `copies`, the image is transformed so many times and the logits are averaged.
    """

    shattered: ClassVar[bool] = False
    """Whether the transform has no useful gradient. An adaptive attacker then differentiates the model at the
    transformed image and replaces the transform by the identity (BPDA, Athalye et al. 2018, arXiv:1802.00420)."""

    replays: ClassVar[bool] = False
    """Whether it makes the same operations on the image's device in every call, so that a GPU may replay them."""

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """Transform images `[n, channels, height, width]` independently of each other."""

    @final
    def defend(self, model: nn.Module) -> Defended:
        """Return the module with this transform in front."""
        return Transformed(self, model)


@final
class Transformed(Defended):
    """A model with a transform in front."""

    def __init__(self, defense: Transform, model: nn.Module) -> None:
        super().__init__(defense.random or draws_random_numbers(model))
        self.defense = defense
        self.model = model
        self.copies: int = getattr(defense, "copies", 1)
        self.replays = defense.replays

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the transformed images."""
        return self._average(self.model, self.defense(self._copied(x)))

    def differentiable(self, x: Tensor) -> Tensor:
        """Return the same logits (up to random draws), in a differentiable way."""
        x = self._copied(x)
        changed = straight_through(x, self.defense(x.detach())) if self.defense.shattered else self.defense(x)
        return self._average(adaptive(self.model), changed)

    def naive(self, x: Tensor) -> Tensor:
        """Return the logits of the unchanged images."""
        return naive(self.model)(x)

    def extra_repr(self) -> str:
        """Return the settings, which are part of the identity of a run."""
        return repr(self.defense)

    def _copied(self, x: Tensor) -> Tensor:
        return x if self.copies == 1 else x.repeat_interleave(self.copies, 0)

    def _average(self, model: Pass, x: Tensor) -> Tensor:
        logits = model(x)
        return logits if self.copies == 1 else logits.view(-1, self.copies, logits.shape[1]).mean(1)


def straight_through(x: Tensor, changed: Tensor) -> Tensor:
    """Return the transformed images with the gradient of the identity; the added term is exactly zero."""
    return changed.detach() + (x - x.detach())


def chained(defenses: Sequence[Defense]) -> Defense:
    """Return a chain of defenses, or the defense itself if there is only one."""
    return defenses[0] if len(defenses) == 1 else DefenseChain(tuple(defenses))


def as_module(model: nn.Module | str) -> nn.Module:
    """Load a model by its name; a module is returned unchanged."""
    if isinstance(model, nn.Module):
        return model
    if not isinstance(model, str):
        raise BadRequest(f"A defense needs a torch.nn.Module or the name of a model, not {model!r}.")
    return models.load(model)


def _checked(owner: str, name: str, value: Any, declared: Any) -> Any:
    """Return a setting in the declared type, so that 1 and 1.0 give the same run; raise BadRequest if not allowed."""
    kind, low, high = type(declared.default), declared.metadata["low"], declared.metadata["high"]
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise BadRequest(f"{owner}: {name} must be of type {kind.__name__}, not {value!r}.")
    if kind is str:
        words = declared.metadata["among"]
        if words and value not in words:
            raise BadRequest(f"{owner}: {name} must be {' or '.join(words)}, not {value!r}.")
    elif not (math.isfinite(value) and low <= value <= high):
        span = f"{low} or more" if high == math.inf else f"from {low} to {high}"
        raise BadRequest(f"{owner}: {name} must be {span}, not {value}.")
    return value
