"""Analyses: each metric against an independent implementation or a closed form, and the command that runs them."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import softmax
from torch import nn

import robustassay as ra
from robustassay import data
from robustassay.analysis import calibration, history, privacy, shift
from robustassay.analysis.fairness import fairness
from robustassay.analysis.ood import auroc
from robustassay.cli import main
from robustassay.errors import BadRequest
from robustassay.models.sources.extras import need
from robustassay.report.charts import panels
from robustassay.studies import out_of_distribution
from robustassay.studies.analyses import ANALYSES
from robustassay.studies.analyses.adversarial import AdversarialPredictionsTask
from robustassay.studies.analyses.setup import AnalysisSetup
from robustassay.studies.measures.smoothness import OUTPUT, LipschitzEstimate
from robustassay.target import LocalModel
from robustassay.threat import L1, L2, LInf
from tests.support import toys

CPU = torch.device("cpu")


def random_logits(n=3000, scale=2.0, seed=0):
    draw = np.random.default_rng(seed)
    logits = scale * draw.normal(size=(n, 10))
    chances = softmax(logits, axis=1)
    labels = (chances.cumsum(1) > draw.random((n, 1))).argmax(1)  # drawn as the logits say: perfectly calibrated
    return logits, labels


# ---------------------------------------------------------------- calibration


@pytest.mark.parametrize("bins", [15, 7])
def test_ece_equals_torchmetrics(bins):
    need("torchmetrics", "dev")
    from torchmetrics.functional.classification import multiclass_calibration_error

    logits, labels = random_logits(scale=0.7)
    hot = 2.5 * logits  # overconfident, so that there is something to measure
    found = calibration.ece(calibration.confidences(hot), hot.argmax(1) == labels, bins)
    theirs = multiclass_calibration_error(
        torch.tensor(softmax(hot, axis=1)), torch.tensor(labels), num_classes=10, n_bins=bins, norm="l1"
    )
    assert found > 0.1
    assert found == pytest.approx(float(theirs), abs=1e-6)


def test_a_perfectly_calibrated_model_has_no_ece_and_temperature_one():
    logits, labels = random_logits(n=60_000)
    found = calibration.ece(calibration.confidences(logits), logits.argmax(1) == labels)
    assert found < 0.005
    assert calibration.fit_temperature(logits, labels) == pytest.approx(1, abs=0.02)
    # One that is sure of everything it does not know is not.
    assert calibration.ece(np.ones(1000), np.arange(1000) % 2 == 0) == 0.5


@pytest.mark.parametrize("heat", [0.4, 3.0])
def test_temperatures_undo_what_was_done(heat):
    logits, labels = random_logits(n=4000)
    found = calibration.calibrate(logits / heat, labels)
    assert found.temperature == pytest.approx(1 / heat, rel=0.06)  # below 1 for an underconfident model
    assert (found.confidence < found.accuracy) == (heat > 1)
    assert found.ece > 0.1
    assert found.ece_scaled < 0.03
    assert found.seed_ece <= found.ece_scaled + 0.01  # fitted to the very images: never far above
    assert found.low <= found.ece <= found.high
    assert found.seed_temperature == pytest.approx(1 / heat, rel=0.2)


def test_the_reliability_diagram_adds_up_to_the_ece():
    logits, labels = random_logits(n=500, scale=5)
    found = calibration.calibrate(logits, labels)
    bins = found.bins.dropna()
    assert (bins["images"] * (bins["confidence"] - bins["accuracy"]).abs()).sum() / 500 == pytest.approx(found.ece)
    assert bins["images"].sum() == 500
    assert ((bins["low"] <= bins["confidence"]) & (bins["confidence"] <= bins["high"])).all()
    with pytest.raises(BadRequest, match="four images"):
        calibration.calibrate(logits[:2], labels[:2])


# ---------------------------------------------------------------- out of distribution, privacy


def test_auroc_equals_scikit_learn_and_its_interval_covers():
    from sklearn.metrics import roc_auc_score

    draw = np.random.default_rng(1)
    one, two = draw.normal(0.8, 1, 300).round(1), draw.normal(0, 1, 200).round(1)  # rounded, so that some are tied
    found = auroc(one, two)
    theirs = roc_auc_score([1] * 300 + [0] * 200, np.concatenate((one, two)))
    assert found.value == pytest.approx(theirs, abs=1e-12)

    truth, hits = 0.7602, 0  # Phi(1 / sqrt 2): normals one apart
    for _ in range(300):
        low, high = auroc(draw.normal(1, 1, 80), draw.normal(0, 1, 60)).interval()
        hits += low <= truth <= high
    assert hits >= 0.9 * 300
    with pytest.raises(BadRequest):
        auroc([1.0], two)


def test_membership_is_told_as_well_as_can_be_and_not_where_nothing_leaks():
    draw = np.random.default_rng(2)
    right = np.ones(4000, bool)
    found = privacy.infer(draw.normal(1, 1, 4000), draw.normal(0, 1, 4000), right, right)
    assert found.accuracy == pytest.approx(0.6915, abs=0.02)  # Phi(1/2), the best threshold between two normals
    assert found.baseline == 0.5
    same = privacy.infer(draw.normal(size=4000), draw.normal(size=4000), right, np.arange(4000) % 5 > 0)
    assert same.accuracy == pytest.approx(0.5, abs=3 * same.error)
    assert same.gap == pytest.approx(0.2)
    assert same.baseline == pytest.approx(0.6)


# ---------------------------------------------------------------- fairness, shift, time


def test_fairness_is_read_off_records():
    labels = np.repeat([0, 1], 50)
    clean = np.ones(100, bool)
    clean[:10] = False
    success = ~clean
    success[50:90] = True
    records = pd.DataFrame(
        {"sample_id": [str(i) for i in range(100)], "label": labels, "clean_ok": clean, "success": success}
    )
    found = fairness(records)
    assert found.classes["clean"].tolist() == [0.8, 1.0]
    assert found.classes["robust"].tolist() == [0.8, 0.2]
    assert found.clean_rsd == pytest.approx(0.1 / 0.9)
    assert found.robust_rsd == pytest.approx(0.3 / 0.5)
    assert found.robust_rsd_by_chance == pytest.approx(np.sqrt(0.25 / 50) / 0.5)
    assert np.isnan(fairness(records.assign(success=True)).robust_rsd)


def test_trends_are_rank_correlations_with_honest_chances():
    rising = shift.trend(range(8), np.exp(np.arange(8)))
    assert rising.value == pytest.approx(1)
    assert rising.p_value < 0.001
    assert shift.trend(range(8), -np.arange(8)).value == pytest.approx(-1)
    assert shift.trend([1, 2, 3], [5, 5, 5]).p_value == 1.0
    draw = np.random.default_rng(3)
    chances = [shift.trend(draw.normal(size=9), draw.normal(size=9)).p_value for _ in range(20)]
    assert 0.25 < np.mean(chances) < 0.75


def test_time_and_venue():
    entries = pd.DataFrame(
        {
            "name": list("abcd"),
            "year": [2020, 2018, 2021, None],
            "venue": ["ICLR 2020", "ICLR 2018", "arXiv, Mar 2021", ""],
            "clean": [0.8] * 4,
            "best_known": [0.5, 0.3, 0.4, 0.9],
            "reported": [0.6, None, 0.4, None],
        }
    )
    found = history.over_time(entries)
    assert found["name"].tolist() == ["b", "a", "c"]
    assert found["best_so_far"].tolist() == [0.3, 0.5, 0.5]
    assert found["overestimate"].iloc[1] == pytest.approx(0.1)
    venues = history.by_venue(entries).set_index("venue")
    assert venues.loc["ICLR", "entries"] == 2
    assert venues.loc["arXiv", "best"] == 0.4


# ---------------------------------------------------------------- smoothness


def test_a_linear_models_slope_is_its_norm():
    draw = np.random.default_rng(4)
    weight = draw.normal(size=(3, 12))
    model = toys.Linear(torch.tensor(weight, dtype=torch.float32), torch.zeros(3))
    x, ids = toys.images(5, (3, 2, 2), low=0.5, high=0.5), toys.names(5)
    under_l2 = LipschitzEstimate(L2(0.2), steps=50).estimate(model, x, ids)
    assert under_l2.tolist() == pytest.approx([np.linalg.norm(weight, 2)] * 5, rel=0.01)
    # From Linf to L1 the norm is reached at a corner; there are few enough to try them all.
    corners = np.array(list(product((-1, 1), repeat=12))).T
    exact = np.abs(weight @ corners).sum(0).max()
    under_linf = LipschitzEstimate(LInf(8 / 255), steps=50, restarts=8).estimate(model, x, ids)
    assert under_linf.tolist() == pytest.approx([exact] * 5, rel=0.01)
    alone = LipschitzEstimate(LInf(8 / 255), steps=5).estimate(model, x[3:4], ids[3:4])
    assert alone[0] == LipschitzEstimate(LInf(8 / 255), steps=5).estimate(model, x, ids)[3]  # whatever its batch mates
    with pytest.raises(BadRequest, match="Linf and L2"):
        LipschitzEstimate(L1(1.0))


def test_stages_are_measured_on_the_way_to_the_output():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 6, bias=False), nn.ReLU(), nn.Linear(6, 3)).eval()
    x = toys.images(3, (3, 2, 2))
    found = LipschitzEstimate(L2(0.1), steps=40).stages(LocalModel(module, 3, CPU, 8), x, toys.names(3), most=4)
    assert list(dict.fromkeys(found["stage"])) == ["0", "1", "2", OUTPUT]
    by_stage = found.groupby("stage")["slope"].mean()
    assert by_stage["0"] == pytest.approx(1, rel=0.01)
    assert by_stage["1"] == pytest.approx(
        np.linalg.norm(module.get_parameter("1.weight").detach().numpy(), 2), rel=0.01
    )
    assert by_stage["2"] <= by_stage["1"] * 1.001  # a rectifier adds no slope
    assert found[found["stage"] == OUTPUT]["depth"].eq(1).all()
    wrapped = nn.Sequential(module)
    again = LipschitzEstimate(L2(0.1), steps=2).stages(LocalModel(wrapped.eval(), 3, CPU, 8), x, toys.names(3), most=4)
    assert "0.1" in set(again["stage"])


# ---------------------------------------------------------------- the command

MODELS = """
import torch
from torch import nn

def make(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 24), nn.ReLU(), nn.Linear(24, 10)).eval()

def one():
    return make(1)

def two():
    return make(2)
"""


@pytest.fixture
def models(tmp_path):
    path = tmp_path / "models.py"
    path.write_text(MODELS)
    return [f"{path}:{name}" for name in ("one", "two")]


def test_analyze_makes_every_kind_once(models, tmp_path, monkeypatch, capsys):
    out, made = tmp_path / "out", []
    for name in ("predict", "estimate_lipschitz"):
        whole = getattr(AnalysisSetup, name)

        def counted(self, key, whole=whole):
            made.append(key)
            return whole(self, key)

        monkeypatch.setattr(AnalysisSetup, name, counted)
    read = AdversarialPredictionsTask.run

    def counted_task(self, results, progress):
        made.append(self.key)
        return read(self, results, progress)

    monkeypatch.setattr(AdversarialPredictionsTask, "run", counted_task)
    test = data.load("cifar10-1k")
    np.savez(tmp_path / "train.npz", x=test.images(range(500, 512)).numpy(), y=test.labels[500:512].numpy())
    arguments = [
        "analyze", *models, "--what", ",".join(ANALYSES), "--limit", "12", "--attack", "fgsm", "--out", str(out),
        "--shift", "fog:severity=5", "--ood", "noise", "--members", str(tmp_path / "train.npz"),
    ]  # fmt: skip
    assert main(arguments) == 0
    told = capsys.readouterr()
    assert "tasks, about" in told.err
    asked = [key for key in made if key[1] != "adversarial predictions"]
    assert len(set(asked)) == len(asked) == 2 * (4 + 1)
    for kind in ANALYSES:
        table = pd.read_csv(out / f"{kind}.csv")
        assert set(table.iloc[:, 0]) == set(models), kind
    pictures = {path.stem for path in out.glob("*.png")}
    assert {
        "shift-corruptions",
        "robust-shift-fog-severity=5",
        "transfer",
        "calibration-ece",
        "reliability",
        "ood-noise",
        "fairness-classes",
        "smoothness",
    } <= pictures
    assert {"privacy-clean-robust", "privacy-adversarial-baseline", "trade-off"} <= pictures

    logits = ra.load_model(models[0])(test.images(slice(0, 12))).detach().double().numpy()
    expected = calibration.calibrate(logits, test.labels[:12].numpy())
    first = pd.read_csv(out / "calibration.csv").set_index("model").loc[models[0]]
    assert first["ece"] == pytest.approx(expected.ece, abs=1e-6)
    assert first["temperature"] == pytest.approx(expected.temperature, rel=1e-4)
    robust = ra.evaluate(models[0], test.take(12), ra.LInf(8 / 255), "fgsm").robust_accuracy
    assert first["robust"] == robust

    made.clear()
    monkeypatch.setattr(panels, "draw", lambda panel, path: None)
    assert main(arguments) == 0
    assert {key[1] for key in made} <= {"adversarial predictions"}  # which reads what it has kept
    assert main([*arguments[:4], "calibration,nonsense"]) == 2
    assert main(["analyze", models[0], "--what", "privacy", "--members", "cifar10-1k", "--out", str(out)]) == 2
    assert "among the test images" in capsys.readouterr().err


def test_out_of_distribution_images_do_not_depend_on_the_batch_and_differ_from_the_test_images():
    test = data.load("cifar10-1k").take(6)
    for kind in out_of_distribution.KINDS:
        strange = out_of_distribution.out_of_distribution_images(test, kind)
        x = strange.images(slice(None))
        assert torch.equal(x[2:3], strange.images([2]))
        assert x.min() >= 0
        assert x.max() <= 1
        assert not torch.allclose(x, test.images(slice(None)), atol=0.05)
        assert strange.sha256 != test.sha256
    tiles, clean = out_of_distribution.out_of_distribution_images(test, "shuffled").images([0]), test.images([0])
    assert torch.equal(tiles.flatten().sort()[0], clean.flatten().sort()[0])  # the same pixels elsewhere
