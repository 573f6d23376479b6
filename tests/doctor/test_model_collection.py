"""The collection of masked and honest models, and the page of rates that is made from it."""

from collections import Counter
from itertools import combinations

import pytest
import torch
from benchmarks.doctor_rates import missing, results
from benchmarks.doctor_rates_page import (
    is_alarmed,
    misses_adaptive,
    misses_doctor,
    misses_eval,
    page,
    rate,
    rates_table,
    went_wrong,
)
from benchmarks.model_collection import COLLECTION, HALVES, LATER, PARTS, Entry
from benchmarks.model_collection.truth import broken_by_plain, broken_by_truth


def test_at_least_sixty_models_of_each_kind_with_names_of_their_own():
    kinds = Counter(entry.kind for entry in COLLECTION)
    assert min(kinds["masked"], kinds["honest"]) >= 60
    assert len({entry.name for entry in COLLECTION}) == len(COLLECTION)
    assert all(entry.made and entry.family for entry in COLLECTION)


def test_each_half_has_two_fifths_of_each_kind_and_the_second_part_sixty():
    for kind in ("masked", "honest"):
        counts = Counter(entry.part for entry in COLLECTION if entry.kind == kind)
        assert min(counts[half] for half in HALVES) >= 0.4 * sum(counts[half] for half in HALVES)
        assert counts["second"] >= 60


def test_the_third_part_has_masked_models_only():
    assert Counter(entry.kind for entry in COLLECTION if entry.part == "third") == {"masked": 16}


@pytest.mark.parametrize(
    ("part", "masked", "honest"), [("fifth", 24, 24), ("sixth", 30, 30), ("seventh", 30, 30), ("eighth", 32, 30)]
)
def test_a_part_has_about_as_many_honest_models_as_masked_ones(part, masked, honest):
    kinds = Counter(entry.kind for entry in COLLECTION if entry.part == part)
    assert kinds == {"masked": masked, "honest": honest}


def test_the_ninth_part_has_honest_models_only():
    assert Counter(entry.kind for entry in COLLECTION if entry.part == "ninth") == {"honest": 65}


@pytest.mark.parametrize(("one", "other"), list(combinations(PARTS, 2)))
def test_no_family_is_in_two_parts(one, other):
    families = [{entry.family for entry in COLLECTION if entry.part == part} for part in (one, other)]
    assert families[0].isdisjoint(families[1])


@pytest.mark.parametrize(
    "name",
    [
        "8 levels, vgg11-natural",
        "one-hot, vgg11-natural",
        "48 signs, vgg11-natural",
        "within 2 eps, vgg11-natural",
        "saw of 1, resnet20-natural",
        "no graph, resnet20-natural",
        "equal channels, resnet20-natural",
        "4 x 4, vgg11-natural",
        "of another network, resnet20-pgd",
    ],
)
def test_the_truth_is_below_the_plain_attack(name):
    entry = next(entry for entry in COLLECTION if entry.name == name)
    x, y = entry.samples(2)
    assert tuple(x.shape[1:]) == entry.shape
    assert entry.build()(x).shape == (2, entry.classes)
    assert broken_by_truth(entry, x, y, steps=4).sum() > broken_by_plain(entry, x, y, steps=4).sum()


def test_an_honest_model_is_built_the_same_twice():
    entry = next(entry for entry in COLLECTION if entry.name == "animal or not, natural")
    x, _ = entry.samples(2)
    assert torch.equal(entry.build()(x), entry.build()(x))


def said(accuracy, doubtful=0, flags=()):
    return {"accuracy": accuracy, "doubtful": doubtful, "flags": list(flags), "seconds": 1.0}


def row(express, truth, alarms=()):
    found = {"alarms": list(alarms), "seconds": 1.0}
    return {"images": 16, "express": express, "adaptive": express, "truth": said(truth), "doctor": found}


@pytest.mark.parametrize(
    ("result", "misses"),
    [
        (row(said(0.5), 0.0), [1, 1, 1]),
        (row(said(0.5), 0.4375), [0, 0, 0]),
        (row(said(0.5), 0.0, ["unavailable gradients"]), [1, 0, 1]),
        (row(said(0.5, doubtful=8), 0.0), [0, 0, 0]),
        (row(said(0.5, doubtful=3), 0.0), [1, 1, 1]),
        (row(said(0.5, flags=["no-gradients"]), 0.0), [0, 0, 0]),
        (row(said(0.5, flags=["randomised"]), 0.0), [1, 1, 1]),
        (row({"refused": "no gradients"}, 0.0), [0, 0, 0]),
    ],
)
def test_a_miss_is_a_gap_that_neither_flag_nor_doubt_nor_alarm_tells(result, misses):
    assert [check(result) for check in (misses_eval, misses_doctor, misses_adaptive)] == misses


def test_rates_count_each_half_by_itself_and_have_an_interval():
    honest = [entry for entry in COLLECTION if entry.kind == "honest" and entry.part == "held-out"]
    rows = {entry.name: row(said(0.5), 0.5) for entry in honest[:9]}
    rows[honest[9].name] = row(said(0.5), 0.5, ["misleading gradients"])
    halves = {half: [entry for entry in COLLECTION if entry.part == half] for half in HALVES}
    assert rate(halves["held-out"], "honest", is_alarmed, rows) == "1 of 10 (0.3% to 44.5%)"
    assert rate(halves["tuning"], "honest", is_alarmed, rows) == "–"
    assert f"**{honest[9].name}**" in page(COLLECTION, rows, {})


def test_the_table_of_rates_counts_several_parts_together():
    parts = [part for part in LATER if part != "ninth"]  # it has honest models only
    masked = {part: next(e for e in COLLECTION if e.kind == "masked" and e.part == part) for part in parts}
    rows = {entry.name: row(said(0.5), 0.5) for entry in masked.values()}
    rows[masked["fifth"].name] = row(said(0.5), 0.2)
    last = rates_table(list(COLLECTION), rows, {"all": LATER}).splitlines()[-1]
    assert last.startswith(f"| all | {len(parts)} of ")
    assert f"| 1 of {len(parts)} (" in last


def test_the_doctor_of_today_is_compared_with_the_first_one():
    entry = next(entry for entry in COLLECTION if entry.kind == "honest" and entry.part == "eighth")
    rows = {entry.name: row(said(0.5), 0.5, ["black-box beats white-box"])}
    today = {entry.name: {"name": entry.name, "doctor": {"alarms": [], "seconds": 1.0}}}
    text = page(COLLECTION, rows, {}, today)
    assert (
        "raises an alarm on 0 of 0 masked models, first 0 and 0 of 1 honest models, first 1, of the parts eighth."
        in text
    )


def test_alarms_that_adaptive_auto_proves_right_are_named():
    first, second = [entry for entry in COLLECTION if entry.kind == "honest" and entry.part == "fifth"][:2]
    rows = {entry.name: row(said(0.5), 0.5, ["black-box beats white-box"]) for entry in (first, second)}
    assert "were right" not in page(COLLECTION, rows, {})
    rows[first.name]["adaptive"] = said(0.375)
    assert "1 were right: adaptive auto breaks 10 points or more of the images that express left" in page(
        COLLECTION, rows, {}
    )
    assert f'("{first.name}")' in page(COLLECTION, rows, {})


def test_a_masked_model_without_an_accuracy_is_named_and_measured_again():
    entry = next(entry for entry in COLLECTION if entry.kind == "masked" and entry.part == "eighth")
    rows = {entry.name: row(said(0.5), 0.5) | {"adaptive": {"error": "RuntimeError: no graph", "seconds": 1.0}}}
    assert f'Ended in an error: "{entry.name}".' in page(COLLECTION, rows, {})
    assert went_wrong(entry, rows[entry.name])


class Coin(torch.nn.Module):
    """Says class 1 in 40 calls of 100, and class 0 else, whatever it sees."""

    def forward(self, x):
        said = int(torch.rand(()) < 0.4)
        return torch.eye(2)[said].expand(len(x), 2)


def test_luck_in_one_of_many_majorities_breaks_no_image_of_a_random_model():
    entry = Entry("coin", "coin", "masked", "", Coin, classes=2, shape=(1, 6, 6), asked="majority")
    x, y = torch.rand(4, 1, 6, 6), torch.zeros(4, dtype=torch.int64)
    assert not broken_by_truth(entry, x, y).any()


def test_a_run_stops_at_its_time_limit():
    assert list(results([("one-hot, vgg11-natural", ("truth",))], workers=1, until=0.0)) == []


def test_a_second_call_measures_only_what_is_missing():
    name = "one-hot, vgg11-natural"
    rows = {name: row(said(0.5), 0.0)}
    del rows[name]["doctor"]
    stages = ["express", "truth", "doctor", "adaptive"]
    assert missing(COLLECTION, rows, None, [name], stages) == [(name, ("doctor",))]
    assert missing(COLLECTION, {}, None, ["linear, symbols"], stages) == [
        ("linear, symbols", ("express", "doctor", "adaptive"))
    ]
