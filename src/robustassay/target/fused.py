"""Convolution, addition and ReLU as one GPU kernel, with its gradient by the images.

As separate kernels each reads and writes every activation, which in half precision takes longer than the arithmetic.
"""

import operator
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

_RELUS: Final = (F.relu, torch.relu, "relu", "relu_")
_ADDITIONS: Final = (operator.add, operator.iadd, torch.add, "add", "add_")


def fuse(traced: fx.GraphModule) -> None:
    """Fuse every ReLU of a traced model with the convolution, or the sum with a convolution, before it."""
    parts = dict(traced.named_modules())
    for node in [*traced.graph.nodes]:
        if not (_calls(node, _RELUS) or (node.op == "call_module" and type(parts[node.target]) is nn.ReLU)):
            continue
        before: Any = node.args[0]
        terms = before.args if _is_sum(before) else (before,)
        conv = next((term for term in terms if _is_plain_convolution(term, parts)), None)
        if conv is None or len(before.users) > 1 or len(conv.users) > 1:
            continue
        added = [term for term in terms if term is not conv]
        name = f"{conv.target}_fused".replace(".", "_")
        traced.add_module(name, _ConvReLU(parts[conv.target]))
        with traced.graph.inserting_before(node):
            node.replace_all_uses_with(traced.graph.call_module(name, (*conv.args, *added)))
        for replaced in dict.fromkeys((node, before, conv)):
            traced.graph.erase_node(replaced)
    traced.recompile()


def _calls(node: fx.Node, functions: tuple[Any, ...]) -> bool:
    return node.op in ("call_function", "call_method") and node.target in functions


def _is_sum(node: fx.Node) -> bool:
    terms = set(node.args)
    return _calls(node, _ADDITIONS) and len(terms) == 2 and all(isinstance(term, fx.Node) for term in terms)


def _is_plain_convolution(node: fx.Node, parts: dict[str, Any]) -> bool:
    conv = parts.get(str(node.target)) if node.op == "call_module" else None
    return type(conv) is nn.Conv2d and conv.groups == 1 and conv.padding_mode == "zeros" and conv.padding != "same"


class _ConvReLU(nn.Module):
    """max(0, conv(x) + added)."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        if x.is_cuda and torch.is_grad_enabled():
            fused: Tensor = _Fused.apply(x, added, self.conv)  # type: ignore[no-untyped-call]
            return fused
        if x.is_cuda:
            return _kernel(x, added, self.conv)
        return F.relu(self.conv(x) if added is None else self.conv(x) + added)


def _kernel(x: Tensor, added: Tensor | None, conv: Any) -> Tensor:
    shape = conv.stride, conv.padding, conv.dilation, conv.groups
    if added is None:
        return torch.cudnn_convolution_relu(x, conv.weight, conv.bias, *shape)
    return torch.cudnn_convolution_add_relu(x, conv.weight, added, 1.0, conv.bias, *shape)


class _Fused(torch.autograd.Function):
    """The kernel of cuDNN, and its backward pass: through the ReLU, then the convolution."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, added: Tensor | None, conv: Any) -> Tensor:
        out = _kernel(x, added, conv)
        ctx.conv, ctx.has_added = conv, added is not None
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, out = ctx.saved_tensors
        conv = ctx.conv
        gradient = torch.ops.aten.threshold_backward(gradient, out, 0)
        to_x, _, _ = torch.ops.aten.convolution_backward(
            gradient, x, conv.weight, None, conv.stride, conv.padding, conv.dilation, False, (0, 0), conv.groups,
            (True, False, False),
        )  # fmt: skip
        return to_x, gradient if ctx.has_added else None, None
