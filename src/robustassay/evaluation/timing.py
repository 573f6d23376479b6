"""Times attacks, and compares each with the bare model passes that it makes."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, final

import torch

from robustassay import attacks
from robustassay.attacks.attack import Attack
from robustassay.data import Dataset
from robustassay.errors import BadRequest
from robustassay.evaluation.inspection import inspect_model
from robustassay.evaluation.model_ref import ModelRef, choose_device
from robustassay.evaluation.options import Precision
from robustassay.evaluation.wave import Wave, run_wave
from robustassay.models.input_frame import as_model_input
from robustassay.target import StartImages, TargetModel
from robustassay.threat import L1, L2, LInf, Norm, ThreatModel, Untargeted

DEFAULT_ATTACKS: Final = (
    "fgsm",
    "pgd:steps=40",
    "mim:steps=20",
    "apgd",
    "apgd-t:targets=2",
    "fab:steps=20",
    "deepfool",
    "cw:search_steps=2,steps=50",
    "ddn:steps=50",
    "fmn:steps=50",
    "ead:search_steps=2,steps=50",
    "square:steps=100",
    "nes:samples=50,steps=4",
    "boundary:queries=200",
    "hopskipjump:queries=200",
)
"""Attacks of every kind, with few steps: the cost per step does not depend on their number."""

EPS: Final = 8 / 255


@final
@dataclass(frozen=True)
class Timing:
    """One attack on one model: medians over repetitions, in seconds for all images together."""

    model: str
    attack: str
    threat: str
    images: int
    robust_accuracy: float
    forwards: int
    backwards: int
    seconds: float
    bare_seconds: float  # the same model passes alone, in full batches

    @property
    def ratio(self) -> float:
        """Time of the attack divided by the time of its bare model passes."""
        return self.seconds / self.bare_seconds

    def to_json(self) -> dict[str, Any]:
        """Return all values by name."""
        return {**asdict(self), "ratio": self.ratio}


def time_attacks(
    models: Sequence[str],
    requested: Sequence[str | Attack[Any]],
    dataset: Dataset,
    *,
    repeat: int = 3,
    device: str | torch.device | None = None,
    batch_size: int | None = None,
    precision: Precision = "fast",
    eps: float = EPS,
) -> Iterator[Timing]:
    """Time every attack on every model, on the same images; bare passes are timed in turn with the attacks.

    `eps` is the radius under L∞: with a small one, samples stay in the attack for more steps.
    """
    if repeat < 1:
        raise BadRequest("--repeat must be at least 1.")
    chosen_device = choose_device(device)
    for name in models:
        module = ModelRef.of(name).module
        shown = as_model_input(module, dataset)
        target = inspect_model(module, shown, chosen_device, batch_size, 20, False, precision).target
        for spec in requested:
            yield _time_attack(name, target, spec, shown, repeat, (LInf(eps), L2(1.0), L1(12.0)))


def _time_attack(
    name: str, target: TargetModel, spec: str | Attack[Any], dataset: Dataset, repeat: int, preferred: tuple[Norm, ...]
) -> Timing:
    attack = attacks.create(spec)
    norm = next((norm for norm in preferred if type(norm) in attack.norms), None)
    if norm is None:
        raise BadRequest(f"{spec} supports neither Linf, L2 nor L1: leave it out.")
    x, y = dataset.images(slice(None)).to(target.device), dataset.labels.to(target.device)
    start_images = StartImages(dataset.labels, dataset.images)
    whole: list[float] = []
    bare: list[float] = []
    for _ in range(repeat):
        wave = Wave(list(dataset.ids), x, y, start_images)
        attacked = partial(run_wave, target, attack, ThreatModel(norm), wave, 0, None, lambda ledger: None)
        seconds, (records, _) = _timed(target, attacked)
        spent = {name: sum(records[name].to_pylist()) for name in ("forwards", "backwards")}
        whole.append(seconds)
        bare.append(_time_bare_passes(target, x, y, spent["forwards"], spent["backwards"]))
    return Timing(
        name,
        spec if isinstance(spec, str) else type(spec).__name__,
        str(norm),
        len(x),
        sum(not success for success in records["success"].to_pylist()) / len(x),
        spent["forwards"],
        spent["backwards"],
        statistics.median(whole),
        statistics.median(bare),
    )


def _time_bare_passes(target: TargetModel, x: torch.Tensor, y: torch.Tensor, forwards: int, backwards: int) -> float:
    """Time this many passes in full batches; a backward pass needs a forward pass, which several may share."""
    size = target.images_per_call(x)
    full = x[:size].repeat(-(-size // len(x)), *(1,) * (x.dim() - 1))[:size]
    goal = Untargeted(y[:1].expand(len(full)))

    def gradient() -> torch.Tensor:
        images = full.detach().requires_grad_()
        loss = goal.loss(target.call(images)).sum()
        return torch.autograd.grad(loss, images)[0]

    @torch.no_grad()
    def forward() -> torch.Tensor:
        return target.call(full)

    def seconds_per_image(work: Callable[[], torch.Tensor]) -> float:
        work()
        return statistics.median(_timed(target, work)[0] for _ in range(5)) / len(full)

    one_forward, both = seconds_per_image(forward), seconds_per_image(gradient)
    paired = min(forwards, backwards)
    return paired * both + (forwards - paired) * one_forward + (backwards - paired) * max(both - one_forward, 0.0)


def _timed(target: TargetModel, work: Callable[[], Any]) -> tuple[float, Any]:
    """Run and time; on a GPU, wait until all work has finished."""
    if target.device.type == "cuda":
        torch.cuda.synchronize(target.device)
    start = time.perf_counter()
    result = work()
    if target.device.type == "cuda":
        torch.cuda.synchronize(target.device)
    return time.perf_counter() - start, result
