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
"""Converted and original may differ by this part of the largest score: rounding takes a thousandth of it."""


def load(rest: str) -> Loaded:
    """Convert a file, and compare the result with ONNX Runtime on a few images."""
    path = existing(rest)
    runtime = Runtime.open(path)  # first, as it knows every operator: what it refuses is a broken file
    onnx, onnx2pytorch = need("onnx", "onnx"), need("onnx2pytorch", "onnx")
    try:
        with warnings.catch_warnings(action="ignore"):
            graph = onnx2pytorch.ConvertModel(onnx.load(str(path)), experimental=True)
        module = Converted(graph).eval()
        x = patterns(runtime.shape)
        with torch.no_grad():
            found = module(x)
    except Exception as error:  # a converter meets graphs nobody foresaw, and fails in as many ways
        raise _unlike(path, f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}") from error
    expected = runtime(x)
    if found.shape != expected.shape or (found - expected).abs().max() > TOLERANCE * expected.abs().max():
        raise _unlike(path, "the converted model answers differently")
    return Loaded(module, sha256_of(path))


@final
class Converted(nn.Module):
    """A converted graph, without the warnings its converter's code gives on a newer torch."""

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
    """Make a few fixed images, none like another, in which every value differs from its neighbours."""
    places = torch.arange(4 * int(torch.tensor(shape).prod()), dtype=torch.float64)
    return ((places * 0.6180339887) % 1).float().view(4, *shape)


def _unlike(path: Path, reason: str) -> BadModel:
    return BadModel(
        f"{path.name} cannot be made differentiable ({reason}): attack it by its scores as onnx-scores:{path}, or load "
        "the original network."
    )
