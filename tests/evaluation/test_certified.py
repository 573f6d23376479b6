"""Proved samples: a lower bound beside the robust accuracy, and no doubt about them."""

import pytest
import torch
from torch import nn

import robustassay as ra
from robustassay.analysis.rates import Rate
from robustassay.evaluation.certified import certified_samples
from robustassay.store import AFTER

THREAT = ra.LInf(0.02)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 3)).eval()


@pytest.fixture(scope="module")
def data(model):
    x = torch.rand(40, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return x, model(x).argmax(1)


def test_proved_samples_are_a_lower_bound_and_not_in_doubt(model, data, tmp_path):
    weak = ra.evaluate(model, data, THREAT, "bim:steps=1,rel_step=0.01", out=tmp_path / "run")
    proved = weak.manifest["certified"]["samples"]
    strong = ra.evaluate(model, data, THREAT, "pgd")
    assert weak.evidence.certified == Rate(len(proved), 40)
    assert 0 < len(proved) / 40 <= strong.robust_accuracy
    assert not set(weak.doubtful) & set(proved)
    standing = set(weak.records["sample_id"][~weak.records["success"]])
    assert set(weak.doubtful) == standing - set(proved), "one tiny step leaves all margins as they were"
    assert "certified lower bound" in weak.evidence.summary
    assert (tmp_path / "run" / AFTER).is_file()
    assert ra.Result.load(tmp_path / "run").evidence == weak.evidence


class Twice(nn.Sequential):
    def forward(self, x):
        return super().forward(2 * x - 0.5)


def test_models_without_sound_bounds_prove_nothing(model, data):
    dataset = ra.data.from_arrays(*data)
    threat = ra.ThreatModel(THREAT)
    assert certified_samples(model, threat, dataset, dataset.ids)
    for other in (Twice(*model), nn.Sequential(*model, nn.Softmax(1)), nn.Sequential(nn.Sigmoid(), *model)):
        assert certified_samples(other.eval(), threat, dataset, dataset.ids) is None
    hooked = nn.Sequential(*model).eval()
    hooked.register_forward_hook(lambda module, given, logits: -logits)
    assert certified_samples(hooked, threat, dataset, dataset.ids) is None
    assert certified_samples(model, ra.ThreatModel(ra.L2(0.5)), dataset, dataset.ids) is None
    assert certified_samples(model, ra.ThreatModel(ra.LInf(0.9)), dataset, dataset.ids) is None
