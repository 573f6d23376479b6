"""Section 7 of Liu et al.: the study's own images, sent to a service with other label names, from the command line."""

import dataclasses
import json
from collections import Counter

import pandas as pd
import pytest
import torch
from benchmarks.liu2017_service import other_names

from robustassay import models
from robustassay.cli import main
from robustassay.data.readers.cifar10 import CLASSES
from robustassay.data.readers.imagenet import class_names
from robustassay.evaluation.progress import NoProgress
from robustassay.serve.server import running
from robustassay.studies.liu2017 import sent_images
from robustassay.studies.liu2017.plan import plan
from robustassay.studies.liu2017.settings import ON_CPU, ExampleSet, Rates, Sizes
from robustassay.studies.scope import Scope
from robustassay.studies.service_transfer import rarest
from tests.support.services import service_config

pytest.importorskip("matplotlib")

WORDS = ["=1+cmd", "@vehicle", "fowl", "kitty", "stag", "hound", "croaker", "steed", "boat", "lorry"]
NAMED = ["vgg11", "resnet20", "mobilenet025"]
REQUEST = ["study", "service", "service.toml", "--models", *NAMED, "--limit", "6", "--device", "cpu", "--quiet"]
REQUEST += ["--examples", "liu"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_API_KEY", raising=False)
    (tmp_path / "words.json").write_text(json.dumps({word: index for index, word in enumerate(WORDS)}))
    quick = dataclasses.replace(ON_CPU["full"], sizes=Sizes(images=6, steps=8), rates=Rates(ensemble=4), candidates=24)
    monkeypatch.setitem(ON_CPU, "full", quick)
    return tmp_path


def craft(folder) -> None:
    scope = Scope(folder / "liu", models=tuple(NAMED), limit=6, device="cpu")
    experiment = plan(scope).measure({})
    assert experiment.reference == ("vgg11", "resnet20")
    for targeted in (False, True):
        experiment.examples(ExampleSet("opt", targeted, False), "vgg11", NoProgress())
        experiment.examples(ExampleSet("opt", targeted, True), "-resnet20", NoProgress())


def describe(folder, address: str) -> None:
    text = f'url = "{address}/classify"\nfolder = "kept"\n[response]\nlabels = "predictions.*.label"\n'
    (folder / "service.toml").write_text(text + '[labels]\nfile = "words.json"\n')


def test_the_studys_images_mislead_a_service_and_the_second_run_is_free(folder, capsys):
    (folder / "service.toml").write_text('url = "http://127.0.0.1:9/classify"\nfolder = "kept"\n')
    assert main([*REQUEST, "--out", "out"]) == 2
    assert "assay study liu2017" in capsys.readouterr().err, "nothing is crafted yet"
    craft(folder)
    config = service_config(labels=WORDS, shape=(3, 32, 32), top_k=3)
    with running(models.load("vgg11-natural"), config) as address:
        describe(folder, address)
        assert main([*REQUEST, "--out", "out", "--max-queries", "7"]) != 0
        assert "7" in capsys.readouterr().err
        assert not (folder / "out" / "study.md").exists()
        assert main([*REQUEST, "--out", "out"]) == 0
        sent = len((folder / "kept" / "transcript.jsonl").read_text().splitlines())
        assert main([*REQUEST, "--out", "again", "--max-queries", "0"]) == 0, "all answers are known"
        assert len((folder / "kept" / "transcript.jsonl").read_text().splitlines()) == sent
    assert main([*REQUEST, "--out", "out", "--publish", "page"]) == 0, "a page needs no service"
    told = pd.read_csv("out/tables/answers.csv")
    of = {str(group): rows for group, rows in told.groupby("group")}
    assert {*told["adversarial_label"]} <= {f"'{word}" if word[0] in "=@" else word for word in WORDS}, "no formulas"
    assert of["untargeted, vgg11 alone"]["misled"].all(), "the model behind the service is the one they were made on"
    assert of["targeted, vgg11 alone"]["matches_target"].all()
    assert not of["Gaussian noise"]["matches_target"].any()
    assert told["counts"].all(), "the images are those that all models classify correctly"
    assert (told["adversarial_labels"].str.count("; ") == 2).all()
    assert pd.read_csv("again/tables/answers.csv").equals(told)
    assert pd.read_csv("page/tables/answers.csv").equals(told)
    page = (folder / "page" / "study.md").read_text()
    assert "57 % from one model, 76 % from the ensemble" in page
    assert "Table 34" in page
    assert (folder / "out" / "figures" / "examples.png").stat().st_size > 10_000


def test_labels_are_sorted_by_rareness_and_then_by_confidence():
    counts = Counter({"bird": 9, "fish": 2, "sky": 9, "rose": 1})
    assert rarest(("bird", "sky", "fish", "rose"), counts, 3) == ("rose", "fish", "bird")


def test_the_served_model_must_be_one_that_an_ensemble_left_out(folder, capsys):
    (folder / "service.toml").write_text('url = "http://127.0.0.1:9/classify"\nfolder = "kept"\n')
    assert main([*REQUEST, "--out", "out", "--held-out", "vgg11"]) == 2
    assert "--held-out resnet20, mobilenet025" in capsys.readouterr().err


def test_every_class_has_a_label_of_its_own():
    labels = other_names(class_names())
    assert len(set(labels)) == 1000
    assert labels[0] == "photo of tench"
    assert not set(other_names(CLASSES)) & set(CLASSES)


def test_a_cap_for_all_is_for_services(capsys):
    assert main(["eval", "resnet20-natural", "--max-queries", "5"]) == 2
    assert "--query-budget" in capsys.readouterr().err


def test_packed_images_go_to_a_service_where_the_others_are_not(folder):
    """Tables of 8-bit images stand in for the folders of examples, which stay on the machine that made them."""
    craft(folder)
    scope = Scope(folder / "liu", models=tuple(NAMED), limit=6, device="cpu")
    experiment = plan(scope).measure({})
    whole = {one: experiment.examples(*one).x_adv for one in sent_images.groups(experiment)}
    assert len(whole) == 4
    sent_images.keep(experiment, 4)
    for path in (folder / "liu").rglob("*.safetensors"):
        path.unlink()
    for one, x_adv in whole.items():
        shown = sent_images.kept(experiment, *one)
        assert torch.equal(shown, (x_adv[:4] * 255).round() / 255)
    config = service_config(labels=WORDS, shape=(3, 32, 32), top_k=3)
    with running(models.load("mobilenet025-natural"), config) as address:
        describe(folder, address)
        assert main([*REQUEST, "--out", "out"]) == 0
    told = pd.read_csv("out/tables/answers.csv")
    assert (told.groupby("group").size() == 4).all()
    assert "| clean images | 4 | 100 |" in (folder / "out" / "study.md").read_text()
