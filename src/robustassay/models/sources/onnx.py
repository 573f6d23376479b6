"""`onnx:FILE`: an ONNX file as a differentiable torch module.

onnx2pytorch converts the graph; whatever it makes is compared with ONNX's own runtime before it is believed, as a
converter that errs would make every number wrong. Preparation, such as normalising, must be inside the graph.
"""

import warnings
from pathlib import Path
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from robustassay.errors import BadModel
from robustassay.models.sources import Loaded
from robustassay.models.sources.extras import need
from robustassay.models.sources.onnx_scores import Runtime, existing
from robustassay.models.weights import sha256_of

TOLERANCE: Final = 1e-3
"""Allowed difference between converted and original scores, relative to the largest score."""


def load(rest: str) -> Loaded:
    """Convert a file, and compare the result with ONNX Runtime on a few images."""
    path = existing(rest)
    runtime = Runtime.open(path)  # first, because it knows every operator: a file it refuses is broken
    onnx, onnx2pytorch = need("onnx", "onnx"), need("onnx2pytorch", "onnx")
    try:
        with warnings.catch_warnings(action="ignore"):
            graph = onnx2pytorch.ConvertModel(onnx.load(str(path)), experimental=True)
        module = Converted(graph).eval()
        x = patterns(runtime.shape)
        with torch.no_grad():
            found = module(x)
    except Exception as error:  # a converter can raise any exception on an unusual graph
        raise _unlike(path, f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}") from error
    expected = runtime(x)
    if found.shape != expected.shape or (found - expected).abs().max() > TOLERANCE * expected.abs().max():
        raise _unlike(path, "the converted model answers differently")
    return Loaded(module, sha256_of(path))


@final
class Converted(nn.Module):
    """A converted graph, without the warnings of its converter on a newer torch."""

    def __init__(self, graph: nn.Module) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, x: Tensor) -> Tensor:
        """Return the first output of the graph."""
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            out: Any = self.graph(x)
        logits: Tensor = out[0] if isinstance(out, tuple | list) else out
        return logits


def patterns(shape: tuple[int, ...]) -> Tensor:
    """Return a few fixed, different images for the comparison."""
    places = torch.arange(4 * int(torch.tensor(shape).prod()), dtype=torch.float64)
    return ((places * 0.6180339887) % 1).float().view(4, *shape)


def _unlike(path: Path, reason: str) -> BadModel:
    return BadModel(
        f"{path.name} cannot be made differentiable ({reason}): attack it by its scores as onnx-scores:{path}, or load "
        "the original network."
    )
