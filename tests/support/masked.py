"""Models that look more robust than they are: each hides its gradients, or its answers, in a way of its own.

`GALLERY` names them all, each a function from an honest model to a broken one. Every one answers nearly as well as the
model it is made of; what differs is what an attacker sees.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Masked(nn.Module):
    """A model with something done to its images before, or to its logits after."""

    def __init__(
        self,
        module: nn.Module,
        before: Callable[[Tensor], Tensor] = lambda x: x,
        after: Callable[[Tensor], Tensor] = lambda z: z,
    ) -> None:
        super().__init__()
        self.module, self.before, self.after = module, before, after
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.module(self.before(x)))


class WinnersTakeAll(nn.Module):
    """Only the largest activations of each layer pass (k-WTA, Xiao et al. 2020, arXiv:1905.10510)."""

    def __init__(self, module: nn.Module, share: float) -> None:
        super().__init__()
        self.module, self.share = module, share
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        relu, F.relu = F.relu, self.strongest  # type: ignore[assignment]
        try:
            logits: Tensor = self.module(x)
        finally:
            F.relu = relu
        return logits

    def strongest(self, h: Tensor, inplace: bool = False) -> Tensor:
        flat = h.flatten(1)
        least = flat.topk(int(self.share * flat.shape[1]), 1).values[:, -1:]
        return (flat * (flat >= least)).view_as(h)


class Optimises(nn.Module):
    """Takes a step of its own on the image before it answers."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            mine = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.module(mine).amax(1).sum(), mine)
        logits: Tensor = self.module(x + 1e-3 * slope.sign())
        return logits


class Purifies(nn.Module):
    """Climbs towards the class it believes in before it answers, and forgets where it came from.

    As the anti-adversary layer does (Alfarra et al. 2022, arXiv:2103.14347).
    """

    def __init__(self, module: nn.Module, steps: int = 2, size: float = 2 / 255) -> None:
        super().__init__()
        self.module, self.steps, self.size = module, steps, size
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        better = x.detach()
        for _ in range(self.steps):
            with torch.enable_grad():
                mine = better.clone().requires_grad_()
                (slope,) = torch.autograd.grad(self.module(mine).log_softmax(1).amax(1).sum(), mine)
            better = (better + self.size * slope.sign()).clamp(0, 1)
        logits: Tensor = self.module(better)
        return logits


class Embeds(nn.Module):
    """Looks every 8-bit value up in a table, a tone curve here, as discretised models do."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        values = torch.linspace(0, 1, 256)
        self.table = nn.Embedding.from_pretrained((values + 0.04 * torch.sin(6.3 * values))[:, None])
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.module(self.table((x.clamp(0, 1) * 255).round().long()).squeeze(-1))
        return logits


class Staircase(nn.Module):
    """Rounds with pairs of ReLUs, both dead or both saturated but for a sliver of values."""

    def __init__(self, module: nn.Module, levels: int = 32, steepness: float = 1e4) -> None:
        super().__init__()
        self.module, self.steepness = module, steepness
        self.edges = nn.Parameter((torch.arange(levels) + 0.5) / levels)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        past = self.steepness * (x[..., None] - self.edges)
        logits: Tensor = self.module((F.relu(past) - F.relu(past - 1)).mean(-1))
        return logits


class Thermometer(nn.Module):
    """Shows the model a code of bits, each of which says whether a value is above a level (Buckman et al. 2018)."""

    def __init__(self, module: nn.Module, levels: int = 16) -> None:
        super().__init__()
        self.module, self.levels = module, levels
        self.read = nn.Conv2d(3 * levels, 3, 1)
        with torch.no_grad():
            self.read.weight[:] = torch.eye(3).repeat_interleave(levels, 1)[..., None, None] / levels
            self.read.bias.zero_()  # type: ignore[union-attr]
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        edges = (torch.arange(self.levels, device=x.device) + 0.5) / self.levels
        code = (x[:, :, None] > edges[:, None, None]).to(x).flatten(1, 2)
        logits: Tensor = self.module(self.read(code))
        return logits


class Remembers(nn.Module):
    """Knows some images by heart: shown one of them, it says the label it was given, sure beyond measure."""

    def __init__(self, module: nn.Module, images: Tensor, labels: Tensor, near: float = 1e-3) -> None:
        super().__init__()
        self.module, self.near = module, near
        self.images, self.labels = nn.Buffer(images), nn.Buffer(labels)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        apart = (x.detach()[:, None] - self.images).flatten(2).abs().amax(2)
        distance, which = apart.min(1)
        logits: Tensor = self.module(x)
        by_heart = 100 * F.one_hot(self.labels[which], logits.shape[1]).to(logits)
        return torch.where((distance < self.near)[:, None], by_heart, logits)


class _Backwards(torch.autograd.Function):
    """Does nothing, and hands back a changed gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.change = change
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        return ctx.change(slopes[0]), None


class Lies(nn.Module):
    """A model whose gradient with respect to its images is changed on the way back."""

    def __init__(self, module: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.module, self.change = module, change
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.module(_Backwards.apply(x, self.change))
        return logits


class Closed(nn.Module):
    """A model called without a graph, as code written for service often does."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.eval()

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.module(x)
        return logits


class _Shaken(nn.Module):
    """Multiplies features by fresh noise."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self.size = size

    def forward(self, h: Tensor) -> Tensor:
        return h * (1 + self.size * torch.randn_like(h))


class RandomLayers(nn.Module):
    """Shakes the features behind every convolution, anew in each pass."""

    def __init__(self, module: nn.Module, size: float = 0.3) -> None:
        super().__init__()
        self.module, self.size = module, size
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        shaken = _Shaken(self.size)
        hooks = [
            part.register_forward_hook(lambda part, seen, h: shaken(h))
            for part in self.module.modules()
            if isinstance(part, nn.Conv2d)
        ]
        try:
            logits: Tensor = self.module(x)
        finally:
            for hook in hooks:
                hook.remove()
        return logits


class Drifts(nn.Module):
    """Counts its calls, and shifts every image by an amount that grows with their number."""

    def __init__(self, module: nn.Module, step: float = 2e-3) -> None:
        super().__init__()
        self.module, self.step, self.calls = module, step, 0
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        logits: Tensor = self.module(x + self.step * (self.calls % 50))
        return logits


class AnswersFromMemory(nn.Module):
    """Keeps the images that it has seen, and answers near copies of one as it answered that one."""

    def __init__(self, module: nn.Module, near: float = 0.04) -> None:
        super().__init__()
        self.module, self.near = module, near
        self.images: list[Tensor] = []
        self.answers: list[Tensor] = []
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.module(x)
        answers = []
        for image, answer in zip(x.detach(), logits, strict=True):
            known = [k for k, old in enumerate(self.images) if float((old - image).abs().amax()) <= self.near]
            answers.append(answer - answer.detach() + self.answers[known[0]] if known else answer)
            if not known and len(self.images) < 64:
                self.images.append(image.clone())
                self.answers.append(answer.detach().clone())
        return torch.stack(answers)


def partly_detached(module: nn.Module, share: float = 0.75) -> nn.Module:
    """Detaches the graph in most of the columns of an image."""

    def before(x: Tensor) -> Tensor:
        cut = int(share * x.shape[-1])
        return torch.cat((x[..., :cut].detach(), x[..., cut:]), -1)

    return Masked(module, before=before)


def detached_losers(module: nn.Module) -> nn.Module:
    """Only the highest logit has a gradient."""

    def after(z: Tensor) -> Tensor:
        top = F.one_hot(z.argmax(1), z.shape[1]).bool()
        return torch.where(top, z, z.detach())

    return Masked(module, after=after)


def rescaled_gradients(module: nn.Module) -> nn.Module:
    """Passes gradients back with the size of each value changed a thousandfold."""

    def change(slope: Tensor) -> Tensor:
        sizes = torch.logspace(-3, 0, slope[0].numel(), device=slope.device)
        return slope * sizes[torch.randperm(len(sizes), generator=torch.Generator().manual_seed(0))].view_as(slope[0])

    return Lies(module, change)


def mostly_random_signs(module: nn.Module, share: float = 0.7) -> nn.Module:
    """Flips a coin for the signs of most of the values of a gradient, always the same ones."""

    def change(slope: Tensor) -> Tensor:
        rng = torch.Generator().manual_seed(0)
        kept = torch.rand(slope.shape[1:], generator=rng) > share
        coin = torch.randint(0, 2, slope.shape[1:], generator=rng) * 2 - 1
        return torch.where(kept, slope, slope * coin)

    return Lies(module, change)


def lies_on_some(module: nn.Module, share: float = 0.3) -> nn.Module:
    """Detaches images whose first pixels fall into some classes: a share of all images."""

    class Some(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module
            self.eval()

        def forward(self, x: Tensor) -> Tensor:
            brightness = x.detach().flatten(1).mean(1)
            lies = (brightness * 37 % 1 < share).view(-1, *(1,) * (x.dim() - 1))
            logits: Tensor = self.module(torch.where(lies, x.detach() + 0.02 * (x - x.detach()), x))
            return logits

    return Some()


def hidden_scores(module: nn.Module) -> nn.Module:
    """Shows the highest logit only; all others are zero."""

    def after(z: Tensor) -> Tensor:
        top = F.one_hot(z.argmax(1), z.shape[1])
        return (1 + z.amax(1, keepdim=True) - z.amin(1, keepdim=True).detach()) * top

    return Masked(module, after=after)


def far_noise(module: nn.Module) -> nn.Module:
    """A random model with a class at -1e9."""
    return with_far_class(noisy(module, 0.05))


class RoundsActivations(nn.Module):
    """Computes in float32 and rounds the outputs of all layers to a few bits, as half precision does."""

    def __init__(self, module: nn.Module, bits: int) -> None:
        super().__init__()
        self.module, self.bits = module, bits
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        def rounded(part: nn.Module, seen: Any, h: Tensor) -> Tensor:
            with torch.no_grad():
                size = torch.exp2(h.abs().clamp(min=1e-30).log2().floor() - self.bits)
                error = (h / size).round() * size - h
            return h + error

        hooks = [
            part.register_forward_hook(rounded) for part in self.module.modules() if not next(part.children(), None)
        ]
        try:
            logits: Tensor = self.module(x)
        finally:
            for hook in hooks:
                hook.remove()
        return logits


class DeadRegions(nn.Module):
    """An honest network that is constant, and so has no gradient, on images below some brightness."""

    def __init__(self, module: nn.Module, below: float) -> None:
        super().__init__()
        self.module, self.below = module, below
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.module(x)
        open_ = F.relu(x.flatten(1).mean(1, keepdim=True) - self.below).clamp(max=0.02) / 0.02
        return open_ * logits + torch.arange(logits.shape[1], 0, -1).to(logits) * 0.01


class SaturatedBranch(nn.Module):
    """The saturated logits of one network plus a little of another: right gradients that lead nowhere."""

    def __init__(self, decoy: nn.Module, module: nn.Module, steepness: float = 3.0, share: float = 0.05) -> None:
        super().__init__()
        self.decoy, self.module, self.steepness, self.share = decoy, module, steepness, share
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = torch.tanh(self.steepness * self.decoy(x)) + self.share * self.module(x)
        return logits


def crowd_dependent(module: nn.Module, more_than: int = 8) -> nn.Module:
    """Subtracts a mean over the batch, in large batches only."""
    return Masked(module, after=lambda z: z - z.mean(0) if len(z) > more_than else z)


def with_far_class(module: nn.Module, value: float = -1e9) -> nn.Module:
    """Adds a class that never wins."""
    return Masked(module, after=lambda z: torch.cat((z, torch.full_like(z[:, :1], value)), 1))


def quantised(module: nn.Module, levels: int = 16) -> nn.Module:
    """Rounds the input: the gradient is zero everywhere."""
    return Masked(module, before=lambda x: (x * (levels - 1)).round() / (levels - 1))


def noisy(module: nn.Module, size: float = 0.03) -> nn.Module:
    """Adds fresh noise to every image."""
    return Masked(module, before=lambda x: x + size * torch.randn_like(x))


def noisy_by_numpy(module: nn.Module, size: float = 0.01) -> nn.Module:
    """Adds noise drawn by NumPy, as preprocessing often does; the gradient is right."""
    return Masked(module, before=lambda x: x + torch.from_numpy(np.random.normal(0, size, x.shape)).to(x))


def details_by_numpy(module: nn.Module, size: float = 0.01) -> nn.Module:
    """Keeps a coarse image, and shrinks its details and adds noise to them outside of the graph."""

    def denoise(x: Tensor) -> Tensor:
        coarse = F.interpolate(F.avg_pool2d(x, 4), scale_factor=4.0)
        details = (x - coarse).detach().cpu().numpy()
        details = np.sign(details) * np.maximum(np.abs(details) - size, 0) + np.random.normal(0, size, details.shape)
        return coarse + torch.from_numpy(details).to(x)

    return Masked(module, before=denoise)


def rippled(module: nn.Module, size: float = 0.01, frequency: float = 3e4) -> nn.Module:
    """Adds noise that depends on the image alone: the same image gets the same, its neighbour quite another."""
    return Masked(module, before=lambda x: x + size * torch.sin(frequency * x + 50 * x.flip(-1)))


def leaking(module: nn.Module) -> nn.Module:
    """Remembers the first images of the embedded sample."""
    from robustassay import data

    known = data.load("cifar10-1k").take(64)
    return Remembers(module, known.images(slice(None)), known.labels)


def _randomly(slope: Tensor) -> Tensor:
    noise = torch.empty_like(slope).normal_(generator=torch.Generator().manual_seed(0))
    return slope * noise.sign()


GALLERY: dict[str, Callable[[nn.Module], nn.Module]] = {
    "quantised input": quantised,
    "lookup table": Embeds,
    "thermometer code": Thermometer,
    "dead ReLU": Staircase,
    "detached graph": lambda module: Masked(module, before=lambda x: x.detach()),
    "closed graph": Closed,
    "temperature 1e-3": lambda module: Masked(module, after=lambda z: z / 1e-3),
    "temperature 1e3": lambda module: Masked(module, after=lambda z: z / 1e3),
    "saturated output": lambda module: Masked(module, after=lambda z: torch.sigmoid(3 * z)),
    "probabilities": lambda module: Masked(module, after=lambda z: z.softmax(1)),
    "gradient sign flipped": lambda module: Lies(module, torch.neg),
    "gradient signs at random": lambda module: Lies(module, _randomly),
    "k winners take all": lambda module: WinnersTakeAll(module, 0.4),
    "random layers": RandomLayers,
    "random noise": lambda module: noisy(module, 0.05),
    "input-dependent noise": rippled,
    "test-time optimisation": Purifies,
    "label leak": leaking,
}
