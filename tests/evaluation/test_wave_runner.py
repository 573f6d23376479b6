"""One wave after another on one target: nothing of a wave that an error ended reaches the next."""

import torch
from torch import nn

import robustassay as ra
from robustassay import attacks
from robustassay.data import from_arrays, load
from robustassay.evaluation.wave_runner import WaveRunner, ignore_step
from robustassay.target import LocalModel
from robustassay.threat import ThreatModel


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.calls = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10)), 0
        self.eval()

    def forward(self, x):
        self.calls += 1
        return self.layers(x)


def test_nan_that_an_ended_wave_left_unchecked_is_not_blamed_on_the_next():
    """On a GPU, NaN is noted and looked at later, as here; blamed on a good wave, it would be cut up and run again."""
    x = load("cifar10-1k").images(slice(0, 8))
    dataset = from_arrays(x, torch.zeros(8, dtype=torch.long))
    calls = []
    for unchecked in (x, torch.full_like(x, torch.nan)):
        model = Counting()
        target = LocalModel(model, 10, torch.device("cpu"), checks_late=True)
        runner = WaveRunner(target, attacks.create("pgd:steps=2"), ThreatModel(ra.LInf(1 / 255)), dataset, 0, None)
        target.logits(unchecked)
        assert not runner.run(list(range(8)), ignore_step).failures
        calls.append(model.calls)
    assert calls[0] == calls[1]
