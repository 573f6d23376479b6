"""What every defense is: a frozen configuration that turns a module into a defended one."""

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
    """Declare a field with the values it may take: numbers from low to high, or words among some."""
    return field(default=default, metadata={"low": low, "high": high, "among": tuple(among)})


@dataclass(frozen=True)
class Defense(ABC):
    """A defense declares whether it draws random numbers; `|` puts it in front of a model or another defense.

    A random defense draws anew for every image of every pass, from torch's own generator, so that images of a
    batch share nothing and `torch.manual_seed` repeats a pass. Of its gradients the attacker takes a mean (EOT).
    """

    random: ClassVar[bool]

    @abstractmethod
    def defend(self, model: nn.Module) -> Defended:
        """Put a module behind this defense."""

    @property
    def links(self) -> "tuple[Defense, ...]":
        """The single defenses this one consists of, the first to see an image first."""
        return self.defenses if isinstance(self, Chain) else (self,)

    @overload
    def __or__(self, other: "Defense") -> "Defense": ...
    @overload
    def __or__(self, other: nn.Module | str) -> Defended: ...
    def __or__(self, other: "Defense | nn.Module | str") -> "Defense | Defended":
        if isinstance(other, Defense):
            return chained([*self.links, *other.links])
        module = as_module(other)
        # torch marks a new module as training; judged like that, batch norm would mix the images of a batch.
        return self.defend(module).eval()

    def __post_init__(self) -> None:
        for declared in fields(self):
            if declared.metadata:
                value = _checked(type(self).__name__, declared.name, getattr(self, declared.name), declared)
                object.__setattr__(self, declared.name, value)


@final
@dataclass(frozen=True)
class Chain(Defense):
    """Several defenses, the first to see an image first."""

    defenses: tuple[Defense, ...]

    @property
    def random(self) -> bool:  # type: ignore[override]  # known only once the links are
        """Whether any link draws random numbers."""
        return any(link.random for link in self.defenses)

    def defend(self, model: nn.Module) -> Defended:
        """Put a module behind the last link, that behind the one before, and so on."""
        last, *earlier = reversed(self.defenses)
        defended = last.defend(model)
        for link in earlier:
            defended = link.defend(defended)
        return defended


@dataclass(frozen=True)
class Transform(Defense):
    """A defense that changes the image and asks the model about the result.

    A field called `copies` makes it change the image so many times and average the logits.
    """

    shattered: ClassVar[bool] = False
    """Whether no gradient survives it. The attacker then differentiates the model at the changed image and takes
    the change itself for the identity (BPDA, Athalye et al. 2018, arXiv:1802.00420)."""

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """Change images `[n, channels, height, width]`, each on its own."""

    @final
    def defend(self, model: nn.Module) -> Defended:
        """Put a module behind this change of its images."""
        return Transformed(self, model)


@final
class Transformed(Defended):
    """A model that sees changed images."""

    def __init__(self, defense: Transform, model: nn.Module) -> None:
        super().__init__(defense.random or draws_random_numbers(model))
        self.defense = defense
        self.model = model
        self.copies: int = getattr(defense, "copies", 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the changed images."""
        return self._average(self.model, self.defense(self._copied(x)))

    def differentiable(self, x: Tensor) -> Tensor:
        """Return the same logits (the same up to its draws), by a way that has a gradient."""
        x = self._copied(x)
        changed = straight_through(x, self.defense(x.detach())) if self.defense.shattered else self.defense(x)
        return self._average(adaptive(self.model), changed)

    def naive(self, x: Tensor) -> Tensor:
        """Return the logits of the images as they are."""
        return naive(self.model)(x)

    def extra_repr(self) -> str:
        """Show the settings, which tell one run from another."""
        return repr(self.defense)

    def _copied(self, x: Tensor) -> Tensor:
        return x if self.copies == 1 else x.repeat_interleave(self.copies, 0)

    def _average(self, model: Pass, x: Tensor) -> Tensor:
        logits = model(x)
        return logits if self.copies == 1 else logits.view(-1, self.copies, logits.shape[1]).mean(1)


def straight_through(x: Tensor, changed: Tensor) -> Tensor:
    """Return the changed images with the gradient of the unchanged ones; what is added is exactly zero."""
    return changed.detach() + (x - x.detach())


def chained(defenses: Sequence[Defense]) -> Defense:
    """Put defenses one after the other; of one there is no chain."""
    return defenses[0] if len(defenses) == 1 else Chain(tuple(defenses))


def as_module(model: nn.Module | str) -> nn.Module:
    """Load a model by its name, or take a module as it is."""
    if isinstance(model, nn.Module):
        return model
    if not isinstance(model, str):
        raise BadRequest(f"A defense is put in front of a torch.nn.Module or the name of a model, not {model!r}.")
    return models.load(model)


def _checked(owner: str, name: str, value: Any, declared: Any) -> Any:
    """Return a setting in its own type, so that 1 and 1.0 name one run; refuse what the defense cannot mean."""
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
