"""Finds a faster copy of a model to search with; what is found is verified on the model itself.

On a CPU, batch norms are folded into the convolutions before them, and weights are stored in the layout of their
kernels, which changes the last digits only. On a GPU that gains too little: there the surrogate also computes in half
precision. Its margins are off by hundredths, so a success must clear that margin error, and the search ends with steps
on the model itself. float16, not bfloat16: as fast, and eight times finer (on a robust ResNet-20 of four times the
width the gradients of 1,000 images have a cosine of 0.994 or more with the exact ones, against 0.58). A model of which
half precision gives no good copy is tried under autocast, which keeps sums and norms in float32. Where a copy is good
on most images but not on all, each sample is checked before it is attacked, and those on which the copy is not good
are searched on the model itself.
A model that cannot be traced, whose copies give other logits, or whose copies are slower, has no surrogate.
"""

import threading
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Final, final

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from robustassay.target.comparison import near_top, relative_difference
from robustassay.target.cuda_graphs import CALLS_BEFORE_RECORDING, ReplayedModule
from robustassay.target.differentiation import LARGEST_COTANGENT
from robustassay.target.environment import callers_environment
from robustassay.target.fused import fuse
from robustassay.target.precision import full_precision, image_dtype

TOLERANCE: Final = 1e-4
"""Largest difference between the logits of surrogate and model, relative to the gap between leading logits; rounding
alone gives a hundredth of it."""

HALF_TOLERANCE: Final = 1e-2
"""The same in half precision."""

HALF_COSINE: Final = 0.95
"""Smallest cosine between the gradients of a surrogate in half precision and the model's on an image."""

HALF_SHARE: Final = 0.75
"""Share of the images tried on which a surrogate in half precision must be as good as that."""

MARGIN_ERROR_FACTOR: Final = 4.0
"""The margin error of a surrogate in half precision, as a multiple of the largest error of its logits."""

MIN_MARGIN_ERROR: Final = 1e-6
"""The margin error of a surrogate in half precision without any error on the images tried."""

CLEARLY: Final = 0.5
"""A surrogate that takes less than this part of the model's time is faster, without a second look."""

FOLDED: Final = "batch norms folded"
HALF: Final = "float16"
AUTOCAST: Final = "float16 by autocast"


@final
@dataclass(frozen=True)
class Surrogate:
    """A module to search with, what makes it faster, and its margin error."""

    module: nn.Module
    name: str
    dtype: torch.dtype
    margin_error: float = 0.0
    differs_on_some: bool = False  # so that each sample must be checked before it is searched with this module

    def to(self, device: torch.device) -> "Surrogate":
        """Return the same on another device."""
        return replace(self, module=self.module.to(device))

    def with_margin_error(self, largest_error: float) -> "Surrogate":
        """Return the same with the margin error that follows from the largest error of its logits."""
        return replace(self, margin_error=max(MARGIN_ERROR_FACTOR * largest_error, MIN_MARGIN_ERROR))


def find_surrogate(module: nn.Module, x: Tensor) -> Surrogate | None:
    """Return the model's surrogate, or None; both are compared on the images `x`."""
    is_training = getattr(module, "training", False)  # a frozen script has no mode
    if not isinstance(module, nn.Module) or is_training or has_hooks(module) or x.dim() != 4:
        return None
    tried = torch.cat((x, x.flip(-1), 1 - x)).to(image_dtype(module))
    with full_precision(x.device):
        full = _full(module, tried)
        if not x.is_cuda:
            return full
        good = (found for found in _in_half(module, full, tried) if found is not None)
        return next((found for found in good if not _is_slower(found, module, tried)), None)


def has_hooks(module: nn.Module) -> bool:
    """Say whether a layer has hooks: tracing would leave them out."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(part, name, None) for part in module.modules() for name in hooks)


def is_replayable(module: nn.Module, random: bool) -> bool:
    """Say whether a call may be recorded and replayed: it makes the same operations on the device in every call.

    A module declares this by `replays`, for itself and not for a `model` or `network` inside it; a module without
    random numbers that can be traced does it, too.
    """
    if not isinstance(module, nn.Module) or getattr(module, "training", False) or has_hooks(module):
        return False
    if getattr(module, "replays", False):
        inner = getattr(module, "model", getattr(module, "network", None))
        return inner is None or is_replayable(inner, getattr(inner, "random", False))
    return not random and _traced(module) is not None


def _folded(module: nn.Module) -> fx.GraphModule | None:
    """Return a copy without the batch norms that follow a convolution; None where there are none."""
    traced = _traced(module)
    if traced is None or not _fold(traced):
        return None
    _make_fast(traced)
    return traced


def _traced(module: nn.Module) -> fx.GraphModule | None:
    """Return a copy as a graph of layers; None where tracing cannot follow the model."""
    try:
        with _one_at_a_time, callers_environment():
            tracer = _ThreadTracer()
            graph = tracer.trace(deepcopy(module))
            return fx.GraphModule(tracer.root, graph, type(module).__name__)
    except Exception:  # such as control flow that depends on values
        return None


_one_at_a_time = threading.Lock()
"""Tracing replaces how modules are called, in all threads."""


@final
class _ThreadTracer(fx.Tracer):
    """Follows the calls of its own thread only: another thread may call its model meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Record a call, or pass on that of another thread."""
        if threading.get_ident() != self._thread:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)


def _fold(traced: fx.GraphModule) -> int:
    """Fold each batch norm into the convolution before it, if nothing else uses that output; return how many."""
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


def _make_fast(module: nn.Module) -> None:
    """Prepare a module for inference; only values of rank 4 have the memory format of images."""

    def reordered(values: Tensor) -> Tensor:
        return values.contiguous(memory_format=torch.channels_last) if values.dim() == 4 else values

    module.eval().requires_grad_(False)._apply(reordered)  # type: ignore[no-untyped-call]


def _full(module: nn.Module, tried: Tensor) -> Surrogate | None:
    """Return a surrogate in the model's own precision, if its logits agree in batches of two sizes."""
    folded = _folded(module)
    if folded is None:
        return None
    try:
        with torch.no_grad():
            expected = torch.cat([module(part) for part in torch.split(tried, 8)])
            agree = bool((relative_difference(expected, folded(tried)) <= TOLERANCE).all())
    except Exception:
        return None
    return Surrogate(folded, FOLDED, image_dtype(module)) if agree else None


def _in_half(module: nn.Module, full: Surrogate | None, tried: Tensor) -> Iterator[Surrogate | None]:
    """Yield surrogates in half precision, the faster one first."""
    if image_dtype(module) != torch.float32:
        return
    try:
        expected = logits_and_gradients(module, tried)
    except Exception:  # such as a model without a gradient
        return
    yield _half(module, full, tried, expected)
    yield _compared(_Autocast(deepcopy(module)), AUTOCAST, tried, expected)


def _half(
    module: nn.Module, full: Surrogate | None, tried: Tensor, expected: tuple[Tensor, Tensor]
) -> Surrogate | None:
    """Return a surrogate whose every value is float16, with batch norms and ReLUs fused."""
    try:
        fast = deepcopy(full.module) if full else _traced(module) or deepcopy(module)
        if isinstance(fast, fx.GraphModule):
            fuse(fast)
        _make_fast(fast.half())
    except Exception:  # not every model can be copied so
        return None
    return _compared(fast, f"{HALF}, {full.name}" if full else HALF, tried, expected)


@final
class _Autocast(nn.Module):
    """A model whose products are computed in half precision, and its sums in full precision."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module.eval().requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """Call the model under autocast."""
        with torch.autocast(x.device.type, torch.float16):
            logits: Tensor = self.module(x.float())
        return logits


def _compared(fast: nn.Module, name: str, tried: Tensor, expected: tuple[Tensor, Tensor]) -> Surrogate | None:
    """Return a surrogate in half precision, if its logits and gradients agree with the model's on most images."""
    try:
        found = logits_and_gradients(fast, tried.half())
    except Exception:  # not every model has a half precision
        return None
    near = relative_difference(expected[0], found[0]) <= HALF_TOLERANCE
    good = is_aligned(expected[1], found[1]) & near
    if good.float().mean() < HALF_SHARE:
        return None
    error = float((expected[0] - found[0])[near_top(expected[0]) & good[:, None]].abs().amax())
    surrogate = Surrogate(fast, name, torch.float16, differs_on_some=not bool(good.all()))
    return surrogate.with_margin_error(error)


def is_aligned(gradient: Tensor, found: Tensor) -> Tensor:
    """Return on which images a gradient in half precision has the direction of the exact one; false for NaN."""
    return torch.cosine_similarity(gradient.flatten(1), found.flatten(1)) >= HALF_COSINE


def _is_slower(surrogate: Surrogate, module: nn.Module, tried: Tensor) -> bool:
    """Compare the times of gradients on a GPU, as the search computes them.

    The model has computed these gradients before, so that its kernels are loaded; a second look is for close times.
    """
    fast = ReplayedModule(surrogate.module, surrogate.dtype)
    for _ in range(CALLS_BEFORE_RECORDING):  # loads kernels and records graphs
        logits_and_gradients(fast, tried)
    shorter = min(_seconds(fast, tried), _seconds(fast, tried))
    return shorter > CLEARLY * _seconds(module, tried) and shorter > _seconds(module, tried)


def _seconds(module: Callable[[Tensor], Tensor], images: Tensor) -> float:
    """Return the time of a gradient."""
    torch.cuda.synchronize(images.device)
    started = time.perf_counter()
    logits_and_gradients(module, images)
    torch.cuda.synchronize(images.device)
    return time.perf_counter() - started


@torch.enable_grad()
def logits_and_gradients(module: Callable[[Tensor], Tensor], tried: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits, and the gradient of the margin between the two highest logits of each image."""
    images = tried.detach().clone().requires_grad_()
    logits = module(images).float()
    first, second = logits.topk(2, dim=1).values.unbind(1)
    (gradient,) = torch.autograd.grad(LARGEST_COTANGENT * (first - second).sum(), images)  # as in the search
    return logits.detach(), gradient.float().flatten(1)
