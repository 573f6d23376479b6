"""Measurements on cards under two attacks, and from the runs of a study."""

from dataclasses import replace

from benchmarks import measure_zoo
from tools import zoo_table

import robustassay as ra
from robustassay import models


def test_autoattack_is_another_measurement_and_has_a_version_for_random_models():
    card = replace(
        models.card("resnet20-pgd"),
        measurements={"express": {"sha256": models.card("resnet20-pgd").sha256, "images": 200}},
    )
    assert not measure_zoo.is_known(card, 1, "autoattack")
    assert measure_zoo.words_of("vgg16-rse", "autoattack") == "autoattack:version=rand"
    assert measure_zoo.words_of("vgg16-rse", "express") == "express"
    assert measure_zoo.words_of("resnet20-pgd", "autoattack") == "autoattack"


def test_finished_runs_of_the_study_go_to_the_cards_under_both_attacks(tmp_path, monkeypatch):
    added: list[tuple[str, str, int]] = []
    monkeypatch.setattr(measure_zoo, "is_known", lambda card, images, attack: images <= 2)  # as many as the runs have
    monkeypatch.setattr(
        measure_zoo, "add", lambda name, found: added.extend((name, k, v["images"]) for k, v in found.items())
    )
    monkeypatch.setattr(zoo_table, "main", lambda: None)
    weaker = "autoattack:steps=1,queries=1"
    for kind, attack in (("test", "autoattack"), ("express", "express"), ("l2", "express"), ("autoattack", weaker)):
        out = tmp_path / "runs" / "alexnet-natural" / "run" / f"{kind}-0"
        ra.evaluate(
            "alexnet-natural", "cifar10-1k", ra.LInf(8 / 255), attack, limit=2, out=out, search=ra.Search(self_test=0)
        )
    measure_zoo.take_over(tmp_path, ["alexnet-natural"])
    assert not added
    measure_zoo.take_over(tmp_path, ["alexnet-natural"], again=True)
    assert sorted(added) == [("alexnet-natural", "autoattack", 2), ("alexnet-natural", "express", 2)]
