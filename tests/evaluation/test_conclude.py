"""The end of an evaluation: the confirming attack and the remedies, in shards too."""

import pytest
import torch
from torch import nn

import robustassay as ra
from robustassay.data import Dataset, from_arrays, load
from robustassay.errors import AssayError
from robustassay.evaluation import conclude, prepare, run
from robustassay.evaluation.adaptive import Advice, Remedy
from robustassay.results.evidence import Grade, proved_samples

THREAT = ra.LInf(0.4 / 255)
WEAK = "bim:steps=1,rel_step=0.01"


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 15 * 15, 10)).eval()


@pytest.fixture(scope="module")
def dataset(model) -> Dataset:
    x = load("cifar10-1k").images(slice(0, 32))
    with torch.no_grad():
        return from_arrays(x, model(x).argmax(1))


def test_shards_of_a_confirmed_run_share_one_folder(model, dataset, tmp_path):
    """Each shard leaves other samples in doubt, and their first image once stood for the model."""
    search = ra.Search(confirm="bim:steps=5")
    for part in (1, 2):
        execution = ra.Execution(shard=(part, 2))
        half = ra.evaluate(model, dataset, THREAT, WEAK, out=tmp_path / "run", search=search, execution=execution)
        assert "confirm" in half.parts, "the test needs samples in doubt in both shards"
    alone = ra.evaluate(model, dataset, THREAT, WEAK, search=search)
    both = ra.Result.load(tmp_path / "run")
    assert both.robust_accuracy == alone.robust_accuracy
    assert len(both.records) == len(dataset)


@pytest.mark.parametrize(
    ("confirm", "norm", "says"),
    [
        ("autoatack", THREAT, "autoatack"),
        ("pgd:stepps=3", THREAT, "stepps"),
        (True, ra.L0(5), "does not work under L0"),
    ],
)
def test_a_confirming_attack_that_cannot_run_is_refused_before_any_work(
    model, dataset, tmp_path, monkeypatch, confirm, norm, says
):
    monkeypatch.setattr(run, "run_attack", lambda *_: pytest.fail("work was begun"))
    attack = "uniform-noise" if isinstance(norm, ra.L0) else WEAK
    with pytest.raises(AssayError, match=says):
        ra.evaluate(model, dataset, norm, attack, out=tmp_path / "run", search=ra.Search(confirm=confirm))
    assert not (tmp_path / "run").exists()


def test_a_remedy_with_the_name_of_an_attack_gets_a_folder_of_its_own(model, dataset, tmp_path, monkeypatch):
    remedy = Remedy("square", "the test says so", "attack without gradients", model, ("square:steps=20",))
    monkeypatch.setattr(prepare, "ask_adviser", lambda *_: Advice({"remedies": ["square"]}, [remedy]))
    attack, search = "square:steps=2", ra.Search(adaptive="auto")
    result = ra.evaluate(model, dataset, THREAT, attack, out=tmp_path / "run", search=search)
    assert list(result.parts) == ["square", "remedy-square"]
    again = ra.evaluate(model, dataset, THREAT, attack, out=tmp_path / "run", search=search)
    assert again.robust_accuracy == result.robust_accuracy
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"square", "remedy-square"}


def test_flags_and_doubts_are_those_of_the_doctor_the_attack_and_the_remedies(model, dataset, monkeypatch):
    alarm = {"indicator": "vanishing loss", "verdict": "alarm", "evidence": "the loss is zero on 9 of 10 images"}
    remedy = Remedy("loss", "vanishing loss", "another loss", model, ("pgd:steps=2",))
    monkeypatch.setattr(prepare, "ask_adviser", lambda *_: Advice({"indicators": [alarm]}, [remedy]))
    search = ra.Search(adaptive="auto", self_test=4)
    result = ra.evaluate(model, dataset, THREAT, WEAK, search=search)
    assert {"doctor-vanishing-loss", "self-test"} <= result.flags.keys()
    assert "9 of 10" in result.flags["doctor-vanishing-loss"]
    standing = result.records[~result.records["success"]]["sample_id"]
    assert set(result.doubtful) == set(standing) - proved_samples([result.parts["bim"].manifest])
    assert result.doubtful
    assert result.parts["loss"].self_test.asked == result.parts["bim"].self_test.asked
    assert result.evidence.grade is Grade.ADAPTIVE


def test_several_attacks_of_one_remedy_are_numbered(model):
    remedy = Remedy("transfer", "", "", model, ("transfer", "transfer"))
    assert conclude._part_name(remedy, 2, {"transfer"}) == "transfer-2"
    assert conclude._part_name(remedy, 2, {"transfer-1", "transfer-2"}) == "remedy-transfer-2"
