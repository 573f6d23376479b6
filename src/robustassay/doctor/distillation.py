"""Trains a small network to repeat a model's logits, as a substitute for transfer attacks where the zoo has none."""

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.doctor.clock import seconds_now
from robustassay.doctor.probe_set import SEED, ProbeSet
from robustassay.rng import Streams
from robustassay.target import LocalModel
from robustassay.threat import Ball

QUERIES: Final = 2000
"""The most images that the model is shown."""

QUERY_SECONDS: Final = 10.0
STEPS: Final = 300
STEP_SECONDS: Final = 20.0
"""Queries and training steps stop after this time."""

BATCH: Final = 64
LEARNING_RATE: Final = 2e-3

SIDE: Final = 32
"""Larger images are averaged down to this side."""


class _SmallConvolutional(nn.Module):
    """Three convolutions on images of at most `SIDE` pixels a side."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(channels, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
        )
        self.head = nn.Linear(64 * 16, classes)

    def forward(self, x: Tensor) -> Tensor:
        small = F.adaptive_avg_pool2d(x, SIDE) if max(x.shape[-2:]) > SIDE else x
        logits: Tensor = self.head(self.features(small - 0.5).flatten(1))
        return logits


def distil(probes: ProbeSet) -> LocalModel:
    """Return a substitute that was trained on the model's logits, near the probe set and on further images."""
    x, logits = _queried(probes)
    targets = _standardised(logits)
    student = _student(probes)
    with torch.random.fork_rng([x.device] if x.is_cuda else []), torch.enable_grad():
        torch.manual_seed(SEED)
        for layer in student.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                layer.reset_parameters()
        _train(student.to(x.device), x, targets)
    return LocalModel(student.eval().requires_grad_(requires_grad=False), probes.target.classes, x.device)


def _student(probes: ProbeSet) -> nn.Module:
    if probes.x0.dim() == 4:
        return _SmallConvolutional(probes.x0.shape[1], probes.target.classes)
    values = probes.x0[0].numel()
    return nn.Sequential(nn.Flatten(), nn.Linear(values, 256), nn.ReLU(), nn.Linear(256, probes.target.classes))


def _queried(probes: ProbeSet) -> tuple[Tensor, Tensor]:
    """Show the model the images, and random points around them in balls of up to twice the radius."""
    images = probes.x0 if probes.background is None else torch.cat((probes.x0, probes.background.to(probes.x0.device)))
    rng = Streams.of(SEED, [str(row) for row in range(len(images))], images.device)
    started = seconds_now(images.device)
    x, logits, factor = [images], [probes.target.mean_logits(images)], 0.5
    while sum(map(len, x)) + len(images) <= QUERIES and seconds_now(images.device) - started < QUERY_SECONDS:
        factor = 0.5 if factor >= 2 else 2 * factor
        eps = factor * probes.norm.eps
        around = Ball(type(probes.norm)(eps), images, torch.full((len(images),), eps, device=images.device)).sample(rng)
        x.append(around)
        logits.append(probes.target.mean_logits(around))
    return torch.cat(x), torch.cat(logits)


def _standardised(logits: Tensor) -> Tensor:
    """Return logits without what does not matter: their mean, their scale, and classes far below."""
    low = logits.median(1, keepdim=True).values
    scale = (logits.amax(1, keepdim=True) - low).median().clamp(min=1e-12)
    shifted = ((logits - low) / scale).clamp(-3, 3)
    return shifted - shifted.mean(1, keepdim=True)


def _train(student: nn.Module, x: Tensor, targets: Tensor) -> None:
    """Fit the targets by least squares."""
    optimiser = torch.optim.Adam(student.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    started = seconds_now(x.device)
    for _ in range(STEPS):
        rows = torch.randint(len(x), (BATCH,), device=x.device)
        out = student(x[rows])
        loss = F.mse_loss(out - out.mean(1, keepdim=True), targets[rows])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
        if seconds_now(x.device) - started > STEP_SECONDS:
            break
