"""What the terminal shows: narrow tables, estimates, warnings, lists, and finished runs."""

import contextlib
import json
import shlex
import socket
import threading
import urllib.request
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

import robustassay as ra
from robustassay import data
from robustassay.cli import app, main
from robustassay.cli.evaluate import _check_chosen, _named
from robustassay.cli.examples import EXAMPLES
from robustassay.cli.listing import _example
from robustassay.cli.result_table import COLUMNS, TEXTS, fitted
from robustassay.errors import BadModel, BadRequest
from robustassay.evaluation import Result
from robustassay.evaluation.model_ref import ModelRef
from robustassay.evaluation.plausibility import notes
from robustassay.registry import create, registered, setting_texts
from tests.cli.test_cli import MODEL


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two models under two attacks, evaluated by one command."""
    place = tmp_path_factory.mktemp("runs")
    (place / "model.py").write_text(MODEL + "\ndef other():\n    torch.manual_seed(1)\n    return make()\n")
    request = ["eval", "model.py:make", "model.py:other", "--attack", "fgsm", "bim:steps=2", "--limit", "12"]
    with contextlib.chdir(place):
        assert main([*request, "--eps", "1/255", "--self-test", "0", "--out", "out", "--quiet"]) == 0
    return sorted((place / "out").iterdir())


@pytest.fixture
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_several_models_get_a_folder_each(runs):
    assert len(runs) == 2
    assert all({part.name for part in folder.iterdir()} == {"fgsm", "bim"} for folder in runs)


def test_eighty_columns_drop_columns_and_cut_no_word(runs, narrow, capsys):
    assert main(["show", str(runs[0])]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    heading = next(line for line in out.splitlines() if "robust" in line)
    assert "attack" in heading
    assert "seconds" not in heading
    assert "Worst case of" in out
    assert all(column in heading.split() for column in ("n", "robust"))


def test_n_outlives_the_threat_and_the_clean_accuracy(runs, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "66")
    assert main(["show", str(runs[0])]) == 0
    out = capsys.readouterr().out
    assert next(line for line in out.splitlines() if "robust" in line).split()[:3] == ["model", "attack", "n"]
    assert "L∞ 1/255" in out, "what all runs share is said above the table"


def repeating_command(folder, capsys):
    capsys.readouterr()
    assert main(["show", str(folder)]) == 0
    command = capsys.readouterr().out.partition("Command that repeats it:\n")[2].replace("\\\n", " ")
    return shlex.split(command)[1:]


def test_show_prints_a_command_that_repeats_the_evaluation(runs, tmp_path, narrow, monkeypatch, capsys):
    monkeypatch.chdir(runs[0].parent.parent)
    words = repeating_command(runs[0], capsys)
    out = words.index("--out") + 1
    assert main([*words[:out], str(tmp_path / "again"), *words[out + 1 :], "--quiet"]) == 0
    again, first = Result.load(tmp_path / "again"), Result.load(runs[0])
    assert {key: part.manifest["spec"] for key, part in again.parts.items()} == {
        key: part.manifest["spec"] for key, part in first.parts.items()
    }
    assert list(again.records["sample_id"]) == list(first.records["sample_id"])


def test_the_command_names_what_came_after_the_attacks(tmp_path, capsys):
    search = ra.Search(confirm="bim:steps=2", self_test=0)
    threat = ra.LInf(8 / 255)
    ra.evaluate("convnet-ibp", "cifar10-1k", threat, "fgsm", limit=4, seed=3, search=search, out=tmp_path / "run")
    words = repeating_command(tmp_path / "run", capsys)
    assert {"--confirm", "--keep-images"} <= set(words)
    assert words[words.index("--seed") + 1] == "3"
    assert "bim" not in " ".join(words)
    app.parse_args(words, print_error=False, exit_on_error=False)


def test_one_line_says_what_to_do_about_a_weak_attack(runs, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["show", str(runs[0] / "fgsm")]) == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = (one for one in lines if "Upper bound" in one)
    assert line.startswith("Upper bound (one weak attack; self-test not examined")
    assert line.endswith("add --attack express.")
    assert not any(one.startswith(("Evidence", "Warning: No attack")) for one in lines)


def test_quiet_commands_print_results_only(runs, monkeypatch, capsys):
    monkeypatch.chdir(runs[0].parent.parent)
    capsys.readouterr()
    request = ["eval", "model.py:make", "--attack", "fgsm", "--limit", "4", "--self-test", "0", "--out", "quiet"]
    assert main([*request, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_requests_without_a_model_or_with_wrong_data_say_what_to_write(capsys):
    assert main(["eval"]) == 2
    assert "needs a model of the zoo (`assay list models` shows them)" in capsys.readouterr().err
    assert main(["eval", "resnet20-natural", "--data", "nofolder"]) == 2
    assert "no folder and no dataset 'nofolder'" in capsys.readouterr().err


def test_a_wide_terminal_has_all_columns(runs, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "250")
    assert main(["show", str(runs[0])]) == 0
    assert "gradients/image" in capsys.readouterr().out


def test_show_prints_the_same_numbers_as_json(runs, capsys):
    assert main(["show", str(runs[0]), "--json"]) == 0
    *parts, worst = json.loads(capsys.readouterr().out)
    assert worst["attack"]["name"] == "worst case"
    assert worst["robust_accuracy"] <= min(part["robust_accuracy"] for part in parts)


def test_compare_counts_pairs(runs, capsys):
    assert main(["compare", *map(str, runs), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(found[name] for name in ("both", "only_first", "only_second", "neither")) == found["samples"] == 12
    assert main(["compare", *map(str, runs)]) == 0
    assert "McNemar" in capsys.readouterr().out


def test_a_dry_run_estimates_and_writes_nothing(tmp_path, monkeypatch, capsys):
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    assert main(["eval", "model.py:make", "--limit", "4", "--norm", "l2", "--dry-run"]) == 0
    said = capsys.readouterr().err
    assert "4 samples, about" in said
    assert "GiB of memory" in said
    assert not (tmp_path / "runs").exists()


def test_lists_are_grouped_filtered_and_show_one(capsys, narrow):
    assert main(["list", "attacks"]) == 0
    out = capsys.readouterr().out
    assert out.index("Gradients:") < out.index("pgd") < out.index("Scores:") < out.index("simba")
    assert main(["list", "attacks", "labels", "L2"]) == 0
    out = capsys.readouterr().out
    assert "boundary" in out
    assert "fgsm" not in out
    assert main(["list", "attacks", "pgd"]) == 0
    out = capsys.readouterr().out
    assert "Length of a step, as a part of eps." in out
    assert "assay eval resnet20-natural --attack pgd:steps=80 --limit 16" in out
    assert main(["list", "attacks", "no-such-word"]) == 2
    assert main(["list", "models"]) == 0
    assert "resnet20-ensemble-adv" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["attack", "defense"])
def test_every_setting_is_explained_and_every_example_is_one(kind):
    for name, cls in registered(kind).items():
        if cls.__module__.startswith("robustassay."):
            assert all(setting_texts(cls).values()), f"{name}: write a docstring below each field"
            words = shlex.split(_example(kind, name, cls))
            create(kind, words[words.index(f"--{kind}") + 1])


def test_every_example_is_a_command_that_can_be_read():
    for examples in EXAMPLES.values():
        for line in examples:
            app.parse_args(shlex.split(line)[1:], print_error=False, exit_on_error=False)


def test_shells_can_complete():
    assert "eval" in app.generate_completion(shell="bash")


def test_a_report_is_served_to_this_machine(tmp_path):
    from robustassay.cli.stored import _file_server

    (tmp_path / "index.html").write_text("report")
    with _file_server(tmp_path, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        host, port = server.server_address[:2]
        assert host == "127.0.0.1"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as page:
            assert page.read() == b"report"
        server.shutdown()
        thread.join()


def test_a_host_without_a_service_is_named():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert main(["eval", f"http://127.0.0.1:{port}", "--limit", "2"]) == 2


def result(labels, said, norm="Linf", eps=8 / 255):
    manifest = {"spec": {"model": {}, "threat": {"norm": norm, "eps": eps, "target": None}}}
    records = pd.DataFrame({"label": labels, "clean_label": said})
    return SimpleNamespace(parts={}, robust_accuracy=0.0, records=records, manifest=manifest)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (result(list(range(10)) * 3, [9, *range(9)] * 3), "probably shifted"),
        (result(list(range(10)) * 3, [3] * 30), "no better than guessing"),
        (result([0, 1, 2] * 4, [281, 207, 283] * 4), "classes that no sample has"),
        (result([0] * 4 + [1] * 28, [0] * 4 + [2, 3, 4, 5] * 7), "28 of 32 images were misclassified"),
        (result([0, 1], [0, 1], eps=0.9), "unusually large"),
        (result([0, 1], [0, 1], "L2", 0.001), "unusually small"),
    ],
)
def test_implausible_results_are_noted(found, said):
    assert any(said in note for note in notes(found))


def test_plausible_results_get_no_note():
    assert not list(notes(result(list(range(10)) * 3, [*range(9), 0] * 3)))


def test_checkpoints_and_classes_become_part_of_the_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    assert _named("timm:resnet18", tmp_path / "model.py", "3,1") == f"classes:3,1:timm:resnet18:{tmp_path}/model.py"
    assert main(["eval", "resnet20-natural", "--checkpoint", "weights.pt"]) == 2
    assert "--checkpoint needs a model such as timm:NAME" in capsys.readouterr().err
    module = ModelRef.of("classes:3,1:model.py:make").module
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(module(x), ModelRef.of("model.py:make").module(x)[:, [3, 1]])
    for wrong, why in (("3,3:model.py:make", "different"), ("3,x:model.py:make", "numbers"), ("1,2", "must follow")):
        with pytest.raises(BadRequest, match=why):
            ModelRef.of(f"classes:{wrong}")
    with pytest.raises(BadModel, match="no class 99"):
        ModelRef.of("classes:1,99:model.py:make").module(x)
    numbered = data.from_arrays(x, torch.tensor([0, 1]))
    _check_chosen("3,1,2", numbered)  # the third class may have no image
    with pytest.raises(BadRequest, match="names 1 classes, and the data have 2"):
        _check_chosen("3", numbered)
    assert main(["eval", "model.py:make", "--classes", "3,1", "--limit", "4"]) == 2
    assert "--classes names 2 classes, and the data have 10" in capsys.readouterr().err
    with pytest.raises(BadModel, match=r"^The model has the classes 0 to 9, and no class 99\.$"):
        ra.evaluate("classes:0,1,2,3,4,5,6,7,8,99:model.py:make", "cifar10-1k", ra.LInf(0.01), "fgsm", limit=4)


def test_a_long_name_is_folded_rather_than_the_interval_dropped():
    cells = dict.fromkeys(COLUMNS, "x" * 9) | {"model": "m" * 40, "n": "10", "clean": "90.0%", "robust": "50.0%"}
    kept = [column.header for column in fitted([cells], COLUMNS, 80, TEXTS).columns]
    assert {"model", "attack", "n", "clean", "robust", "95 % interval"} <= {*kept}
