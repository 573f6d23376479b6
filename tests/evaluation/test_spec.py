"""The identity of a run: golden values, and what does and does not change it."""

import dataclasses

import pytest
from torch import nn

from robustassay.evaluation.model_ref import ModelRef
from robustassay.evaluation.spec import RunSpec

SPEC = RunSpec(
    model={"name": "resnet20-natural", "weights": "00ff"},
    data={"name": "cifar10-1k", "sha256": "abcd"},
    threat={"norm": "Linf", "eps": 8 / 255, "target": None, "query_budget": None},
    attack={"name": "pgd", "steps": 40, "rel_step": 0.1, "restarts": 1},
    seed=0,
)


def test_golden_key():
    """Changing this value orphans every stored run: raise SPEC_VERSION when that is meant."""
    assert SPEC.canonical == (
        '{"attack":{"name":"pgd","rel_step":0.1,"restarts":1,"steps":40},'
        '"data":{"name":"cifar10-1k","sha256":"abcd"},"model":{"name":"resnet20-natural","weights":"00ff"},'
        '"seed":0,"threat":{"eps":0.03137254901960784,"norm":"Linf","query_budget":null,"target":null},"version":6}'
    )
    assert SPEC.key == "5f6cce0307591539"


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"version": 7},
        {"attack": {**SPEC.attack, "steps": 41}},
        {"threat": {**SPEC.threat, "eps": 4 / 255}},
        {"threat": {**SPEC.threat, "target": "random"}},
        {"model": {**SPEC.model, "weights": "00fe"}},
        {"data": {**SPEC.data, "sha256": "abce"}},
    ],
)
def test_every_part_changes_the_key(change):
    assert dataclasses.replace(SPEC, **change).key != SPEC.key


def test_order_of_fields_does_not():
    attack = dict(reversed(list(SPEC.attack.items())))
    assert dataclasses.replace(SPEC, attack=attack).key == SPEC.key


@pytest.mark.parametrize("affine", [True, False])
def test_a_model_is_the_same_to_every_version_of_torch(monkeypatch, affine):
    """Before 2.13, torch does not print whether a batch norm has a bias."""
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=affine)).eval()
    now = ModelRef.of(net).identity
    told = "{num_features}, eps={eps}, momentum={momentum}, affine={affine}, "

    def before(self):
        return (told + "track_running_stats={track_running_stats}").format(**vars(self))

    def since(self):
        return (told + f"bias={affine}, " + "track_running_stats={track_running_stats}").format(**vars(self))

    for printed in (before, since):
        monkeypatch.setattr(nn.BatchNorm2d, "extra_repr", printed)
        assert ModelRef.of(net).identity == now
