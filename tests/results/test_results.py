"""The layer between stored runs and people: `Result`, the report and the leaderboard read the same numbers from it."""

import json
import shutil
from typing import Any

import pandas as pd
import pytest

import robustassay as ra
from robustassay.analysis import rates, trust
from robustassay.errors import BadRequest, StoreFailed
from robustassay.leaderboard import EntryCard, measured_entry
from robustassay.records import SCHEMA_VERSION
from robustassay.report.site.content import collect
from robustassay.results import identity, run_warnings
from robustassay.results.discovery import child_run_folders, find_stores, holds_runs, run_folders
from robustassay.results.labels import attack_labels, threat_label
from robustassay.results.ranking import rank_on_shared_samples
from robustassay.results.run_warnings import RunRecords
from robustassay.results.runs import StoredRun, find_runs
from robustassay.results.worst_case import comparable, merge_records, worst_case
from robustassay.store import MANIFEST, Store
from tests.support import toys

MODEL = {"name": "m", "weights": "ab", "structure": "cd"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two attacks on one model, and AutoAttack on the samples that they left in doubt."""
    x = toys.images(12, (3, 4, 4))
    model = toys.two_classes(48)
    folder = tmp_path_factory.mktemp("runs")
    data, attacks, search = (x, model(x).argmax(1)), ["fgsm", "pgd:steps=5"], ra.Search(confirm="pgd:steps=3")
    ra.evaluate(model, data, ra.LInf(1e-4), attacks, out=folder / "toy", search=search, name="toy")
    return folder


def records(broken: str, margin: float = 0.5, samples: str = "abcd", **columns: Any) -> pd.DataFrame:
    """Samples classified correctly, of which those in `broken` are broken."""
    rows = [
        {
            "sample_id": one, "label": 0, "target": None, "clean_ok": True, "claimed": one in broken,
            "valid": True if one in broken else None, "problem": None, "success": one in broken, "distance": 1.0,
            "margin": -1.0 if one in broken else margin, "clean_margin": 1.0, "iterations": 5, "forwards": 5,
            "backwards": 5, "queries": 5, "seconds": 0.1, "claimed_by": None, **columns,
        }
        for one in samples
    ]  # fmt: skip
    return pd.DataFrame(rows)


def run(key: str, found: pd.DataFrame, attack: str = "pgd", **entries: Any) -> RunRecords:
    return RunRecords({"key": key, "spec": {"attack": {"name": attack}}, **entries}, found)


# ---------------------------------------------------------------- one source for three readers


def test_result_report_and_leaderboard_agree(runs):
    result = ra.Result.load(runs / "toy")
    (reported,) = collect([runs]).results
    assert "confirm" in result.parts
    entry = measured_entry(EntryCard(name="toy"), list(result.parts.values()))
    assert reported.robust.value == result.robust_accuracy == entry.best_known.value
    assert reported.clean.value == result.clean_accuracy == entry.clean.value
    assert reported.in_doubt == len(result.doubtful) == entry.doubtful
    assert reported.flags == result.flags
    assert reported.invalid_claims == result.invalid_claims == 0
    assert len(reported.counted) == len(result.parts) == len(entry.attacks)


def test_samples_on_which_the_model_failed_are_a_warning_everywhere(runs, tmp_path):
    shutil.copytree(runs / "toy" / "pgd", tmp_path / "pgd")
    first = Store.at(tmp_path / "pgd")
    done = sorted(first.done())[0]
    first.note_failures({"new": "out of memory.", done: "out of memory."})
    (reported,) = collect([tmp_path]).results
    result = ra.Result.load(tmp_path / "pgd")
    assert reported.flags == result.flags
    assert "1 of 13 samples" in reported.flags[trust.UNJUDGED]
    assert trust.UNJUDGED in reported.warnings


# ---------------------------------------------------------------- identity


def test_how_a_model_was_searched_does_not_make_it_another_model():
    searched = {**MODEL, "eot": 20, "search": "half"}
    assert identity.model_id(searched) == identity.model_id(MODEL)
    assert identity.search_settings(searched) == {"eot": 20, "search": "half"}
    assert identity.model_id({**MODEL, "name": "n"}) != identity.model_id(MODEL)
    assert identity.nameless_model_id({**MODEL, "name": "n"}) == identity.nameless_model_id(MODEL)
    assert identity.nameless_model_id({**MODEL, "weights": "xy"}) != identity.nameless_model_id(MODEL)


def test_runs_of_one_attack_are_told_apart_by_the_settings_that_differ():
    def stored(key: str, model: dict[str, Any], **settings: Any) -> StoredRun:
        spec = {"model": model, "data": {}, "threat": {}, "attack": {"name": "pgd", **settings}, "seed": 0}
        return StoredRun({"key": key, "spec": spec}, ())

    found = [stored("1", MODEL, steps=5), stored("2", MODEL, steps=9), stored("3", {**MODEL, "eot": 2}, steps=9)]
    labels = attack_labels(found)
    assert labels == {"1": "pgd (steps 5)", "2": "pgd (steps 9)", "3": "pgd (steps 9, eot 2)"}
    assert attack_labels(found[:1]) == {"1": "pgd"}


def test_how_models_were_searched_is_not_in_labels_where_only_models_differ_in_it():
    def stored(key: str, **model: Any) -> StoredRun:
        spec = {"model": {**MODEL, **model}, "data": {}, "threat": {}, "attack": {"name": "pgd"}, "seed": 0}
        return StoredRun({"key": key, "spec": spec}, ())

    plain, other = stored("1", search="half"), stored("2", weights="xy")
    assert attack_labels([plain, other]) == {"1": "pgd", "2": "pgd"}
    assert attack_labels([plain, other, stored("3")]) == {"1": "pgd (search half)", "2": "pgd", "3": "pgd"}


def test_threats_are_written_as_people_read_them():
    assert threat_label({"norm": "Linf", "eps": 8 / 255}) == "L∞ 8/255"
    full = {"norm": "L2", "eps": 0.5, "target": "random", "query_budget": 1000}
    assert threat_label(full) == "L2 0.5 targeted random in 1,000 queries"


# ---------------------------------------------------------------- worst case


def test_the_worst_case_is_over_runs_on_the_same_samples_and_what_confirms_them():
    whole, other = run("whole", records("a")), run("other", records("b"))
    short = run("short", records("c", samples="abc"))
    confirming = run("confirming", records("d", samples="d"), confirms=["whole"])
    stray = run("stray", records("d", samples="d"), confirms=["unknown"])
    found = comparable([short, whole, stray, other, confirming])
    assert list(found) == ["whole", "other", "confirming"]
    assert worst_case(found).set_index("sample_id")["success"].to_dict() == {
        "a": True,
        "b": True,
        "c": False,
        "d": True,
    }


def test_runs_that_only_confirm_count_where_nothing_else_is_there():
    alone = run("alone", records("a"), confirms=["elsewhere"])
    assert list(comparable([alone])) == ["alone"]


# ---------------------------------------------------------------- run_warnings


def test_an_attack_that_fails_once_more_ends_no_doubt():
    close, again = records("a", margin=0.01), records("", margin=0.02, samples="bc")
    standing = rates.worst_case({"close": close, "again": again})
    assert run_warnings.samples_in_doubt(standing, ()) == ["b", "c", "d"]
    far = records("", samples="bc", backwards=20000)
    closer = rates.worst_case({"unmoved": records("", margin=0.99), "moved": far})
    assert run_warnings.samples_in_doubt(closer, ()) == ["a", "d"]
    assert run_warnings.samples_in_doubt(records("a", backwards=20000), ()) == []
    assert run_warnings.samples_in_doubt(records("a"), ["softmax"]) == ["b", "c", "d"]
    assert run_warnings.samples_in_doubt(records("a", backwards=20000), trust.HARMLESS) == []


def test_alarms_of_the_doctor_are_flags_and_what_stands_after_a_remedy_is_in_doubt():
    indicators = [
        {"indicator": "vanishing loss", "verdict": "alarm", "evidence": "the loss is zero on 5 of 8 images"},
        {"indicator": "silent success", "verdict": "fine", "evidence": "none"},
    ]
    main = run("main", records("a"), flags={"softmax": "why"}, adaptive={"indicators": indicators})
    remedy = run("remedy", records("b", samples="bcd"), confirms=["main"], adaptive={"remedy": "logits"})
    flags = run_warnings.merged_flags([main, remedy])
    assert flags.keys() == {"softmax", "doctor-vanishing-loss"}
    assert "5 of 8" in flags["doctor-vanishing-loss"]
    assert run_warnings.samples_in_doubt(worst_case({"main": main, "remedy": remedy}), flags) == ["c", "d"]


def test_flags_come_from_the_manifest_the_records_and_failures():
    found = records("ab", claimed_by="square")
    flags = run_warnings.run_flags({"flags": {"softmax": "probabilities"}}, found, {"e": "out of memory."})
    assert flags.keys() == {"softmax", "square-gains", trust.UNJUDGED}
    assert run_warnings.merged_flags([run("1", found, flags={"dynamic": "loop"})]).keys() == {"dynamic", "square-gains"}


def test_strength_and_unverified_claims_are_counted_over_all_runs():
    noise = run("noise", records("a"), attack="uniform-noise")
    step = run("step", records("a", iterations=1))
    assert not run_warnings.has_iterated_attack([noise, step])
    assert run_warnings.has_iterated_attack([noise, run("pgd", records("a"))])
    invalid = records("ab", valid=False)
    assert run_warnings.invalid_claims([run("1", invalid), run("2", records("a"))]) == 2


# ---------------------------------------------------------------- ranks


def test_ranks_are_on_the_samples_that_most_models_have():
    def robust(samples: str, broken: str = "") -> pd.Series:
        return pd.Series({one: one not in broken for one in samples})

    ranks, count = rank_on_shared_samples({"x": robust("abc"), "y": robust("abc", "a"), "z": robust("ab")})
    assert count == 3
    assert ranks is not None
    assert [place.name for place in ranks.places] == ["x", "y"]
    assert rank_on_shared_samples({}) == (None, 0)


# ---------------------------------------------------------------- discovery


def test_folders_of_runs_are_found_below_a_folder(runs, tmp_path):
    parts = sorted(path.parent for path in runs.rglob(MANIFEST))
    assert run_folders(runs) == parts
    assert run_folders(parts[0]) == [parts[0]]
    assert child_run_folders(runs) == []
    assert child_run_folders(runs / "toy") == parts
    (tmp_path / MANIFEST).write_text("{}")  # of another program: no shards
    assert not holds_runs(tmp_path.parent / "nothing")
    assert len(list(find_stores([runs, runs / "toy"]))) == len(parts)
    with pytest.raises(BadRequest, match="holds no run"):
        list(find_stores([tmp_path / "none"]))


def test_a_manifest_of_something_else_is_refused(tmp_path):
    (tmp_path / "shards").mkdir()
    (tmp_path / MANIFEST).write_text(json.dumps({"key": "k", "schema": SCHEMA_VERSION}))
    with pytest.raises(StoreFailed, match="run the evaluation again"):
        find_runs([tmp_path])


def test_a_sample_on_which_the_model_failed_does_not_take_its_attack_out_of_the_worst_case():
    weak = run("weak", records(""))
    strong = RunRecords(
        {"key": "strong", "spec": {"attack": {"name": "autoattack"}}}, records("ab", samples="abc"), {"d": "NaN"}
    )
    found = comparable([weak, strong])
    assert found.keys() == {"weak", "strong"}
    merged = worst_case(found)
    assert merged["sample_id"].tolist() == ["a", "b", "c"], "unbroken, and unknown under one attack: left out"
    assert merged["success"].tolist() == [True, True, False]
    assert comparable([weak, run("few", records("abc", samples="abc"))]).keys() == {"weak"}


def test_a_run_on_all_samples_confirms_nothing_whatever_shares_its_key():
    whole, part, other = {"key": "k"}, {"key": "k", "confirms": ["a"]}, {"key": "k", "confirms": ["b"]}
    assert "confirms" not in identity.merge_manifests([part, whole])
    assert "confirms" not in identity.merge_manifests([whole, part])
    assert identity.merge_manifests([part, other])["confirms"] == ["a", "b"]


def test_where_two_folders_of_one_run_differ_a_success_counts():
    merged = merge_records([records("a", samples="ab"), records("bc", samples="abc")])
    assert merged.set_index("sample_id")["success"].to_dict() == {"a": True, "b": True, "c": True}
