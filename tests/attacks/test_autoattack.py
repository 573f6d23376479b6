"""AutoAttack as a whole: its versions, models with few classes, images that are not square, models of other kinds."""

import pytest
import torch
from torch import Tensor, nn

import robustassay as ra
from robustassay import attacks
from robustassay.attacks.gradient import apgd
from robustassay.attacks.gradient.autoattack import AutoAttack
from robustassay.threat import L1, L2, LInf
from tests.support.masked import noisy
from tests.support.toys import Linear, distances, images, run, two_classes


def stage_list(version: str, norm: ra.LInf | ra.L1) -> list[tuple[str, int]]:
    found = AutoAttack(version=version).stages(norm)
    return [(name, getattr(attack, "restarts", getattr(attack, "starts", 1))) for name, attack in found]


def test_the_versions_run_the_references_lists():
    assert stage_list("standard", LInf(1)) == [("apgd-ce", 1), ("apgd-t", 1), ("fab-t", 1), ("square", 1)]
    assert stage_list("standard", L1(1)) == [("apgd-ce", 5), ("apgd-t", 1), ("fab-t", 1), ("square", 1)]
    assert stage_list("rand", LInf(1)) == [("apgd-ce", 1), ("apgd-dlr", 1)]
    plus = [("apgd-ce", 5), ("apgd-dlr", 5), ("fab", 5), ("square", 1), ("apgd-t", 1), ("fab-t", 1)]
    assert stage_list("plus", LInf(1)) == plus


@pytest.mark.parametrize("name", ["autoattack:steps=10,queries=50", "express"])
@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("norm", [LInf, L2, L1])
def test_few_classes_and_images_that_are_not_square(name, classes, norm):
    x = images(6, (3, 5, 9))
    draw = torch.Generator().manual_seed(classes)
    model = Linear(torch.randn(classes, 135, generator=draw), torch.zeros(classes))
    labels = model(x).argmax(1)
    near, far = norm(1e-6), norm({LInf: 0.3, L2: 3.0, L1: 20.0}[norm])
    assert ra.evaluate(model, (x, labels), far, name).robust_accuracy == 0
    assert ra.evaluate(model, (x, labels), near, name).robust_accuracy == 1


class Kinds(nn.Module):
    """A small convolutional net that insists on the type and layout it is given."""

    def __init__(self, dtype: torch.dtype, layout: torch.memory_format) -> None:
        super().__init__()
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 5))
        self.net = net.to(dtype).to(memory_format=layout)  # type: ignore[call-overload]
        self.layout = layout
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x.contiguous(memory_format=self.layout))
        return logits


@pytest.mark.parametrize(
    ("dtype", "layout"),
    [
        (torch.float32, torch.contiguous_format),
        (torch.float32, torch.channels_last),
        (torch.float64, torch.contiguous_format),
        (torch.float16, torch.contiguous_format),
    ],
    ids=["plain", "channels last", "float64", "float16"],
)
def test_other_layouts_and_types_and_a_batch_of_one_give_the_same_verdicts(dtype, layout):
    x = images(8, (8, 8, 3)).permute(0, 3, 1, 2)
    assert not x.is_contiguous()
    model = Kinds(dtype, layout)
    with torch.no_grad():
        labels = model(x.to(dtype)).argmax(1)
    spec = "autoattack:steps=10,queries=20"
    together = ra.evaluate(model, (x, labels), LInf(0.065), spec)
    alone = [
        ra.evaluate(model, (x[[row]], labels[[row]]), LInf(0.065), spec, execution=ra.Execution(batch_size=1))
        for row in range(8)
    ]
    verdicts = together.records["success"].tolist()
    assert any(verdicts)
    assert not all(verdicts)
    assert torch.equal(together.x_adv[~torch.tensor(verdicts)], x[~torch.tensor(verdicts)].contiguous())  # type: ignore[index]
    assert [bool(one.records["success"][0]) for one in alone] == verdicts


def test_rand_breaks_a_noisy_model_on_fresh_draws():
    model = noisy(ra.load_model("resnet20-natural"), size=0.02)
    result = ra.evaluate(
        model, "cifar10-1k", LInf(8 / 255), "autoattack:version=rand,steps=8", limit=6, search=ra.Search(eot=4)
    )
    assert result.clean_accuracy > 0.5
    assert result.robust_accuracy == 0
    assert (result.records["redrawn"].dropna() > 0.5).all()


# ---------------------------------------------------------------- express


class ManyClasses(nn.Module):
    """A small random network with 60 classes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 32), nn.Tanh(), nn.Linear(32, 60)).eval()

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize("name", ["nearest:steps=5", "apgd-t:steps=5,targets=3,order=malt"])
@pytest.mark.parametrize("norm", [LInf(0.02), L2(0.2), L1(2.0)], ids=lambda norm: norm.name)
def test_of_many_classes_only_the_likeliest_are_ranked_and_verdicts_stay(name, norm, monkeypatch):
    model, x = ManyClasses(), torch.rand(24, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    labels = model(x).argmax(1)
    few, _ = run(model, attacks.create(name), norm, x, labels)
    monkeypatch.setattr(apgd, "VALUES_AT_ONCE", 17 * 192 * 5)
    portions, _ = run(model, attacks.create(name), norm, x, labels)
    monkeypatch.setattr(apgd, "CANDIDATES", 60)
    every, _ = run(model, attacks.create(name), norm, x, labels)
    assert 0 < every["success"].sum() < len(x)
    assert few["success"].equals(every["success"])
    assert portions.drop(columns="seconds").equals(few.drop(columns="seconds")), "portions change nothing"
    assert (every["backwards"] - few["backwards"] >= 60 - 17).all()


def test_under_l1_short_targeted_ascents_take_the_sparse_steps_of_apgd():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(27, 20), nn.Tanh(), nn.Linear(20, 5)).eval()
    x = images(6, (3, 3, 3))
    labels = model(x).argmax(1)
    names = ("nearest:steps=20", "apgd-t:steps=20,targets=3,order=malt")
    short, long = (run(model, attacks.create(name), L1(0.1), x, labels)[0] for name in names)
    assert short["margin"].tolist() == long["margin"].tolist()
    assert (short["margin"] < short["clean_margin"]).all()


@pytest.mark.parametrize(
    ("norm", "long"), [(LInf(8 / 255), False), (LInf(0.3), True), (L2(0.5), False), (L2(2), True), (L1(6), True)]
)
def test_express_takes_longer_stages_under_l1_and_at_large_radii(norm, long):
    assert ("apgd-ce-again" in attacks.create("express").stage_names(norm)) is long


class Steep(nn.Module):
    """Logits so large that all probabilities are 0 or 1."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = 400 * self.net(x)
        return logits


def test_express_needs_no_slope_of_probabilities():
    model, x = two_classes(12), images(12, (3, 2, 2))
    labels, norm = model(x).argmax(1), LInf(0.099)
    away = distances(model, x, labels, "Linf") / norm.eps
    assert (away < 0.98).any()
    assert (away > 1.02).any()
    only_pma, found = (run(Steep(model), attacks.create(name), norm, x, labels)[0] for name in ("pma", "express"))
    assert not only_pma["success"][away < 0.98].all(), "or no other loss is needed"
    assert found["success"][away < 0.98].all()
    assert not found["success"][away > 1.02].any()
    assert (found["claimed_by"] == "apgd-dlr").any()
