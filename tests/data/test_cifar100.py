"""CIFAR-100 in its official files and as a folder per class, and the threats that are named after it."""

import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import robustassay as ra
from robustassay.data import load
from robustassay.data.readers.cifar100 import CLASSES
from robustassay.errors import BadData

LABELS = np.array([3, 99, 0, 41])


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (len(LABELS), 3, 32, 32), np.uint8)


def write_pickle(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = [0] * len(LABELS)
    batch = {"data": pixels.reshape(-1, 3072), "fine_labels": LABELS.tolist(), "coarse_labels": coarse}
    path.write_bytes(pickle.dumps(batch, protocol=4))
    return path


def write_binary(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    labels = np.stack([np.zeros(len(LABELS)), LABELS], 1).astype(np.uint8)
    path.write_bytes(np.hstack([labels, pixels.reshape(-1, 3072)]).tobytes())
    return path


def test_the_official_files_agree(tmp_path, pixels, monkeypatch):
    made = [
        load(f"cifar100:{write_pickle(tmp_path / 'a/test', pixels)}"),
        load(f"cifar100:{write_pickle(tmp_path / 'b/cifar-100-python/test', pixels).parents[1]}"),
        load(f"cifar100:{write_binary(tmp_path / 'c/test.bin', pixels).parent}"),
    ]
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path / "b"))
    made.append(load("cifar100"))
    for dataset in made:
        assert dataset.labels.tolist() == LABELS.tolist()
        assert dataset.classes == CLASSES
        assert dataset.name == "cifar100"
        assert torch.equal((dataset.images(slice(None)) * 255).round().byte(), torch.from_numpy(pixels))
        assert dataset.sha256 == made[0].sha256


def test_a_folder_per_class_has_the_same_labels(tmp_path, pixels):
    for name in CLASSES:
        (tmp_path / name).mkdir()
    for at, (image, label) in enumerate(zip(pixels, LABELS, strict=True)):
        Image.fromarray(image.transpose(1, 2, 0)).save(tmp_path / CLASSES[label] / f"{at}.png")
    dataset = load(f"cifar100:{tmp_path}")
    assert dataset.classes == CLASSES
    assert sorted(dataset.labels.tolist()) == sorted(LABELS)
    (tmp_path / "apple").rename(tmp_path / "pineapple")
    with pytest.raises(BadData, match="'apple'"):
        load(f"cifar100:{tmp_path}")


def test_other_files_are_refused_in_one_sentence(tmp_path, pixels, monkeypatch):
    (tmp_path / "test").write_bytes(pickle.dumps({"data": pixels.reshape(-1, 3072), "labels": LABELS.tolist()}))
    with pytest.raises(BadData, match=r"not a CIFAR-100 python batch.*cifar-100-python"):
        load(f"cifar100:{tmp_path / 'test'}")
    (tmp_path / "test.bin").write_bytes(b"x" * 3073)
    with pytest.raises(BadData, match=r"multiple of 3074.*cifar10:FOLDER"):
        load(f"cifar100:{tmp_path / 'test.bin'}")
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path / "nowhere"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadData, match="cifar100:FOLDER"):
        load("cifar100")


@pytest.mark.parametrize("threat", ["cifar100-linf", "cifar100-l2"])
def test_its_threats_evaluate_a_model_of_a_hundred_classes(threat, tmp_path, pixels):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 100)).eval()
    result = ra.evaluate(model, f"cifar100:{write_pickle(tmp_path / 'test', pixels)}", threat, "pgd:steps=2")
    assert len(result.records) == len(LABELS)
    assert result.manifest["spec"]["data"]["name"] == "cifar100"
