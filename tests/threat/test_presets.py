"""Threats by name, and CIFAR-10 by its name alone."""

import json

import numpy as np
import pytest

import robustassay as ra
from robustassay import data
from robustassay.cli import main
from robustassay.errors import BadData, UnknownName
from robustassay.evaluation.arguments import as_threat
from robustassay.threat import preset


@pytest.mark.parametrize(
    ("name", "norm"),
    [
        ("cifar10-linf", ra.LInf(8 / 255)),
        ("cifar10-l2", ra.L2(0.5)),
        ("cifar100-linf", ra.LInf(8 / 255)),
        ("CIFAR100-L2", ra.L2(0.5)),
        ("imagenet-linf", ra.LInf(4 / 255)),
        ("imagenet-linf-16", ra.LInf(16 / 255)),
    ],
)
def test_each_is_its_norm_and_radius(name, norm):
    assert preset(name) == norm
    assert as_threat(name) == ra.ThreatModel(norm)


def test_an_unknown_one_names_the_nearest():
    with pytest.raises(UnknownName, match="cifar10-linf"):
        as_threat("cifar10-inf")


def test_by_name_on_the_command_line_and_in_python(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["eval", "alexnet-natural", "--attack", "fg", "--limit", "4", "--threat", "cifar10-l2", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["threat"]["norm"], told["threat"]["eps"]) == ("L2", 0.5)
    result = ra.evaluate("alexnet-natural", "cifar10-1k", "cifar10-l2", "fg", limit=4)
    assert result.manifest["key"] == told["key"]
    assert main(["eval", "alexnet-natural", "--threat", "cifar10-l2", "--eps", "1"]) == 2


@pytest.mark.parametrize("where", ["data", "data/cifar-10-batches-bin", "elsewhere"])
def test_cifar10_is_found_where_people_keep_it(where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_DATA", raising=False)
    with pytest.raises(BadData, match=r"cifar10:FOLDER.*cifar10-1k"):
        data.load("cifar10")
    (tmp_path / where).mkdir(parents=True)
    content = np.random.default_rng(0).integers(0, 256, (4, 3073), np.uint8)
    content[:, 0] = [3, 8, 8, 0]
    (tmp_path / where / "test_batch.bin").write_bytes(content.tobytes())
    if where == "elsewhere":
        monkeypatch.setenv("ASSAY_DATA", str(tmp_path / where))
    assert data.load("cifar10").labels.tolist() == [3, 8, 8, 0]
    result = ra.evaluate("alexnet-natural", "cifar10", ra.LInf(8 / 255), "fgsm")
    assert len(result.records) == 4
