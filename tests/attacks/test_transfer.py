"""Attacks through a substitute."""

import pytest
import torch

import robustassay as ra
from robustassay import attacks
from robustassay.attacks.transfer.crafted import CraftedImages
from robustassay.errors import BadRequest, UnknownName
from robustassay.rng import Streams
from robustassay.threat import L2, Ball, LInf, Untargeted

EPS = LInf(4 / 255)


def evaluate(model: str, spec: str, limit: int = 12, **options: object) -> ra.Result:
    return ra.evaluate(model, "cifar10-1k", EPS, spec, limit=limit, **options)  # type: ignore[arg-type]


def test_through_itself_a_model_falls_to_the_last_point_of_the_attack():
    result = evaluate("resnet20-natural", "transfer:source=resnet20-natural,attack=mim(steps=5)")
    assert result.clean_accuracy > 0.8
    assert result.robust_accuracy == 0
    counted = result.records[result.records["clean_ok"].astype(bool)]
    assert (counted["queries"] == 1).all(), "only the last point is shown to the model under attack"
    assert (counted["backwards"] == 0).all()
    assert (counted["distance"] > 0.99 * EPS.eps).all(), "no step was saved where the substitute fell early"


def test_a_natural_substitute_breaks_a_natural_model_and_hardly_a_robust_one():
    spec = "transfer:source=resnet20-natural,attack=mim(steps=5)"
    natural, robust = evaluate("resnet56-natural", spec, 24), evaluate("resnet20-pgd", spec, 24)
    assert natural.robust_accuracy < 0.5 * natural.clean_accuracy
    assert robust.robust_accuracy > 0.8 * robust.clean_accuracy


def test_a_group_of_equals_is_as_good_as_one():
    one = evaluate("resnet56-natural", "transfer:source=resnet20-natural,attack=bim(steps=3)", 6)
    two = evaluate("resnet56-natural", "transfer:source=resnet20-natural+resnet20-natural,attack=bim(steps=3)", 6)
    assert one.x_adv is not None
    assert two.x_adv is not None
    assert one.records["success"].tolist() == two.records["success"].tolist()
    # The mean of two equal logits is exact, but the padded batches may differ in their last bit.
    assert (one.x_adv - two.x_adv).abs().max() < 1e-6


@pytest.mark.long
def test_with_a_radius_of_its_own_for_every_sample():
    found = evaluate(
        "resnet56-natural", "minimum-radius:attack=transfer(source=resnet20-natural,attack=mim(steps=3))", 8
    ).records
    white = evaluate("resnet56-natural", "minimum-radius:attack=mim(steps=3)", 8).records
    both = found["distance"].notna() & white["distance"].notna()
    assert both.sum() >= 5
    assert found["distance"][both].median() > white["distance"][both].median()


def test_what_cannot_run_on_a_substitute_is_refused():
    for spec in ("transfer:attack=square", "transfer:attack=ddn"):
        with pytest.raises(BadRequest, match="gradient attack"):
            attacks.create(spec)
    with pytest.raises(UnknownName):
        attacks.create("transfer:source=nobody")
    with pytest.raises(BadRequest, match="does not work under L2"):
        ra.evaluate("resnet20-pgd", "cifar10-1k", L2(0.5), "transfer:attack=fgsm", limit=1)


def test_an_image_is_crafted_once_for_all_models_and_anew_where_anything_differs():
    made: list[int] = []

    def craft(ball: Ball, goal: Untargeted, rng: Streams) -> torch.Tensor:
        made.append(len(ball.centre))
        return ball.centre + rng.uniform(3, 2, 2) + goal.labels.view(-1, 1, 1, 1)

    def ask(memory: CraftedImages, ids: list[int], how: str = "mim", eps: float = 0.1, seed: int = 0) -> list[object]:
        x, labels = torch.linspace(0, 1, 48).view(4, 3, 2, 2)[ids], torch.arange(4)[ids]
        rng = Streams.of(seed, [str(at) for at in ids])
        ball = Ball(LInf(0.1), x, torch.full((len(ids),), eps))
        images = memory.get(how, ball, Untargeted(labels), rng, craft)  # type: ignore[arg-type]
        return [images.tolist(), rng.draws.tolist(), rng.uniform(1).tolist()]

    memory = CraftedImages()
    first = ask(memory, [0, 1, 2])
    assert ask(memory, [0, 1, 2]) == first
    assert made == [3]
    assert ask(memory, [3, 1]) == ask(CraftedImages(), [3, 1])  # one known, one new
    assert made == [3, 1, 2]
    for other in ({"how": "bim"}, {"eps": 0.2}, {"seed": 1}):
        ask(memory, [0], **other)
    assert made == [3, 1, 2, 1, 1, 1]
    small = CraftedImages(limit=60)  # one image of 48 bytes
    ask(small, [0, 1])
    ask(small, [0])
    assert made[6:] == [2, 1]


def test_a_known_image_gives_the_records_of_a_new_one(monkeypatch):
    spec = "transfer:source=resnet20-natural,attack=dim(steps=2)"
    evaluate("resnet56-natural", spec, 6)
    known = evaluate("resnet20-pgd", spec, 6)
    monkeypatch.setattr("robustassay.attacks.transfer.transfer._CRAFTED", CraftedImages())
    new = evaluate("resnet20-pgd", spec, 6)
    assert known.records.drop(columns="seconds").equals(new.records.drop(columns="seconds"))
    assert known.x_adv is not None
    assert new.x_adv is not None
    assert torch.equal(known.x_adv, new.x_adv)
