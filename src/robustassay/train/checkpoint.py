"""Checkpoints: the state of a training after an epoch, in one file that is written atomically."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from robustassay.errors import BadWeights, WrongFolder
from robustassay.files import write_atomically


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of a training: its identity, its progress, and its tensors."""

    identity: Mapping[str, Any]
    epochs_done: int
    seconds: float
    tensors: Mapping[str, Tensor]

    def write(self, path: Path) -> None:
        """Replace the file atomically; after a kill the old file remains."""
        header = {"identity": self.identity, "epochs_done": self.epochs_done, "seconds": self.seconds}
        whole = {name: tensor.contiguous() for name, tensor in self.tensors.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, save(whole, metadata={"training": json.dumps(header)}))

    @classmethod
    def read(cls, path: Path, identity: Mapping[str, Any]) -> "Checkpoint | None":
        """Return the checkpoint at `path`, or None if there is none; one of another training is refused."""
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                header = json.loads((file.metadata() or {})["training"])
                stored, epochs, seconds = header["identity"], int(header["epochs_done"]), float(header["seconds"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, KeyError, ValueError, TypeError, RecursionError) as error:
            raise BadWeights(f"The checkpoint {path} is damaged: delete it to train from the start.") from error
        if stored != json.loads(json.dumps(identity)):
            raise WrongFolder(
                f"{path} belongs to a training with other settings: choose another folder or name, "
                "or delete it to train from the start."
            )
        return cls(identity, epochs, seconds, tensors)
