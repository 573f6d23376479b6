"""The networks on which express and AutoAttack are compared: their inner attacks, training and files."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from benchmarks import networks, train_networks

from robustassay.threat import L1, L2, LInf, Norm

NORMS: dict[str, Norm] = {"linf": LInf(1), "l2": L2(1), "l1": L1(1)}


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return networks.build("tiny").eval()


@pytest.mark.parametrize("norm", train_networks.INNER)
def test_the_inner_attack_raises_the_loss_inside_its_ball(network, norm):
    inner, rng = train_networks.INNER[norm], torch.Generator().manual_seed(0)
    x, y = torch.rand(8, 3, 32, 32, generator=rng), torch.arange(8)
    x_adv = inner.run(network, x, y, inner.eps, inner.steps, rng)
    size = NORMS[norm].size((x_adv.double() - x.double()).flatten(1))
    assert (size <= inner.eps * (1 + 1e-5)).all()
    assert (size > inner.eps / 2).all()
    assert x_adv.min() >= 0
    assert x_adv.max() <= 1
    assert (
        F.cross_entropy(network(x_adv), y, reduction="none") > F.cross_entropy(network(x), y, reduction="none")
    ).all()


def test_training_writes_a_network_that_is_read_back_and_is_not_trained_twice(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(train_networks, "HELD_OUT", 8)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "train.npz", x=rng.integers(0, 256, (40, 32, 32, 3), np.uint8), y=np.arange(40) % 10)
    words = [
        "--train",
        f"{tmp_path}/train.npz",
        "--out",
        f"{tmp_path}/out",
        "--networks",
        "tiny-l1-s3",
        "--device",
        "cpu",
    ]
    train_networks.main([*words, "--batch", "16"])
    row = json.loads(capsys.readouterr().out)
    assert (row["name"], row["norm"], row["seed"], row["held_out"]) == ("tiny-l1-s3", "l1", 3, 8)
    assert 0 <= row["pgd20"] <= row["clean"] <= 1
    logits = networks.load(tmp_path / "out" / "tiny-l1-s3.safetensors")(torch.rand(2, 3, 32, 32))
    assert logits.shape == (2, 10)
    assert logits.isfinite().all()
    train_networks.main([*words, "--batch", "16"])
    assert capsys.readouterr().out == ""


def test_a_name_without_a_norm_is_refused_with_an_example():
    with pytest.raises(SystemExit, match="resnet18-linf"):
        train_networks.job_of("resnet18-l7")
    with pytest.raises(SystemExit, match="begins with no architecture"):
        train_networks.job_of("vgg-linf")
