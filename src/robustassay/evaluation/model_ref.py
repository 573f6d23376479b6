"""A model with its identity, which is part of the key of every run."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

import torch
from torch import nn

from robustassay import models
from robustassay.errors import BadRequest
from robustassay.models.weights import hash_state
from robustassay.remote import as_service, is_service, open_service

if TYPE_CHECKING:
    from robustassay.defenses import OwnGradient, UndefendedGradient

NAIVE: Final = "naive"
"""Before defenses: attacks use gradients without them."""

OWN_GRADIENT: Final = "own-gradient"
"""Before defenses: attacks use the gradients as PyTorch computes them, without BPDA; zero where a defense rounds."""


@final
@dataclass(frozen=True)
class ModelRef:
    """A model with its identity; `inspections` caches what was found out about it before runs."""

    name: str
    module: nn.Module
    identity: Mapping[str, Any]
    inspections: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_remote(self) -> bool:
        """Whether the model is a service behind HTTP."""
        return as_service(self.module) is not None

    @classmethod
    def of(cls, model: nn.Module | str, name: str | None = None) -> "ModelRef":
        """Load a model by name, with the defenses named before it, or take a module as it is."""
        if isinstance(model, str) and is_service(model):
            return cls.of(open_service(model), name or model)
        if (service := as_service(model)) is not None:
            return cls(service.name_in_results(name), service, {"service": service.adapter.identity})
        if not isinstance(model, str):
            return cls(name or type(model).__name__, model, _identify(model) if isinstance(model, nn.Module) else {})
        *defenses, inner = (part.strip() for part in model.split("|"))
        module, source = models.load_with_origin(inner)
        module = _defended(defenses, module) if defenses else module
        return cls(name or model, module, _identify(module) | ({"source": source} if source else {}))


def gradient_wrappers() -> "dict[str, type[OwnGradient] | type[UndefendedGradient]]":
    """Return what each word before defenses puts around the defended model."""
    from robustassay.defenses import OwnGradient, UndefendedGradient

    return {NAIVE: UndefendedGradient, OWN_GRADIENT: OwnGradient}


def _defended(defenses: list[str], module: nn.Module) -> nn.Module:
    """Put defenses before a module; the first word may say which gradients attacks get."""
    from robustassay.defenses import create

    wrappers = gradient_wrappers()
    word, *others = defenses
    if word not in wrappers:
        return create("|".join(defenses)) | module
    if not others:
        raise BadRequest(f"{word} needs a defense after it: write such as '{word}|jpeg|resnet56-natural'.")
    return wrappers[word](create("|".join(others)) | module)


def _identify(module: nn.Module) -> dict[str, str]:
    """Hash the weights, and the structure as torch prints it."""
    return {"weights": hash_state(module), "structure": hashlib.sha256(_structure(module).encode()).hexdigest()}


def _structure(module: nn.Module) -> str:
    """Print a module as torch 2.13 does; versions before it do not print whether a batch norm has a bias."""
    return re.sub(r"affine=(True|False), track", r"affine=\1, bias=\1, track", repr(module))


def choose_device(device: str | torch.device | None) -> torch.device:
    """Return the device asked for; by default a GPU where there is one."""
    if device is not None:
        try:
            chosen = torch.device(device)
        except (RuntimeError, TypeError) as error:
            raise BadRequest(f"device must be such as cpu, cuda, cuda:1 or mps, not {device!r}.") from error
        if chosen.type == "cuda" and not torch.cuda.is_available():
            raise BadRequest("There is no GPU that torch can use here: run with --device cpu.")
        if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
            raise BadRequest(f"There is no {chosen} here: the GPUs are cuda:0 to cuda:{torch.cuda.device_count() - 1}.")
        if chosen.type == "mps" and not torch.backends.mps.is_available():
            raise BadRequest("There is no Apple GPU that torch can use here: run with --device cpu.")
        return chosen
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
