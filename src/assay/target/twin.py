"""A quicker model with the same answers, to search with; what is found is certified on the model itself.

Batch norms are folded into the convolutions before them, and these are stored the way their kernels read them. Both
keep the precision of the model and change no more than its last digits. A model that cannot be taken apart, or whose
twin answers otherwise, has none.
"""

from copy import deepcopy
from typing import Final

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from assay.target.network import full_precision, image_dtype

TOLERANCE: Final = 1e-4
"""How far a twin's logits may lie from the model's, as a part of the largest; rounding alone gives a hundredth."""

FOLDED: Final = "batch norms folded"


def find_twin(module: nn.Module, x: Tensor) -> nn.Module | None:
    """Return the model's twin, or None where there is none; images `x` show whether both answer alike."""
    if module.training or not isinstance(module, nn.Module) or _is_watched(module) or x.dim() != 4:
        return None
    try:
        twin = fx.symbolic_trace(deepcopy(module))
        if not _fold(twin):
            return None
        twin.eval().requires_grad_(False).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return twin if _alike(module, twin, x) else None
    except Exception:  # whatever a model does that tracing cannot follow: it is searched as it is
        return None


def _is_watched(module: nn.Module) -> bool:
    """Say whether anything is called besides the layers: tracing would leave it out."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(part, name, None) for part in module.modules() for name in hooks)


def _fold(traced: fx.GraphModule) -> int:
    """Fold each batch norm into the convolution before it, where nothing else sees that one; return how many."""
    parts, folded = dict(traced.named_modules()), 0
    calls = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    for node in [*traced.graph.nodes]:
        if node.op != "call_module" or type(parts[node.target]) is not nn.BatchNorm2d:
            continue
        before = node.args[0]
        if before.op != "call_module" or type(parts[before.target]) is not nn.Conv2d or len(before.users) > 1:
            continue
        if calls.count(node.target) > 1 or calls.count(before.target) > 1:
            continue
        parent, _, name = before.target.rpartition(".")
        setattr(traced.get_submodule(parent), name, fuse_conv_bn_eval(parts[before.target], parts[node.target]))
        node.replace_all_uses_with(before)
        traced.graph.erase_node(node)
        folded += 1
    traced.recompile()
    return folded


def _alike(module: nn.Module, twin: nn.Module, x: Tensor) -> bool:
    """Compare answers to these images, changed and unchanged, in batches of two sizes."""
    shown = torch.cat((x, x.flip(-1), 1 - x)).to(image_dtype(module))
    with torch.no_grad(), full_precision(x.device):
        expected = torch.cat([module(part) for part in torch.split(shown, 8)])
        found = torch.cat([twin(part) for part in torch.split(shown, 24)])
    return bool(((expected - found).abs().amax() <= TOLERANCE * expected.abs().amax()).all())
