"""Section 7 of Liu et al. on a service that shows labels only, and other ones, from the command line."""

import json

import pandas as pd
import pytest

from robustassay import models
from robustassay.cli import main
from robustassay.serve.server import running
from tests.support.services import service_config

pytest.importorskip("matplotlib")

WORDS = ["=1+cmd", "@vehicle", "fowl", "kitty", "stag", "hound", "croaker", "steed", "boat", "lorry"]
REQUEST = ["study", "service", "service.toml", "--single", "resnet20-natural", "--limit", "6"]
REQUEST += ["--ensemble", "resnet20-natural", "vgg11-natural", "--attack", "mim:steps=8,path=2", "--quiet"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASSAY_API_KEY", raising=False)
    (tmp_path / "words.json").write_text(json.dumps({word: index for index, word in enumerate(WORDS)}))
    return tmp_path


def describe(folder, address: str) -> None:
    text = f'url = "{address}/classify"\nfolder = "kept"\n[response]\nlabels = "predictions.*.label"\n'
    (folder / "service.toml").write_text(text + '[labels]\nfile = "words.json"\n')


def test_images_made_on_its_own_model_mislead_a_service_and_the_second_run_is_free(folder):
    with running(
        models.load("resnet20-natural"), service_config(label_only=True, labels=WORDS, shape=(3, 32, 32))
    ) as address:
        describe(folder, address)
        assert main([*REQUEST, "--out", "out"]) == 0
        sent = len((folder / "kept" / "transcript.jsonl").read_text().splitlines())
        assert main([*REQUEST, "--out", "again", "--max-queries", "0"]) == 0, "all answers are known"
        assert len((folder / "kept" / "transcript.jsonl").read_text().splitlines()) == sent
    told = pd.read_csv("out/tables/answers.csv")
    of = {str(group): rows for group, rows in told.groupby("group")}
    assert {*told["adversarial_label"]} <= {f"'{word}" if word[0] in "=@" else word for word in WORDS}, "no formulas"
    assert told["adversarial_label"].str.startswith("'").any()
    assert of["one model, untargeted"]["misled"].all(), "the model behind the service is the one they were made on"
    assert of["one model, targeted"]["matches_target"].all()
    assert of["random signs"]["misled"].mean() < 1
    assert not (told["misled"] & ~told["counts"]).any()
    assert pd.read_csv("again/tables/answers.csv").equals(pd.read_csv("out/tables/answers.csv"))
    assert "100%" in (folder / "out" / "study.md").read_text()
    assert (folder / "out" / "figures" / "examples.png").stat().st_size > 10_000


def test_a_cap_stops_the_study(folder, capsys):
    with running(
        models.load("resnet20-natural"), service_config(label_only=True, labels=WORDS, shape=(3, 32, 32))
    ) as address:
        describe(folder, address)
        assert main([*REQUEST, "--out", "out", "--max-queries", "7"]) != 0
    assert "7" in capsys.readouterr().err
    assert not (folder / "out" / "study.md").exists()


def test_a_cap_for_all_is_for_services(capsys):
    assert main(["eval", "resnet20-natural", "--max-queries", "5"]) == 2
    assert "--query-budget" in capsys.readouterr().err
