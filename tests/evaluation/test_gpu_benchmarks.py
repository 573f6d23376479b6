"""The benchmarks for GPUs run on a CPU as well, at the smallest scale."""

import json

import numpy as np
import pytest
import torch
from benchmarks import cuda_invariance, gpu_speed, many_classes, networks

from robustassay.train.publish import write_half


def test_sizes_of_batches_and_waves_change_nothing_on_a_cpu(monkeypatch):
    monkeypatch.setattr(cuda_invariance, "SIZES", ((None, None), (8, 5)))
    rows = list(cuda_invariance.compare("resnet20-natural", "fgsm", 12, "cpu"))
    assert [row["precision"] for row in rows] == ["exact", "fast"]
    assert [(row["verdicts that differ"], row["images that differ"]) for row in rows] == [(0, 0), (0, 0)]


def test_a_verdict_that_differs_is_a_failure(monkeypatch):
    row = {"verdicts that differ": 1}
    monkeypatch.setattr(cuda_invariance, "compare", lambda *_: iter([row]))
    with pytest.raises(SystemExit, match="1"):
        cuda_invariance.main(["resnet20-natural"])


def test_costs_with_few_and_with_many_classes_are_compared(tmp_path, capsys):
    rng = np.random.default_rng(0)
    for name, classes in (("tiny-few", 3), ("tiny-many", 40)):
        torch.manual_seed(0)
        write_half(networks.build("tiny", classes), tmp_path / f"{name}.safetensors")
        x, y = rng.integers(0, 255, (classes, 32, 32, 3), dtype=np.uint8), np.arange(classes)
        np.savez(tmp_path / f"{name}.npz", x=x, y=y)
    files = [str(tmp_path / f"tiny-{name}.safetensors") for name in ("few", "many")]
    data = [word for name in ("few", "many") for word in (f"--{name}", str(tmp_path / f"tiny-{name}.npz"))]
    many_classes.main([*files, *data, "--attacks", "fgsm", "--device", "cpu"])
    few, many, ratio = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (few["classes"], many["classes"]) == (3, 40)
    assert ratio["cost ratio"] == pytest.approx(many["cost"] / few["cost"])


def test_a_row_of_the_speed_page_names_times_and_misses():
    row = {"model": "m", "threat": "Linf 8/255", "images": 1000, "reference": 80.0, "search": "float16"}
    row["date"] = "2026-11-19"
    for attack, seconds in (("autoattack", 20.0), ("express", 2.0)):
        row |= {attack: seconds, f"{attack} first": 3 * seconds, f"{attack} equal": 0.999}
        row[f"{attack} checks"] = seconds / 2
    row |= {"express missed": 2, "express not in doubt": 1}
    text = "\n".join(gpu_speed.lines_of_page({"machine": "a GPU", "rows": [row]}))
    assert (
        "| 20.00 s (60.00) | 4.0 | 8.0 | 99.9% | 2.00 s (6.00) | 40.0 | 80.0 | 99.9% | 2 (1) | float16 | 2026-11-19 |"
        in text
    )
