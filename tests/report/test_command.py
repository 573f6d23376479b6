"""The command that a run's page shows makes the same records, for every model that a name or path can load."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import robustassay as ra
from robustassay.cli import main
from robustassay.report.site.command import is_loadable, repeat, repeat_evaluation
from robustassay.results.runs import StoredRun, find_runs
from robustassay.store import MANIFEST

SPEC: dict[str, Any] = {
    "model": {"name": "timm:resnet18", "weights": "ab", "structure": "cd", "source": "timm:resnet18@ef"},
    "data": {"name": "cifar10-1k", "sha256": "0" * 64},
    "threat": {"norm": "Linf", "eps": 8 / 255, "target": None, "query_budget": None},
    "attack": {"name": "pgd", "steps": 5},
    "seed": 3,
}


def stored(model: dict[str, Any] | None = None, attack: dict[str, Any] | None = None, **entries: Any) -> StoredRun:
    spec = {**SPEC, "model": {**SPEC["model"], **(model or {})}, "attack": attack or SPEC["attack"]}
    return StoredRun({"key": "k", "spec": spec, "started": "2026-01-01", **entries}, ())


def options(run: StoredRun) -> dict[str, str]:
    """The words of a command by the option before them, with the model under ``model``."""
    command = repeat(run, 10, is_loadable(run.spec["model"])).command
    assert command is not None
    words = shlex.split(command)
    assert words[:2] == ["assay", "eval"]
    return {"model": words[2], **dict(zip(words[3::2], words[4::2], strict=True))}


@pytest.mark.parametrize(
    ("model", "search"),
    [
        ("resnet20-natural", ra.Search()),
        ("resnet20-natural", ra.Search(precision="exact")),
        ("jpeg:quality=75|resnet20-natural", ra.Search()),
        ("naive|jpeg|resnet20-natural", ra.Search()),
        ("noise:sigma=0.1,copies=1|resnet20-natural", ra.Search(eot=3)),
    ],
    ids=["zoo", "exact", "defended", "naive", "random"],
)
def test_running_the_command_gives_the_same_key(model, search, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ra.evaluate(model, "cifar10-1k", ra.LInf(2 / 255), "fgsm", limit=2, out="first", search=search)
    (run,) = find_runs([Path("first")])
    command = repeat(run, 2, is_loadable(run.spec["model"])).command
    assert command is not None
    assert main(shlex.split(command)[1:]) == 0
    assert json.loads(Path("runs", run.key, MANIFEST).read_text())["key"] == run.key


@pytest.mark.parametrize(
    "name",
    [
        "timm:resnet18", "imagenet:inception_v3", "torchvision:resnet18:IMAGENET1K_V1", "hf:org/repo@main",
        "onnx:m.onnx", "robustbench:Standard", "background:models.py:make", "models.py:make",
        "jpeg:quality=75|timm:resnet18",
    ],
)  # fmt: skip
def test_models_from_files_and_other_libraries_are_named(name):
    assert options(stored({"name": name}))["model"] == name


@pytest.mark.parametrize("name", ["my model", "Sequential", "unknown:resnet18"])
def test_a_name_that_loads_nothing_is_not_put_into_a_command(name):
    run = stored({"name": name})
    found = repeat(run, 10, is_loadable(run.spec["model"]))
    assert found.command is None
    assert "passed in Python" in (found.note or "")


def test_a_service_is_named_by_its_address():
    model = {"name": "http://localhost:8000/predict", "service": {"url": "http://localhost:8000/predict"}}
    said = options(stored(model))
    assert said["model"] == "http://localhost:8000/predict"
    assert "--precision" not in said


def test_precision_and_draws_are_options():
    assert options(stored())["--precision"] == "exact"
    assert options(stored({"search": "half"}))["--precision"] == "fast"
    assert "--eot" not in options(stored())
    assert options(stored({"eot": 7}))["--eot"] == "7"


def test_a_model_that_is_refused_without_it_gets_despite_flags():
    command = repeat(stored(flags={"softmax": "probabilities"}), 10, True).command
    assert "--despite-flags" in shlex.split(command or "")
    assert "--despite-flags" not in (repeat(stored(flags={"randomised": "draws"}), 10, True).command or "")


def test_weights_that_are_not_those_of_the_zoo_are_not_called_so():
    model = {"name": "resnet20-natural", "weights": "0" * 64, "structure": "0" * 64}
    assert not is_loadable(model)


def test_the_name_of_a_model_of_somebody_else_runs_no_code(tmp_path):
    file, trace = tmp_path / "evil.py", tmp_path / "trace"
    file.write_text(f"open({str(trace)!r}, 'w').close()\ndef make(): raise SystemExit\n")
    for name in (f"ensemble:members={file}:make|resnet20-natural", f"{file}:make"):
        for source in ({}, {"source": "ab"}):
            is_loadable({"name": name, "weights": "ab", "structure": "cd", **source})
    assert not trace.exists()


@pytest.mark.parametrize(
    ("run", "note"),
    [
        (stored(confirms=["other"]), "repeat those runs with --confirm"),
        (stored(attack={"name": "pgd", "steps": 5, "remedy": "logits"}), "--adaptive auto"),
        (stored(attack={"name": "mine.Attack"}), "attack was passed in Python"),
    ],
    ids=["confirming", "remedy", "own attack"],
)
def test_runs_that_no_command_repeats_say_why(run, note):
    found = repeat(run, 10, True)
    assert found.command is None
    assert note in (found.note or "")


@pytest.mark.parametrize(
    ("part", "switch"),
    [
        (stored(attack={"name": "pma", "remedy": "bpda"}, confirms=["k"]), ["--adaptive", "auto"]),
        (stored(attack={"name": "autoattack"}, confirms=["k"]), ["--confirm", "--despite-flags"]),
    ],
    ids=["remedy", "confirming"],
)
def test_a_run_on_what_others_left_is_repeated_with_them(part, switch):
    others = [stored(flags={"no-gradients": "zero"}), stored(attack={"name": "fgsm"})]
    remedy = stored(attack={"name": "pma", "remedy": "bpda"}, confirms=["k"])
    words = shlex.split(repeat_evaluation(part, [*others, remedy], 10, True).command or "")
    assert words[words.index("--attack") + 1 :][:2] == ["pgd:steps=5", "fgsm"]
    assert " ".join(switch) in " ".join(words)
    assert words.count("--despite-flags") == switch.count("--despite-flags")  # adaptive evaluations need none
    assert repeat_evaluation(part, [], 10, True).command is None
