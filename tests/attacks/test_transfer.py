"""Attacks through a substitute."""

import pytest

import robustassay as ra
from robustassay import attacks
from robustassay.errors import BadRequest, UnknownName
from robustassay.threat import L2, LInf

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
