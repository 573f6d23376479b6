"""`onnx-scores:FILE`: an ONNX file in ONNX Runtime, without gradients."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from robustassay.errors import BadModel, BadRequest, BadWeights
from robustassay.models.sources import Loaded
from robustassay.models.sources.extras import need
from robustassay.models.weights import sha256_of

UNNAMED_SIDE = 224
"""The image side if the file does not fix it; used only to compare a conversion."""


def load(rest: str) -> Loaded:
    """Load a file with ONNX Runtime."""
    path = existing(rest)
    return Loaded(Scores(Runtime.open(path), sha256_of(path)), sha256_of(path))


def existing(rest: str) -> Path:
    """Return the path of an existing file."""
    path = Path(rest).expanduser()
    if not path.is_file():
        raise BadRequest(f"There is no file {rest}: give the path of an ONNX file.")
    return path


@final
@dataclass(frozen=True)
class Runtime:
    """A session of ONNX Runtime with the name, shape and batch size of its only input."""

    session: Any
    name: str
    shape: tuple[int, ...]
    batch: int | None  # images per call, if the file fixes it

    @classmethod
    def open(cls, path: Path) -> "Runtime":
        """Open a file; a file that is not an image classifier is an error."""
        runtime = need("onnxruntime", "onnx")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        try:
            session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its errors have no other common class
            reason = str(error).strip().partition("\n")[0]
            raise BadWeights(f"{path.name} is damaged or not an ONNX file ({reason}): export it again.") from error
        inputs = session.get_inputs()
        if len(inputs) != 1 or len(inputs[0].shape) not in (2, 4) or inputs[0].type != "tensor(float)":
            raise BadModel(
                f"{path.name} does not take one batch of float images: export the classifier with a single input."
            )
        batch, *shape = inputs[0].shape
        fixed = tuple(side if isinstance(side, int) else UNNAMED_SIDE for side in shape)
        return cls(session, inputs[0].name, fixed, batch if isinstance(batch, int) else None)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the first output for any number of images, in calls of the file's batch size."""
        images = x.detach().cpu().float()
        size = self.batch or len(images)
        parts = [self._run(images[start : start + size]) for start in range(0, len(images), size)]
        return torch.cat(parts).to(x.device)

    def _run(self, images: Tensor) -> Tensor:
        short = self.batch - len(images) if self.batch else 0
        full = torch.cat((images, images[-1:].expand(short, *images.shape[1:]))) if short else images
        answer = self.session.run(None, {self.name: full.contiguous().numpy()})[0]
        return torch.from_numpy(answer)[: len(images)].clone()


@final
class Scores(nn.Module):
    """A module that returns the scores of ONNX Runtime, without gradient."""

    def __init__(self, runtime: Runtime, sha256: str) -> None:
        super().__init__()
        self.runtime = runtime
        self.sha256 = sha256

    def extra_repr(self) -> str:
        """Return the hash of the file, which identifies the model."""
        return self.sha256

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores."""
        return self.runtime(x)
