"""A sample's verdict and its adversarial image depend on the specification alone, not on how the work was cut up.

On a real residual network (random weights, real images, the network's own answers as labels) and PGD from a random
start, the attack with most ways to go wrong: random numbers, rows that leave, gradients whose sign may flip. Run with
`-rP` to see how many images are identical to the last bit.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from robustassay import data
from robustassay.data import Dataset
from robustassay.evaluation import Execution, Result, evaluate
from robustassay.models.architectures.resnet import ResNet
from robustassay.records import TIMING
from robustassay.threat import L2, LInf, Norm, RandomTarget, ThreatModel

SAMPLES = 36
THREATS: dict[str, tuple[Norm | ThreatModel, str]] = {
    "Linf": (LInf(0.12 / 255), "pgd:steps=3,rel_step=0.4,restarts=2"),
    "L2": (L2(0.02), "pgd:steps=4,rel_step=0.3"),
}
every_threat = pytest.mark.parametrize("threat", THREATS)


@pytest.fixture(scope="module")
def photos() -> Dataset:
    return data.load("cifar10-1k")


@pytest.fixture(scope="module")
def model(photos: Dataset) -> nn.Module:
    """A small residual network whose batch norms know real images and whose classes are about equally common."""
    x = photos.images(slice(500, 600))
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        network = ResNet(depth=20).build(10)
        for part in network.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.momentum = 1.0
        network.train()(x)
        network.eval()
        assert isinstance(network.head, nn.Linear)
        network.head.bias.sub_(network(x).mean(0))
    return network


@pytest.fixture(scope="module")
def dataset(model: nn.Module, photos: Dataset) -> Dataset:
    x = photos.images(slice(0, SAMPLES))
    with torch.no_grad():
        return data.from_arrays(x, model(x).argmax(1))


@pytest.fixture(scope="module")
def references(model: nn.Module, dataset: Dataset) -> dict[str, Result]:
    found = {name: run(model, dataset, name) for name in THREATS}
    for result in found.values():
        assert 5 <= result.records["success"].sum() <= SAMPLES - 5, "some must fall and some must stand"
    return found


def assert_same(result: Result, reference: Result, what: str) -> None:
    """Compare sample by sample; the reference may hold more of them."""
    ours = result.records.set_index("sample_id")
    theirs = reference.records.set_index("sample_id").loc[ours.index]
    exact = [name for name in ours.columns if name not in (*TIMING, "distance", "margin")]
    for name in exact:
        assert ours[name].equals(theirs[name]), f"{name} differs"
    for name in ("distance", "margin"):
        np.testing.assert_allclose(
            ours[name].to_numpy(float, na_value=np.nan), theirs[name].to_numpy(float, na_value=np.nan), atol=1e-4
        )
    assert result.x_adv is not None
    assert reference.x_adv is not None
    position = {sample: row for row, sample in enumerate(reference.records["sample_id"])}
    expected = reference.x_adv[[position[sample] for sample in result.records["sample_id"]]]
    apart = (result.x_adv - expected).flatten(1).abs().amax(1)
    print(
        f"{what}: {int((apart == 0).sum())} of {len(apart)} images bit-identical, furthest apart {float(apart.max())}"
    )
    assert apart.max() < 1e-5


def run(model: nn.Module, dataset: Dataset, name: str, **settings: Any) -> Result:
    threat, attack = THREATS[name]
    plain = {name: settings.pop(name) for name in ("out", "seed") if name in settings}
    execution = Execution(**({"batch_size": 32, "wave_size": 64} | settings))
    return evaluate(model, dataset, threat, attack, device="cpu", execution=execution, **plain)


@pytest.mark.parametrize("batch_size", [1, 7, 64])
@every_threat
def test_batch_size_changes_nothing(
    model: nn.Module, dataset: Dataset, references: dict[str, Result], threat: str, batch_size: int
) -> None:
    some = dataset.take(12) if batch_size == 1 else dataset  # each image then costs a whole padded batch
    assert_same(
        run(model, some, threat, batch_size=batch_size), references[threat], f"{threat}, batches of {batch_size}"
    )


@pytest.mark.parametrize("wave_size", [1, 11])
@every_threat
def test_wave_size_changes_nothing(
    model: nn.Module, dataset: Dataset, references: dict[str, Result], threat: str, wave_size: int
) -> None:
    some = dataset.take(6) if wave_size == 1 else dataset
    assert_same(run(model, some, threat, wave_size=wave_size), references[threat], f"{threat}, waves of {wave_size}")


@every_threat
def test_order_changes_nothing(model: nn.Module, dataset: Dataset, references: dict[str, Result], threat: str) -> None:
    order = np.random.default_rng(0).permutation(SAMPLES).tolist()
    found = run(model, dataset.select(order), threat, batch_size=16, wave_size=23)
    assert found.records["sample_id"].tolist() == [dataset.ids[row] for row in order]
    assert_same(found, references[threat], f"{threat}, shuffled")


@every_threat
def test_two_shards_of_one_folder_are_one_run(
    model: nn.Module, dataset: Dataset, references: dict[str, Result], threat: str, tmp_path: Path
) -> None:
    halves = [run(model, dataset, threat, out=tmp_path / "run", shard=(part, 2)) for part in (2, 1)]
    assert [len(half.records) for half in halves] == [SAMPLES // 2] * 2
    assert not set(halves[0].records["sample_id"]) & set(halves[1].records["sample_id"])
    loaded = Result.load(tmp_path / "run")
    assert len(loaded.records) == SAMPLES
    assert_same(loaded, references[threat], f"{threat}, two shards")
    merged = run(model, dataset, threat, out=tmp_path / "run")
    assert merged.records["sample_id"].tolist() == list(dataset.ids)
    assert_same(merged, references[threat], f"{threat}, two shards read as one")


def test_an_interrupted_half_is_extended_not_repeated(
    model: nn.Module, dataset: Dataset, references: dict[str, Result], tmp_path: Path
) -> None:
    run(model, dataset.take(13), "Linf", out=tmp_path / "run")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run" / "shards").iterdir()}
    whole = run(model, dataset, "Linf", out=tmp_path / "run", wave_size=10)
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run" / "shards").iterdir()}
    assert before.items() <= after.items()
    assert_same(whole, references["Linf"], "Linf, extended")


def test_targets_belong_to_samples_too(model: nn.Module, dataset: Dataset) -> None:
    threat = ThreatModel(LInf(1 / 255), RandomTarget())
    whole = evaluate(
        model, dataset, threat, "bim:steps=3", device="cpu", execution=Execution(batch_size=64, wave_size=64)
    )
    parts = evaluate(
        model,
        dataset.select(list(range(SAMPLES))[::-1]),
        threat,
        "bim:steps=3",
        device="cpu",
        execution=Execution(batch_size=9, wave_size=7),
    )
    assert whole.records["success"].any()
    assert_same(parts, whole, "random targets, backwards")


def test_another_seed_changes_the_search(model: nn.Module, dataset: Dataset, references: dict[str, Result]) -> None:
    """The counterpart: the numbers do hang on the seed, so the agreement above is no accident."""
    other = run(model, dataset, "Linf", seed=1)
    reference = references["Linf"]
    assert other.x_adv is not None
    assert reference.x_adv is not None
    both = (other.records["success"] & reference.records["success"]).to_numpy(bool)
    apart = (other.x_adv - reference.x_adv).flatten(1).abs().amax(1)
    assert (apart[torch.tensor(both)] > 1e-5).any()
