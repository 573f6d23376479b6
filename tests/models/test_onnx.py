"""ONNX files: the same answers, gradients and AutoAttack verdicts as the network they were exported from."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import robustassay as ra
from robustassay import data
from robustassay.errors import BadModel, BadRequest, BadWeights
from robustassay.models.sources import onnx as adapter
from robustassay.models.sources.extras import need
from robustassay.models.sources.onnx_scores import Runtime

NAME = "resnet20-pgd"


def export(network: nn.Module, x: torch.Tensor, path: Path, batch: bool = True) -> Path:
    """Export with the exporter that needs the package onnx only, which torch calls old."""
    axes = {"x": {0: "n"}} if batch else None
    with warnings.catch_warnings(action="ignore"):
        torch.onnx.export(network, (x,), path, dynamo=False, input_names=["x"], dynamic_axes=axes)
    return path


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    return export(ra.load_model(NAME), torch.rand(2, 3, 32, 32), tmp_path_factory.mktemp("onnx") / "model.onnx")


@pytest.fixture(scope="module")
def photos() -> torch.Tensor:
    return data.load("cifar10-1k").images(slice(0, 16))


def test_an_export_answers_and_leads_as_the_original(exported, photos):
    original, converted = ra.load_model(NAME), ra.load_model(f"onnx:{exported}")
    x = photos.requires_grad_()
    expected, found = original(x), converted(x)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    wanted, led = (torch.autograd.grad(nn.functional.cross_entropy(y, y.argmin(1)), x)[0] for y in (expected, found))
    assert nn.functional.cosine_similarity(wanted.flatten(1), led.flatten(1)).min() > 0.999


def test_an_export_gets_the_same_autoattack_verdicts(exported):
    """All four stages of the cascade, at a few steps each."""
    threat, attack = ra.LInf(8 / 255), "autoattack:steps=2,queries=5"
    original, converted = (
        ra.evaluate(model, "cifar10-1k", threat, attack, limit=6).records.set_index("sample_id")
        for model in (NAME, f"onnx:{exported}")
    )
    assert 0 < original["success"].sum() < original["clean_ok"].sum()
    assert (original["success"] == converted["success"]).all()
    assert (original["clean_ok"] == converted["clean_ok"]).all()


def test_scores_are_the_runtimes_and_gradient_attacks_are_refused(exported, photos):
    spec = f"onnx-scores:{exported}"
    with torch.no_grad():
        torch.testing.assert_close(ra.load_model(spec)(photos), ra.load_model(NAME)(photos), atol=1e-5, rtol=1e-5)
    with pytest.raises(BadModel, match="gradient is exactly zero"):
        ra.evaluate(spec, "cifar10-1k", ra.LInf(8 / 255), "pgd", limit=4)
    result = ra.evaluate(spec, "cifar10-1k", ra.LInf(16 / 255), "square:steps=30", limit=8)
    assert result.records["success"].any()


def test_a_file_with_a_fixed_batch_size_takes_any_number(tmp_path, photos):
    path = export(ra.load_model(NAME), torch.rand(3, 3, 32, 32), tmp_path / "three.onnx", batch=False)
    assert Runtime.open(path).batch == 3
    with torch.no_grad():
        expected = ra.load_model(NAME)(photos)
        torch.testing.assert_close(ra.load_model(f"onnx-scores:{path}")(photos), expected, atol=1e-5, rtol=1e-5)


def test_a_conversion_that_errs_is_refused(exported, monkeypatch):
    forward = adapter.Converted.forward
    monkeypatch.setattr(adapter.Converted, "forward", lambda self, x: forward(self, x) + 0.1)
    with pytest.raises(BadModel, match=r"answers differently\): .*onnx-scores:"):
        ra.load_model(f"onnx:{exported}")


def test_an_operator_the_converter_lacks_is_named(tmp_path):
    """An operator of the runtime's own, which no standard lists."""
    onnx = need("onnx", "onnx")
    kind, shape = onnx.TensorProto.FLOAT, ["n", 4]
    ends = [onnx.helper.make_tensor_value_info(name, kind, shape) for name in "xy"]
    node = onnx.helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft")
    graph = onnx.helper.make_graph([node], "odd", ends[:1], ends[1:])
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    path = tmp_path / "odd.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    x = torch.rand(2, 4)
    torch.testing.assert_close(ra.load_model(f"onnx-scores:{path}")(x), x * torch.sigmoid(1.702 * x))
    with pytest.raises(BadModel, match="cannot be made differentiable"):
        ra.load_model(f"onnx:{path}")


@pytest.mark.parametrize("kind", ["onnx", "onnx-scores"])
def test_files_that_are_none(kind, tmp_path):
    (tmp_path / "page.onnx").write_text("<html>")
    with pytest.raises(BadWeights, match="not an ONNX file"):
        ra.load_model(f"{kind}:{tmp_path / 'page.onnx'}")
    with pytest.raises(BadRequest, match="There is no file"):
        ra.load_model(f"{kind}:{tmp_path / 'none.onnx'}")
