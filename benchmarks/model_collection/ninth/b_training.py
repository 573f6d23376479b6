"""How the small networks of the `b_` files are trained: usual optimisers, and sign or gradient steps against them."""

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.model_collection.entry import Entry
from benchmarks.model_collection.images import images_of
from benchmarks.model_collection.networks import Make
from benchmarks.model_collection.seventh.honest_networks import FACTS
from robustassay.cache_folder import cache_folder
from robustassay.files import write_atomically

Teach = Callable[[nn.Module, Tensor, Tensor], None]
Loss = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]
"""From a network, images, the same images attacked, and labels."""
BATCH: Final = 64
VERSION: Final = "ninth b 1"
"""Changes with the trainings of the `b_` files, so that older weights in the cache folder are not used."""


def of_attacked(net: nn.Module, x: Tensor, attacked: Tensor, y: Tensor) -> Tensor:
    """Return the mean cross-entropy of the attacked images (Madry et al. 2018)."""
    return F.cross_entropy(net(attacked), y)


def sign_steps(net: nn.Module, x: Tensor, y: Tensor, eps: float, steps: int) -> Tensor:
    """Return images after sign steps from a random start within a cube."""
    delta = eps * (2 * torch.rand_like(x) - 1)
    for _ in range(steps):
        delta.requires_grad_(True)
        (slope,) = torch.autograd.grad(F.cross_entropy(net((x + delta).clamp(0, 1)), y), delta)
        delta = (delta + 1.5 * eps / steps * slope.sign()).clamp(-eps, eps).detach()
    return (x + delta).clamp(0, 1)


@final
@dataclass(frozen=True)
class Lesson:
    """Training on random batches with a one-cycle schedule; `against` is a radius in 255ths."""

    steps: int = 200
    against: float = 0.0
    inner: int = 3
    rate: float = 6e-3
    decay: float = 0.0
    optimiser: str = "adam"
    loss: Loss = field(default=of_attacked, repr=False)

    def __call__(self, net: nn.Module, x: Tensor, y: Tensor) -> None:
        """Train the network."""
        weights = [weight for weight in net.parameters() if weight.requires_grad]
        optimiser: torch.optim.Optimizer = torch.optim.AdamW(weights, self.rate, weight_decay=self.decay)
        if self.optimiser == "sgd":
            optimiser = torch.optim.SGD(weights, self.rate, momentum=0.9, nesterov=True, weight_decay=self.decay)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, self.rate, total_steps=self.steps)
        for _ in range(self.steps):
            rows = torch.randint(len(x), (BATCH,))
            batch = x[rows]
            attacked = sign_steps(net, batch, y[rows], self.against / 255, self.inner) if self.against else batch
            step(optimiser, self.loss(net, batch, attacked, y[rows]))
            schedule.step()


def step(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    """Take one step of training."""
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()


def taught(name: str, make: Make, images: str, teach: Teach) -> nn.Module:
    """Return a network that was taught on all images of a source; its weights are kept in the cache folder."""
    told = f"{teach!r} {teach.loss.__name__}" if isinstance(teach, Lesson) else getattr(teach, "__name__", "")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = make()
        digest = hashlib.sha256(f"{VERSION} {images} {told} {net}".encode()).hexdigest()[:16]
        path = cache_folder() / "model_collection" / f"ninth-{name.replace(' ', '-')}-{digest}.pt"
        if not path.exists():
            net.train()
            with torch.enable_grad():
                teach(net, *images_of(images))
            path.parent.mkdir(parents=True, exist_ok=True)
            content = io.BytesIO()
            torch.save(net.state_dict(), content)
            write_atomically(path, content.getvalue())
    net.load_state_dict(torch.load(path, weights_only=True))
    return net.eval()


def one(family: str, images: str, eps: float, make: Make, teach: Teach, made: str = "", **facts: Any) -> Entry:
    """Return one small trained network; the radius is in 255ths."""
    classes, shape = FACTS[images]
    robust = teach.against if isinstance(teach, Lesson) else 0.0
    name = f"{family}, {images}{', robust' if robust else ''}"
    if isinstance(teach, Lesson):
        made = made or f"trained for {teach.steps} steps on {images}" + (f" against {robust:g}/255" if robust else "")
    known: dict[str, Any] = {"images": images, "classes": classes, "shape": shape, **facts}
    build = partial(taught, name, make, images, teach)
    return Entry(name, family, "honest", made or f"trained on {images}", build, eps=eps / 255, **known)
