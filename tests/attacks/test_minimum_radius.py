"""The minimum radius of a fixed-budget attack, sample by sample: against exact distances and against a grid."""

import numpy as np
import pandas as pd
import pytest
import torch

import robustassay as ra
from robustassay import attacks
from robustassay.errors import BadRequest
from robustassay.evaluation.model_ref import ModelRef
from robustassay.threat import L1, L2, LInf, Norm
from tests.support.toys import distances, images, run, two_classes


@pytest.mark.parametrize("start", [0.3, 3.0])
@pytest.mark.parametrize("norm", [LInf, L2, L1])
def test_on_a_linear_model_it_is_the_exact_distance(norm: type[Norm], start):
    model, x = two_classes(30, seed=1, margin=0.5), images(8, (30,))
    labels = model(x).argmax(1)
    exact = distances(model, x, labels, norm.name)
    attack = attacks.create("minimum-radius:attack=bim(steps=40,rel_step=0.1),tolerance=0.01")
    records, _ = run(model, attack, norm(float(np.median(exact)) * start), x, labels)
    ratio = records["distance"].to_numpy(float) / exact
    assert (ratio >= 1 - 1e-5).all()
    assert (ratio < 1.02).all()
    assert (records["success"] == (records["distance"] <= np.median(exact) * start)).all()


@pytest.mark.long
def test_it_agrees_with_a_grid_of_runs_and_costs_less():
    inner, eps = "pgd:steps=10,rel_step=0.25", 1 / 255
    model = ModelRef.of("resnet20-natural")
    found = ra.evaluate(model, "cifar10-1k", LInf(eps), inner, limit=6, search=ra.Search(smallest_eps=True)).records
    grid = [eps * (step + 1) / 5 for step in range(10)]
    runs = [ra.evaluate(model, "cifar10-1k", LInf(radius), inner, limit=6).records for radius in grid]
    first = [
        min((radius for radius, run in zip(grid, runs, strict=True) if run["success"][row]), default=np.inf)
        for row in range(6)
    ]
    searched = found["distance"].to_numpy(float)
    assert (searched <= np.array(first) * 1.06).mean() >= 0.9, "the grid finds a smaller radius"
    assert (searched >= np.array(first) - grid[0] * 1.2).mean() >= 0.9
    brute_force = 20 * 3 * 10  # a grid twice as fine: ten gradients at twenty radii, in forward passes
    assert float((found["forwards"] + 2 * found["backwards"]).mean()) < brute_force / 3


@pytest.mark.long
def test_no_row_depends_on_the_others():
    model = ra.load_model("resnet20-pgd")
    spec = "minimum-radius:attack=pgd(steps=5),tolerance=0.2"
    together = ra.evaluate(model, "cifar10-1k", LInf(4 / 255), spec, limit=4).records
    parts = [
        ra.evaluate(model, "cifar10-1k", LInf(4 / 255), spec, limit=4, execution=ra.Execution(shard=(part, 2))).records
        for part in (1, 2)
    ]
    apart = pd.concat(parts).set_index("sample_id").loc[together["sample_id"]].reset_index()
    pd.testing.assert_frame_equal(together.drop(columns="seconds"), apart.drop(columns="seconds"))


def test_what_seeks_the_minimum_itself_is_left_alone_or_refused():
    x, model = images(2, (6,)), two_classes(6)
    result = ra.evaluate(model, (x, model(x).argmax(1)), L2(1.0), "ddn:steps=5", search=ra.Search(smallest_eps=True))
    assert result.manifest["spec"]["attack"]["name"] == "ddn"
    with pytest.raises(BadRequest, match="by itself"):
        attacks.create("minimum-radius:attack=ddn")


def test_costs_count_every_trial():
    model, x = two_classes(6), images(3, (6,))
    records, _ = run(
        model, attacks.create("minimum-radius:attack=bim(steps=4),rounds=2"), LInf(1e-4), x, torch.zeros(3).long()
    )
    assert (records["backwards"] == 8).all()
    assert not records["claimed"].any()
