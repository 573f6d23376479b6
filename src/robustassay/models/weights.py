"""Weights in files: read without ever running what a file says, and known by their hash."""

import hashlib
import struct
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from robustassay.data.files import check_unpacked
from robustassay.errors import BadWeights

# Where training scripts put the state dict inside of what they save, outermost first.
NESTED = ("last", "state_dict", "model_state_dict", "model", "net")


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Read a state dict from a .safetensors, .pt or .pth file; no code in the file is ever run."""
    path = Path(path)
    if not path.is_file():
        raise BadWeights(f"There is no weights file {path}: check the path or fetch the file again.")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix in (".pt", ".pth"):
        return _read_torch(path)
    raise BadWeights(f"{path.name} is not a .safetensors, .pt or .pth file: re-save the weights as safetensors.")


def sha256_of(path: str | Path) -> str:
    """Return the sha256 of a file's bytes, in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_state(module: nn.Module) -> str:
    """Return a sha256 that changes when any name, type, shape or value of a module's state does."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        flat = tensor.detach().cpu().contiguous().view(-1)
        head = f"{name}\n{tensor.dtype}\n{tuple(tensor.shape)}\n".encode()
        # The length in front keeps a name from being mistaken for the bytes before it.
        digest.update(struct.pack("<Q", len(head)) + head)
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise BadWeights(
            f"{path.name} is damaged or not a safetensors file ({_first_line(error)}): fetch it again."
        ) from error


def _read_torch(path: Path) -> dict[str, Tensor]:
    with path.open("rb") as file:
        beginning = file.read(64)
    if beginning.lstrip().startswith(b"<"):
        raise BadWeights(f"{path.name} is a web page, not a weights file: fetch it again.")
    check_unpacked(path, BadWeights)
    try:
        # An old pickle protocol is no concern of the user's: either it can be read or it is refused below.
        with warnings.catch_warnings(action="ignore"):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # files that are cut, of another kind, or hold more than tensors raise anything at all
        raise BadWeights(
            f"{path.name} is damaged, or holds more than plain tensors and was not run for safety: "
            "fetch it again, or have its author re-save the state dict as safetensors."
        ) from error
    for key in NESTED:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not content:
        raise BadWeights(f"{path.name} holds no state dict: re-save the network's state_dict() as safetensors.")
    if not all(isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()):
        raise BadWeights(
            f"{path.name} holds more than named tensors: re-save the network's state_dict() as safetensors."
        )
    return dict(content)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
