"""The command line as a newcomer meets it: results, exit codes, one-sentence errors, interruption and resume."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from robustassay.cli import main

MODEL = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 15 * 15, 10)).eval()

def probabilities():
    return nn.Sequential(make(), nn.Softmax(1)).eval()

def training():
    return make().train()

def not_a_model():
    return 3

def broken():
    raise KeyError("weights")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def assay(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "robustassay", *arguments], capture_output=True, text=True)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if "__pycache__" not in path.parts}


def test_eval_prints_numbers_that_match_its_records(folder, capsys):
    request = ["eval", "model.py:make", "--attack", "fgsm", "pgd:steps=5", "--eps", "1/255", "--limit", "20", "--json"]
    assert main([*request, "--out", "out"]) == 0
    fgsm, pgd, worst = json.loads(capsys.readouterr().out)
    assert (fgsm["attack"]["name"], pgd["attack"]["name"], pgd["attack"]["steps"]) == ("fgsm", "pgd", 5)
    from robustassay import Result

    again = Result.load("out")
    assert again.parts["pgd"].robust_accuracy == pgd["robust_accuracy"]
    assert again.parts["fgsm"].manifest["key"] == fgsm["key"]
    assert len(again.records) == 20
    assert worst["attack"] == {"name": "worst case", "of": ["fgsm", "pgd"]}
    assert worst["robust_accuracy"] == again.robust_accuracy


def test_a_second_call_does_no_work_and_a_larger_limit_extends(folder, capsys):
    request = ["eval", "model.py:make", "--attack", "fgsm", "--quiet", "--json"]
    assert main([*request, "--limit", "8"]) == 0
    shards = {path for path in files(folder) if path.endswith(".parquet")}
    assert main([*request, "--limit", "8"]) == 0
    assert {path for path in files(folder) if path.endswith(".parquet")} == shards
    capsys.readouterr()
    assert main([*request, "--limit", "12"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["samples"] == 12
    assert {path for path in files(folder) if path.endswith(".parquet")} > shards


def test_a_different_run_gets_a_different_default_folder(folder, capsys):
    request = ["eval", "resnet20-natural", "--attack", "fgsm", "--limit", "2"]
    assert main(request) == 0
    (first,) = (folder / "runs").iterdir()
    assert "new run" not in capsys.readouterr().err
    assert main(request) == 0, "the same command resumes"
    assert [*(folder / "runs").iterdir()] == [first]
    capsys.readouterr()
    assert main([*request, "--precision", "exact"]) == 0
    assert len([*(folder / "runs").iterdir()]) == 2
    assert "Other settings than in earlier runs of this command: new run." in capsys.readouterr().err


@pytest.mark.parametrize("attacks", [["fgsm"], ["fgsm", "bim:steps=2"]])
def test_an_edited_comment_in_a_model_file_makes_a_new_run(folder, capsys, attacks):
    request = ["eval", "model.py:make", "--attack", *attacks, "--limit", "4"]
    assert main(request) == 0
    capsys.readouterr()
    (folder / "model.py").write_text(MODEL + "\n# a comment\n")
    assert main(request) == 0
    assert "New version of model.py: new run." in capsys.readouterr().err
    assert len([*(folder / "runs").iterdir()]) == 2


def test_targets_from_a_file(folder, capsys):
    from robustassay.data import load

    dataset = load("cifar10-1k").take(10)
    targets = [(int(label) + 1) % 10 for label in dataset.labels]
    (folder / "targets.csv").write_text("".join(f"{s},{t}\n" for s, t in zip(dataset.ids, targets, strict=True)))
    request = ["eval", "model.py:make", "--limit", "10", "--targeted", "targets.csv", "--eps", "0.3", "--out", "out"]
    assert main(request) == 0
    from robustassay import Result

    records = Result.load("out").records
    assert records["target"].tolist() == targets
    assert records["success"].any()
    assert (records["adv_label"] == records["target"])[records["success"]].all()


REFUSED = {
    "unknown model": (["eval", "resnet20-naturel"], "There is no model called 'resnet20-naturel'"),
    "unknown attack": (["eval", "model.py:make", "--attack", "pdg"], "did you mean pgd"),
    "unknown setting": (["eval", "model.py:make", "--attack", "pgd:step=3"], "did you mean steps"),
    "bad setting": (["eval", "model.py:make", "--attack", "pgd:steps=many"], "must be of type int"),
    "no steps": (["eval", "model.py:make", "--attack", "pgd:steps=0"], "at least 1"),
    "unknown data": (["eval", "model.py:make", "--data", "cifar10-2k"], "cifar10-1k"),
    "eps zero": (["eval", "model.py:make", "--eps", "0"], "eps must be a positive number"),
    "eps negative": (["eval", "model.py:make", "--eps=-1/255"], "eps must be a positive number"),
    "eps words": (["eval", "model.py:make", "--eps", "eight"], "number or a fraction such as 8/255"),
    "limit zero": (["eval", "model.py:make", "--limit", "0"], "limit"),
    "limit too large": (["eval", "model.py:make", "--limit", "2000"], "1000"),
    "batch zero": (["eval", "model.py:make", "--batch-size", "0"], "batch_size must be at least 1"),
    "wrong norm": (["eval", "model.py:make", "--attack", "fgsm", "--norm", "L2"], "use it with Linf"),
    "probabilities": (["eval", "model.py:probabilities"], "returns probabilities: return logits"),
    "training mode": (["eval", "model.py:training"], "call model.eval()"),
    "not a model": (["eval", "model.py:not_a_model"], "must return a torch.nn.Module"),
    "broken factory": (["eval", "model.py:broken"], "raised KeyError"),
    "unknown factory": (["eval", "model.py:mkae"], "did you mean make"),
    "no factory": (["eval", "model.py"], "Name the function"),
    "no file": (["eval", "nowhere.py:make"], "There is no file nowhere.py"),
    "no targets": (["eval", "model.py:make", "--targeted", "rnadom"], "random, least-likely or a file"),
    "bad shard": (["eval", "model.py:make", "--shard", "3/2"], "1 <= i <= n"),
    "no runs": (["report", "nowhere"], "nowhere"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_requests_get_one_sentence_and_leave_nothing(folder, capsys, case):
    arguments, sentence = REFUSED[case]
    before = files(folder)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert captured.err.count("\n") == 1, "one sentence, one line"
    assert "Traceback" not in captured.err
    assert files(folder) == before


def test_another_runs_folder_is_refused(folder, capsys):
    request = ["eval", "model.py:make", "--attack", "fgsm", "--limit", "4", "--out", "out", "--quiet"]
    assert main(request) == 0
    before = files(folder)
    assert main([*request, "--eps", "4/255"]) == 2
    assert "holds another run" in capsys.readouterr().err
    assert files(folder) == before


def test_an_unknown_option_names_the_nearest():
    done = assay("eval", "x", "--atack", "pgd")
    assert done.returncode == 2
    assert "Did you mean --attack" in done.stderr


def test_ctrl_c_finishes_the_shard_and_the_same_command_resumes(folder, capsys):
    request = [
        sys.executable,
        "-m",
        "robustassay",
        "eval",
        "model.py:make",
        "--attack",
        "pgd:steps=20",
        "--eps",
        "0.2/255",
    ]
    request += ["--targeted", "least-likely", "--limit", "400", "--self-test", "0", "--out", "out"]
    with subprocess.Popen(request, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not list(folder.glob("out/shards/*.parquet")):
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == 130, said
    assert "stopping after the samples in progress" in said
    assert "press Ctrl-C again to stop now" in said
    assert "run the same command again to resume" in said
    interrupted = set(folder.glob("out/shards/*.parquet"))
    assert main(request[3:]) == 0
    assert "400" in capsys.readouterr().out
    assert set(folder.glob("out/shards/*.parquet")) > interrupted


@pytest.mark.long
def test_ctrl_c_also_stops_a_list_of_short_runs(folder):
    attacks = [f"pgd:steps={steps}" for steps in range(100, 112)]
    request = [sys.executable, "-m", "robustassay", "eval", "model.py:make", "--attack", *attacks, "--eps", "0.2/255"]
    request += ["--targeted", "least-likely", "--limit", "64", "--self-test", "0", "--out", "out"]
    with subprocess.Popen(request, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not list(folder.glob("out/*/shards/*.parquet")):
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == 130, said
    assert 0 < len(list(folder.glob("out/*/shards/*.parquet"))) < len(attacks)


def test_lists_name_what_there_is(capsys):
    assert main(["list", "attacks"]) == 0
    assert "pgd" in capsys.readouterr().out
    assert main(["list", "datasets"]) == 0
    assert "cifar10-1k" in capsys.readouterr().out
    assert main(["list", "models"]) == 0
    assert "natural" in capsys.readouterr().out


def test_train_writes_a_card_whose_command_trains_the_same_network(folder, capsys):
    import numpy as np

    rng = np.random.default_rng(0)
    y = np.arange(64) % 4
    x = (rng.integers(0, 80, (64, 32, 32, 3)) + 40 * y[:, None, None, None]).astype(np.uint8)
    np.savez("tiny.npz", x_train=x, y_train=y, x_test=x[:16], y_test=y[:16])
    request = ["train", "natural:batch=16", "--arch", "resnet:depth=8", "--data", "tiny.npz", "--epochs", "2"]
    assert main([*request, "--name", "tiny", "--out", "one"]) == 0
    assert "epoch 2/2" in capsys.readouterr().err
    card = json.loads(Path("one/tiny.json").read_text())
    again = card["command"].replace("FOLDER", "tiny.npz").replace("DIR", "two").split()
    assert main(again[1:]) == 0
    assert json.loads(Path("two/tiny.json").read_text())["sha256"] == card["sha256"]
    assert main(["train", "natrual", "--data", "tiny.npz", "--name", "x"]) == 2
    assert "did you mean natural" in capsys.readouterr().err
