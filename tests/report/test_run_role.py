"""Pages say what a run is: a plain attack that failed its self-test, the remedy that went around the cause; and each
check says what it looked at, what it found and what to do."""

import json
import re

import pyarrow as pa
import pytest
import torch
from torch import nn

import robustassay as ra
from robustassay import data
from robustassay.cli.options import ThreatOptions
from robustassay.report import build, formatting
from robustassay.report.site.checks import check_all
from robustassay.report.site.command import DEFAULT_NORM
from robustassay.report.site.content import collect
from robustassay.results.self_test import SelfTest
from robustassay.store import Store
from robustassay.studies import showcase
from tests.report.test_report import Site

FLAGS = {"no-gradients": "The gradient is exactly zero."}
DIAGNOSIS = {"indicators": [{"indicator": "unavailable gradients", "verdict": "alarm", "evidence": "zero"}]}
REMEDY = {"remedy": "bpda", "because": "unavailable gradients, unbounded attack fails", "how": "round"}
NAME = "own-gradient|bit-depth|mine"
LABEL = "mine, quantised input"


def copy_run(source, folder, change, rows, **entries):
    """Write the records of a run under another manifest."""
    manifest = source.manifest() | entries
    spec = manifest["spec"]
    manifest["spec"] = {**spec, "attack": {**spec["attack"], **change}}
    store = Store.open(folder, manifest)
    store.append(pa.Table.from_pylist(rows, schema=source.records().schema))
    return store


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """PGD that failed its self-test on a flagged model, and a remedy that broke all but `left` of what it left."""
    folder = tmp_path_factory.mktemp("stores")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 3)).eval()
    x = torch.rand(20, 3, 4, 4)
    few = data.from_arrays(x, model(x).argmax(1), name="toys")
    ra.evaluate(model, few, ra.LInf(8 / 255), "pgd:steps=2", out=folder / "source", name=NAME)
    source = Store.at(folder / "source")
    rows = [row | {"success": at < 5, "claimed": at < 5} for at, row in enumerate(source.records().to_pylist())]
    failed = SelfTest({"a": False, "b": False}).to_json()
    plain = copy_run(source, folder / "runs" / "pgd", {}, rows, flags=FLAGS, adaptive=DIAGNOSIS, self_test=failed)
    passed = SelfTest({"a": True, "b": True}).to_json()
    won = {"success": True, "claimed": True, "valid": True, "margin": -1.0, "distance": 8 / 255}
    remedy = {
        left: copy_run(
            source,
            folder / f"{left}-left" / "bpda",
            {"remedy": "bpda"},
            [row | (won if at >= left else {}) for at, row in enumerate(rows[5:])],
            key="f" * 16,
            flags=FLAGS,
            adaptive=REMEDY,
            confirms=[plain.manifest()["key"]],
            self_test=passed,
        )
        for left in (0, 2)
    }
    line = showcase.ShowcaseRow(LABEL, NAME, 1, 0.75, 0.0, 0.0, 0.1, "adaptive", "masked", "c", ("pgd",))
    again = showcase.ShowcaseRow("mine, scores only", NAME, 1, None, 0.5, 0.4, 0.6, "single", "queries", "c", ())
    bars = (showcase.CorruptionBar("mine", 0.9, 0.7, 0.6, 0.8),)
    corrupted = showcase.Corruptions(("fog",), 3, 20, bars)
    found = showcase.Showcase("toys", 20, "Linf 8/255", 0, (line, again), corrupted, "assay eval mine")
    showcase.write_showcase(found, folder / "runs")
    return folder, plain, remedy


@pytest.fixture(scope="module")
def site(stores, tmp_path_factory):
    folder, _, _ = stores
    return Site(build([folder / "runs", folder / "0-left"], tmp_path_factory.mktemp("site")).parent)


def test_a_remedy_says_what_it_is_and_warns_of_nothing_it_went_around(stores, site):
    _, plain, remedy = stores
    page = site.run(remedy[0])
    assert "Remedy for unavailable gradients. It attacked the 15 samples that pgd left standing," in page.text
    assert "and broke all of them." in page.text
    assert "goes around what stops plain attacks here: no gradients." in page.text
    assert not [one for one in page.all("div") if one.get("class") == "notice warning"]
    assert "100.0 % clean" not in page.text
    assert "bpda: round; for unavailable gradients, unbounded attack fails" in page.told["Remedy"]
    told = site.run(plain).text
    assert "pgd (remedy bpda) attacked the 15 samples that were left, and broke all of them." in told


def test_a_failed_self_test_is_an_upper_bound_without_samples_in_no_doubt(stores, site):
    _, plain, remedy = stores
    page = site.run(plain)
    assert "at most 75.0 % robust" in page.text
    assert "An upper bound: the self-test failed" in page.text
    counts = [json.loads(one["data-counts"]) for one in page.all("section") if "data-counts" in one]
    assert counts == [[["b", 5], ["s", 15], ["n", 0], ["w", 0]]]
    (passed,) = [one["data-counts"] for one in site.run(remedy[0]).all("section") if "data-counts" in one]
    assert ["d", 0] in json.loads(passed)


def test_zero_cannot_be_too_high_and_what_is_left_can(stores, site):
    folder, _, _ = stores
    assert "Signs were seen in mine, quantised input. Every sample was broken all the same" in site.index.text
    (model,) = site.models()
    assert "It is not robust" in model.text
    assert not [one for one in model.all("div") if one.get("class") == "notice warning"]
    found = collect([folder / "runs", folder / "2-left"])
    (signs,) = [check for check in found.checks if check.title == "Could attacks have failed unnoticed?"]
    assert signs.status == "warning"
    assert "doctor: unavailable gradients" in " ".join(one.text for one in signs.findings)
    assert {one.key for one in signs.findings} == {stores[1].manifest()["key"]}  # the remedy is not blamed


def test_labels_that_people_chose_stand_on_all_pages_and_the_name_can_be_copied(site):
    for name in site.names:
        page = site.page(name)
        seen = [code.get("data-copy") for code in page.all("code")]
        commands = sum(command.count(NAME) for command in page.commands)
        assert page.text.count(NAME) == seen.count(NAME) + commands, name
    (model,) = site.models()
    assert f" {LABEL} It is not robust" in model.text
    assert NAME in {code.get("data-copy") for code in model.all("code")}
    assert (site.folder / "results.csv").read_text().splitlines()[1].endswith(NAME)


def test_a_norm_is_written_in_one_way(site):
    for page in map(site.page, site.names):
        assert "Linf" not in page.text
        assert "0.0313" not in page.text
    assert ThreatOptions()._norm().name == DEFAULT_NORM  # commands leave it out


def test_lines_and_models_of_a_showcase_agree(site):
    assert "Robustness of mine, quantised input" in site.index.text
    assert "2 lines, 1 model: “mine, scores only” is mine, quantised input again" in site.index.text


def test_corruption_bars_have_an_axis_and_a_legend(site):
    text = site.index.text[site.index.text.index("common corruptions") :]
    assert re.search(r"accuracy on corrupted images its 95 % interval clean accuracy", text)
    assert "70.0 % (60.0–80.0), clean 90.0 %" in text
    assert re.search(r"0 ?25 ?50 ?75 ?100 %", text)


def test_every_check_says_what_was_checked_found_and_to_be_done(stores):
    folder, _, _ = stores
    for places in ([folder / "runs"], [folder / "runs", folder / "2-left"]):
        found = collect(places)
        assert len(found.checks) == 9
        for check in found.checks:
            assert check.checked.endswith(".")
            assert check.found.rstrip("”").endswith(".")
            assert bool(check.advice) == (check.status != "good"), check.title
    assert check_all((), (), {})[0].found == "No run has a record yet."


def test_a_name_with_a_comma_is_quoted_among_others():
    assert formatting.listed(["a", "b, c", "d"]) == "a, “b, c” and d"
    assert formatting.listed(["b, c"]) == "b, c"


@pytest.mark.parametrize(
    ("name", "words"),
    [("doctor-vanishing-loss", "doctor: vanishing loss"), ("no-gradients", "no gradients"), ("self-test", "self-test"),
     ("self-test 1 of 2", "self-test 1 of 2"), ("softmax", "softmax")],
)  # fmt: skip
def test_flags_in_words(name, words):
    assert formatting.flag(name) == words
