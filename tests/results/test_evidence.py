"""The evidence grade of a robust accuracy, decided in one place from manifests."""

from typing import Any

import pytest

from robustassay import attacks
from robustassay.analysis.rates import Rate
from robustassay.registry import describe
from robustassay.results.cross_check import CROSS_CHECK_FLAG, CrossCheck
from robustassay.results.evidence import Grade, evidence, is_standard
from robustassay.results.self_test import LIMIT, SELF_TEST_FLAG, SelfTest, merge


def manifest(attack="pgd", found=None, budget=None, random=False, **entries):
    model = {"name": "m", **({"eot": 20} if random else {})}
    spec = {"model": model, "attack": describe("attack", attacks.create(attack)), "threat": {"query_budget": budget}}
    tests = {} if found is None else {"self_test": SelfTest({f"s{k}": hit for k, hit in enumerate(found)}).to_json()}
    return {"key": attack, "spec": spec, **tests, **entries}


DIAGNOSED: dict[str, Any] = {"adaptive": {"indicators": []}}
REMEDY: dict[str, Any] = {"adaptive": {"remedy": "logits"}, "confirms": ["pgd"]}


@pytest.mark.parametrize(
    ("runs", "grade"),
    [
        ([manifest("pgd")], Grade.SINGLE),
        ([manifest("pgd"), manifest("uniform-noise")], Grade.SINGLE),
        ([manifest("pgd"), manifest("square")], Grade.SEVERAL),
        ([manifest("autoattack")], Grade.AUTOATTACK),
        ([manifest("autoattack:version=plus")], Grade.AUTOATTACK),
        ([manifest("autoattack:version=rand")], Grade.SINGLE),
        ([manifest("autoattack:version=rand", random=True)], Grade.AUTOATTACK),
        ([manifest("autoattack:steps=5")], Grade.SINGLE),
        ([manifest("express")], Grade.AUTOATTACK),
        ([manifest("express", budget=100)], Grade.SINGLE),
        ([manifest("pgd"), manifest("autoattack", confirms=["pgd"])], Grade.SEVERAL),
        ([manifest("pgd", **DIAGNOSED)], Grade.SINGLE),
        ([manifest("express", **DIAGNOSED)], Grade.ADAPTIVE),
        ([manifest("pgd", **DIAGNOSED), manifest("apgd", **REMEDY)], Grade.ADAPTIVE),
    ],
)
def test_grades(runs, grade):
    assert evidence(runs).grade is grade


@pytest.mark.parametrize(
    ("attack", "found", "earned", "label"),
    [
        ("express", [True] * 8, True, "AutoAttack-grade"),
        ("express", [True] * 3 + [False] * 5, False, "upper bound (AutoAttack-grade, self-test failed)"),
        ("express", None, False, "AutoAttack-grade"),
        ("pgd", [True] * 8, False, "upper bound (single attack)"),
    ],
)
def test_no_warnings_are_earned_by_strong_attacks_with_a_passed_self_test(attack, found, earned, label):
    judged = evidence([manifest(attack, found)])
    assert judged.earned is earned
    assert judged.label == label
    assert label in judged.summary
    assert judged.to_json()["earned"] is earned
    assert bool(judged.warnings) is not earned


def test_a_cross_check_that_breaks_a_sample_takes_the_grade_away():
    failed = CrossCheck(("a", "b"), ("b",), "the outputs of net as logits")
    runs = [manifest("express", [True] * 8, cross_check=failed.to_json()), manifest("pgd", [True] * 8)]
    assert CrossCheck.of(runs[0]) == failed
    judged = evidence(runs)
    assert judged.label == "upper bound (AutoAttack-grade, cross-check failed)"
    assert judged.warnings == ["cross-check broke 1 of 2"]
    assert "1 of 2 samples" in failed.flags[CROSS_CHECK_FLAG]
    passed = manifest("express", [True] * 8, cross_check=CrossCheck(("a", "b")).to_json())
    assert evidence([passed]).earned
    assert CrossCheck.of(passed).flags == {}


def test_an_example_is_found_if_one_attack_found_it_and_costs_add_up():
    first = SelfTest({"a": True, "b": False}, ("a", "b", "c"), "", 10, 1, 0.5)
    second = SelfTest({"b": True, "c": False}, ("b", "c"), "", 20, 2, 0.5)
    both = merge([first, second])
    assert both == SelfTest({"a": True, "b": True, "c": False}, ("a", "b", "c"), "", 30, 3, 1.0)
    assert both.rate.count == 2
    assert not both.passed
    assert SELF_TEST_FLAG in both.flags
    assert "2 of 3" in both.summary
    assert merge([]).summary == "not examined (switched off)"


def test_the_limit_is_a_share():
    enough = round(LIMIT * 8)
    assert SelfTest({str(k): k < enough for k in range(8)}).passed
    assert not SelfTest({str(k): k < enough - 1 for k in range(8)}).passed


def test_a_self_test_is_read_from_the_manifest_it_was_written_to():
    test = SelfTest({"a": True}, ("a", "b"), "", 10, 1, 0.5)
    assert SelfTest.of({"self_test": test.to_json()}) == test
    reason = SelfTest(asked=("a",), not_examined="a service has no head")
    assert SelfTest.of({"self_test": reason.to_json()}) == reason
    assert "a service" in reason.summary
    assert not SelfTest.of({}).examined


def test_a_certified_lower_bound_is_part_of_the_evidence():
    judged = evidence([manifest("express", certified={"count": 3, "total": 10})])
    assert judged.certified == Rate(3, 10)
    assert "certified lower bound 30.0%" in judged.summary
    assert judged.to_json()["certified"] == {"count": 3, "total": 10}


def test_an_attack_of_another_package_is_not_standard():
    assert not is_standard({"spec": {"attack": {"name": "mine.Own"}}})
