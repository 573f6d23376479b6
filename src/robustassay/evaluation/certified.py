"""A lower bound on the robust accuracy by proof, for the few models whose bounds are known to be sound."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Final

from torch import nn

from robustassay.certification.interval_bounds import is_certified
from robustassay.data import Dataset
from robustassay.models.architectures.layers import Normalise
from robustassay.target.surrogate import has_hooks
from robustassay.threat import LInf, ThreatModel

BATCH: Final = 32
PLAIN_LAYERS: Final = (nn.Linear, nn.ReLU, nn.Flatten, Normalise, nn.BatchNorm1d, nn.BatchNorm2d)


def certified_samples(module: nn.Module, threat: ThreatModel, dataset: Dataset, ids: Sequence[str]) -> list[str] | None:
    """Return which of these samples are proved robust; None where the model has no bounds, or proves none at first."""
    if not isinstance(threat.norm, LInf) or not _has_bounds(module):
        return None
    network = deepcopy(module).cpu().double().eval()
    rows = [row for row, sample in enumerate(dataset.ids) if sample in set(ids)]
    proved: list[str] = []
    for start in range(0, len(rows), BATCH):
        some = rows[start : start + BATCH]
        x, labels = dataset.images(some).double(), dataset.labels[some].cpu()
        holds = is_certified(network, x, labels, threat.norm.eps)
        proved += [dataset.ids[row] for row, held in zip(some, holds.tolist(), strict=True) if held]
        if not proved:
            return None
    return proved or None


def _has_bounds(module: nn.Module) -> bool:
    """Say whether a model is a plain sequence of layers that the bounds cover exactly."""
    if type(module) is not nn.Sequential or has_hooks(module) or not len(module):
        return False
    *body, head = module.children()
    affine = all(layer.weight is not None for layer in body if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d))
    dense = [layer for layer in (*body, head) if isinstance(layer, nn.Linear)]
    return (
        type(head) is nn.Linear
        and affine
        and all(layer.bias is not None for layer in dense)
        and all(type(layer) in PLAIN_LAYERS or _is_plain_convolution(layer) for layer in body)
    )


def _is_plain_convolution(layer: nn.Module) -> bool:
    if type(layer) is not nn.Conv2d:
        return False
    pairs: tuple[Any, ...] = layer.stride, layer.padding, layer.kernel_size
    return (
        layer.groups == 1
        and layer.dilation == (1, 1)
        and layer.padding_mode == "zeros"
        and all(isinstance(pair, tuple) and pair[0] == pair[1] for pair in pairs)
    )


def certified_entry(proved: Sequence[str], total: int) -> dict[str, Any]:
    """Return the entry of a manifest about proved samples."""
    return {"samples": list(proved), "count": len(proved), "total": total}
