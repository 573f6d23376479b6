"""Timing: an attack that wastes time is detected, and bare passes are counted in full."""

import json
import time
from dataclasses import dataclass
from typing import final

from torch import Tensor

from robustassay.attacks.attack import Attack
from robustassay.cli import main
from robustassay.data import load
from robustassay.evaluation.timing import time_attacks
from robustassay.target import GradientAccess
from robustassay.threat import LInf


@final
@dataclass(frozen=True)
class Dawdler(Attack[GradientAccess]):
    """Asks for gradients and sleeps in between."""

    access = GradientAccess
    norms = (LInf,)

    steps: int = 4
    nap: float = 0.0

    def __call__(self, view: GradientAccess, x0: Tensor) -> Tensor:
        for _ in range(self.steps):
            view.gradient(x0)
            time.sleep(self.nap)
        return x0


def test_time_that_is_not_the_models_is_seen():
    quick, slow = time_attacks(
        ["resnet20-natural"], [Dawdler(), Dawdler(nap=0.5)], load("cifar10-1k").take(8), repeat=1
    )
    assert quick.backwards == slow.backwards <= 4 * 8
    assert slow.seconds - quick.seconds > 1.5
    assert slow.ratio > quick.ratio


def test_the_command_prints_and_writes(tmp_path, capsys):
    request = ["bench", "resnet20-natural", "--attack", "fgsm", "deepfool:steps=2", "--limit", "4", "--repeat", "1"]
    assert main([*request, "--out", str(tmp_path / "bench.json"), "--quiet"]) == 0
    assert "times bare" in capsys.readouterr().out
    written = json.loads((tmp_path / "bench.json").read_text())
    fgsm, deepfool = written["timings"]
    assert fgsm["seconds"] > 0 < fgsm["bare_seconds"]
    assert deepfool["backwards"] > deepfool["forwards"] > 0, "a Jacobian is one forward and many backwards"
    assert main([*request, "--repeat", "0"]) == 2
