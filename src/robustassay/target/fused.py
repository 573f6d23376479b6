"""Several layers as one GPU kernel in half precision, with its gradient by the images.

As separate kernels each layer reads and writes every activation, which takes longer than the arithmetic. Convolution,
addition and ReLU are one kernel of cuDNN. A batch norm in front of a convolution cannot be folded into it; with its
ReLU, and with the addition before it, it is one kernel of `fused_kernels`.
"""

import importlib.util
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

_RELUS: Final = (F.relu, torch.relu, "relu", "relu_")
_ADDITIONS: Final = (operator.add, operator.iadd, torch.add, "add", "add_")
_IN_PLACE: Final = (operator.iadd, "add_")


def fuse(traced: fx.GraphModule) -> None:
    """Fuse every ReLU of a traced model with the convolution, or the batch norm, before it."""
    parts = dict(traced.named_modules())
    for node in [*traced.graph.nodes]:
        if _calls(node, _RELUS) or (node.op == "call_module" and type(parts[node.target]) is nn.ReLU):
            _fuse_with_norm(traced, node, parts) or _fuse_with_convolution(traced, node, parts)
    traced.graph.eliminate_dead_code()
    traced.recompile()


def _fuse_with_norm(traced: fx.GraphModule, relu: fx.Node, parts: dict[str, Any]) -> bool:
    """Put one module in the place of a batch norm and its ReLU, and of the sum before them; say whether that worked."""
    norm: Any = relu.args[0]
    layer = parts.get(str(norm.target)) if norm.op == "call_module" else None
    if type(layer) is not nn.BatchNorm2d or not layer.track_running_stats or len(norm.users) > 1:
        return False
    before: Any = norm.args[0]
    is_sum = _is_sum(before)
    terms = before.args if is_sum else (before,)
    fused = _insert(traced, relu, _ScaledReLU.of(layer, keeps_sum=is_sum), terms, after=before)
    if is_sum:
        with traced.graph.inserting_after(fused):
            total = traced.graph.call_function(operator.getitem, (fused, 0))
            out = traced.graph.call_function(operator.getitem, (fused, 1))
        before.replace_all_uses_with(total)
        fused = out
    relu.replace_all_uses_with(fused)
    return True


def _fuse_with_convolution(traced: fx.GraphModule, relu: fx.Node, parts: dict[str, Any]) -> bool:
    """Put one module in the place of a convolution, an addition if any, and a ReLU; say whether that worked."""
    before: Any = relu.args[0]
    terms = before.args if _is_sum(before) else (before,)
    conv = next((term for term in terms if _is_plain_convolution(term, parts)), None)
    if conv is None or len(before.users) > 1 or len(conv.users) > 1:
        return False
    added = [term for term in terms if term is not conv]
    relu.replace_all_uses_with(_insert(traced, relu, _ConvReLU(parts[conv.target]), (*conv.args, *added), after=before))
    return True


def _insert(
    traced: fx.GraphModule, relu: fx.Node, module: nn.Module, arguments: Sequence[fx.Node], after: fx.Node
) -> fx.Node:
    """Add a call of a new module behind a node."""
    name = f"fused_{relu.name}"
    traced.add_module(name, module)
    with traced.graph.inserting_after(after):
        return traced.graph.call_module(name, tuple(arguments))


def _calls(node: fx.Node, functions: tuple[Any, ...]) -> bool:
    return node.op in ("call_function", "call_method") and node.target in functions


def _is_sum(node: fx.Node) -> bool:
    """Say whether a node adds two values, and nothing sees the first one changed in place."""
    terms = set(node.args)
    if not (_calls(node, _ADDITIONS) and len(terms) == 2 and all(isinstance(term, fx.Node) for term in terms)):
        return False
    return node.target not in _IN_PLACE or len(node.all_input_nodes[0].users) == 1


def _is_plain_convolution(node: fx.Node, parts: dict[str, Any]) -> bool:
    conv = parts.get(str(node.target)) if node.op == "call_module" else None
    return type(conv) is nn.Conv2d and conv.groups == 1 and conv.padding_mode == "zeros" and conv.padding != "same"


class _ScaledReLU(nn.Module):
    """max(0, scale * total + shift) of total = x + added, per channel; with `keeps_sum`, the total as well."""

    scale: Tensor
    shift: Tensor

    def __init__(self, scale: Tensor, shift: Tensor, keeps_sum: bool) -> None:
        super().__init__()
        self.register_buffer("scale", scale)
        self.register_buffer("shift", shift)
        self.keeps_sum = keeps_sum

    @classmethod
    def of(cls, norm: nn.BatchNorm2d, keeps_sum: bool) -> "_ScaledReLU":
        """Return the module of a batch norm."""
        mean, variance = norm.running_mean, norm.running_var
        assert mean is not None, "a batch norm without statistics is not fused"
        assert variance is not None
        scale = (variance.detach().float() + norm.eps).rsqrt()
        shift = -mean.detach().float() * scale
        if norm.affine:
            weight, bias = norm.weight.detach().float(), norm.bias.detach().float()
            scale, shift = scale * weight, shift * weight + bias
        return cls(scale, shift, keeps_sum)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "_ScaledReLU":
        """Follow the model to another device, but not into half precision, whose range is too small."""
        for name, values in self.named_buffers():
            self._buffers[name] = values.to(fn(values).device)
        return self

    def forward(self, x: Tensor, added: Tensor | None = None) -> Any:
        """Call the kernel on a GPU in half precision, else the steps one by one."""
        if x.is_cuda and x.dtype == torch.float16 and HAS_TRITON:
            from robustassay.target.fused_kernels import ScaledReLU

            return ScaledReLU.apply(x, added, self.scale, self.shift, self.keeps_sum)  # type: ignore[no-untyped-call]
        total = x if added is None else x + added
        scale, shift = (values.to(x.dtype).view(1, -1, 1, 1) for values in (self.scale, self.shift))
        out = F.relu(total * scale + shift)
        return (total, out) if self.keeps_sum else out


HAS_TRITON: Final = importlib.util.find_spec("triton") is not None
"""Triton comes with builds of torch for CUDA."""


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
