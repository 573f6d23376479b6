"""The zoo: per model a card, NAME.json, and its weights, NAME.safetensors, in half precision."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from robustassay.errors import BadWeights, UnknownName
from robustassay.models.architectures.architecture import Architecture, from_description
from robustassay.models.card import ModelCard

if TYPE_CHECKING:  # Listing the zoo must not import torch.
    import torch
    from torch import Tensor, nn

EMBEDDED = Path(__file__).parent / "zoo"


def names(folder: Path = EMBEDDED) -> tuple[str, ...]:
    """Return the names of all models in the zoo."""
    return tuple(sorted(path.stem for path in folder.glob("*.json")))


def card(name: str, folder: Path = EMBEDDED) -> ModelCard:
    """Return the card of a model."""
    if name not in names(folder):
        raise UnknownName("model", name, names(folder))
    try:
        text = (folder / f"{name}.json").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadWeights(f"The card of {name} cannot be read ({error}): reinstall it or fetch it again.") from error
    return ModelCard.from_json(text)


def load(name: str, device: "str | torch.device" = "cpu", folder: Path = EMBEDDED) -> "nn.Module":
    """Return a model in eval mode and float32; the hash of its weights is checked, and they are frozen."""
    from robustassay.models.weights import read_weights, sha256_of

    origin = card(name, folder)
    path = folder / f"{name}.safetensors"
    weights = read_weights(path)
    found = sha256_of(path)
    if found != origin.sha256:
        raise BadWeights(
            f"The weights of {name} are not those of its card (sha256 {found[:12]}..., "
            f"expected {origin.sha256[:12]}...): reinstall assay or fetch the model again."
        )
    return assemble(from_description(origin.architecture), origin.classes, weights).to(device)


def assemble(architecture: Architecture, classes: int, weights: "Mapping[str, Tensor]") -> "nn.Module":
    """Return a network of this architecture with these weights, in single precision and frozen."""
    import torch

    # Initial weights are discarded, so the random state of the caller must not change.
    with torch.random.fork_rng(devices=[]):
        network = architecture.build(classes)
    try:
        network.load_state_dict(weights, strict=True)
    except RuntimeError as error:
        raise BadWeights(
            f"The weights do not fit {architecture}: load them into the architecture they were trained in."
        ) from error
    return network.eval().requires_grad_(False)
