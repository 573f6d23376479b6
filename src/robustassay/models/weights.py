"""Reads weight files without running code in them, and hashes weights."""

import hashlib
import struct
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from robustassay.data.safe_files import check_unpacked
from robustassay.errors import BadWeights

# Keys under which training scripts save the state dict, outermost first.
NESTED = ("last", "state_dict", "model_state_dict", "model", "net")


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Read a state dict from a .safetensors, .pt or .pth file; no code in the file runs."""
    path = Path(path)
    if not path.is_file():
        raise BadWeights(f"There is no weights file {path}: check the path or fetch the file again.")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix in (".pt", ".pth"):
        return _read_torch(path)
    raise BadWeights(f"{path.name} is not a .safetensors, .pt or .pth file: save the weights as safetensors.")


def sha256_of(path: str | Path) -> str:
    """Return the sha256 of a file's bytes, in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_state(module: nn.Module) -> str:
    """Return a sha256 over the names, types, shapes and values of a module's state."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        flat = tensor.detach().cpu().contiguous().view(-1)
        head = f"{name}\n{tensor.dtype}\n{tuple(tensor.shape)}\n".encode()
        # The length prefix separates the name from the preceding bytes.
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
        # Warnings about old pickle protocols do not matter: the file is read, or refused below.
        with warnings.catch_warnings(action="ignore"):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # truncated or other files can raise any exception
        raise BadWeights(
            f"{path.name} is damaged, or holds objects other than tensors, which are not loaded for safety: "
            "fetch it again, or save the state dict as safetensors."
        ) from error
    for key in NESTED:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not content:
        raise BadWeights(f"{path.name} holds no state dict: save the network's state_dict() as safetensors.")
    if not all(isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()):
        raise BadWeights(f"{path.name} holds more than named tensors: save the network's state_dict() as safetensors.")
    return dict(content)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
