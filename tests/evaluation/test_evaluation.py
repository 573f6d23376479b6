"""evaluate and Result: what they promise a Python user, and what they refuse before any work."""

import dataclasses
import json
import math
import os
import signal
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import robustassay as ra
from robustassay import errors
from robustassay.analysis.rates import Rate, worst_case
from robustassay.data import load
from robustassay.evaluation import wave
from robustassay.evaluation.verify import verify

ATTACKS = ["fgsm", "pgd:steps=5"]


def small_net(classes: int = 10) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 15 * 15, classes)).eval()


@pytest.fixture(scope="module")
def images():
    return load("cifar10-1k").images(slice(0, 24))


@pytest.fixture(scope="module")
def learnt(images):
    """The net with its own predictions as labels: every clean image is right."""
    net = small_net()
    with torch.no_grad():
        return net, (images, net(images).argmax(1))


class Wrapped(nn.Module):
    def __init__(self, net, before=lambda x: x, after=lambda z: z):
        super().__init__()
        self.net, self.before, self.after = net, before, after

    def forward(self, x):
        return self.after(self.net(self.before(x)))


def test_numbers_agree_with_a_hand_made_evaluation(learnt):
    net, (x, y) = learnt
    result = ra.evaluate(net, (x, y), ra.LInf(1 / 255), ra.attacks.PGD(steps=10))
    assert result.x_adv is not None
    with torch.no_grad():
        wrong = (net(result.x_adv).argmax(1) != y).numpy()
    assert 0 < wrong.sum() < len(y), "choose eps so that some samples fall and some stand"
    assert (result.records["success"].to_numpy(bool) == wrong).all()
    assert result.clean_accuracy == 1.0
    assert result.robust_accuracy == pytest.approx(1 - wrong.mean())
    assert result.attack_success_rate == pytest.approx(wrong.mean())
    assert (result.x_adv - x).abs().max() <= 1 / 255 + 2e-7
    assert torch.equal(result.x_adv[~torch.from_numpy(wrong)], x[~torch.from_numpy(wrong)]), (
        "a failure is the clean image"
    )
    assert result.invalid_claims == 0
    low, high = result.interval
    assert low < result.robust_accuracy < high


def test_clean_mistakes_count_as_broken_but_not_as_the_attacks_success(learnt):
    net, (x, y) = learnt
    wrong = y.clone()
    wrong[:6] = (wrong[:6] + 1) % 10
    result = ra.evaluate(net, (x, wrong), ra.LInf(1 / 255), "uniform-noise:steps=1")
    assert result.clean_accuracy == 0.75
    assert result.robust_accuracy <= 0.75
    assert result.attack_success_rate < 0.5, "noise breaks little; the six clean mistakes are not its doing"
    assert (result.records["forwards"][:6] == 0).all(), "no query is spent on what is already wrong"


def test_a_list_gives_the_worst_case_of_its_parts(learnt, tmp_path):
    net, data = learnt
    result = ra.evaluate(net, data, ra.LInf(1 / 255), ATTACKS, out=tmp_path / "runs")
    parts = [part.records["success"] for part in result.parts.values()]
    assert list(result.parts) == ["fgsm", "pgd"]
    assert (result.records["success"] == (parts[0] | parts[1])).all()
    assert result.robust_accuracy <= min(part.robust_accuracy for part in result.parts.values())
    again = ra.Result.load(tmp_path / "runs")
    pd.testing.assert_frame_equal(again.records, result.records)


def test_save_and_load_keep_everything(learnt, tmp_path):
    net, data = learnt
    result = ra.evaluate(net, data, ra.L2(0.3), "fg")
    result.save(tmp_path / "saved")
    again = ra.Result.load(tmp_path / "saved")
    pd.testing.assert_frame_equal(again.records, result.records)
    assert again.x_adv is not None
    assert result.x_adv is not None
    assert torch.equal(again.x_adv, result.x_adv)
    assert again.manifest == result.manifest


def test_eight_bit_counting_is_stricter(learnt):
    net, data = learnt
    result = ra.evaluate(net, data, ra.LInf(0.6 / 255), "pgd:steps=20")
    strict = result.counting_uint8_only()
    assert strict.robust_accuracy >= result.robust_accuracy
    assert result.x_adv is not None
    x8 = (result.x_adv * 255).round() / 255
    with torch.no_grad():
        survives = (net(x8).argmax(1) != data[1]).numpy() & result.records["success"].to_numpy(bool)
    assert strict.records["success"].sum() == survives.sum()


def test_the_users_model_and_data_are_left_as_they_were(learnt):
    net, (x, y) = learnt
    before = x.clone(), {name: value.clone() for name, value in net.state_dict().items()}
    ra.evaluate(net, (x, y), ra.LInf(1 / 255), "bim")
    assert torch.equal(x, before[0])
    assert all(torch.equal(value, before[1][name]) for name, value in net.state_dict().items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in net.parameters())


def refusals(x, y):
    net = small_net()
    return {
        "0..255 floats": (net, (x * 255, y), errors.BadData, "255"),
        "NaN": (net, (torch.where(x > 0.99, torch.nan, x), y), errors.BadData, "NaN|nan|number"),
        "label too high": (net, (x, torch.full_like(y, 10)), errors.BadData, "classes 0 to 9"),
        "negative label": (net, (x, torch.full_like(y, -1)), errors.BadData, "negative|-1"),
        "lengths": (net, (x, y[:-1]), errors.BadData, "24"),
        "probabilities": (Wrapped(net, after=lambda z: z.softmax(1)).eval(), (x, y), errors.BadModel, "return logits"),
        "training mode": (small_net().train(), (x, y), errors.BadModel, r"model.eval\(\)"),
        "wrong shape": (net, (x[:, :, :16, :16], y), errors.BadModel, "input size"),
        "one class": (small_net(1), (x, y * 0), errors.BadModel, "at least two classes"),
        "not a row each": (Wrapped(net, after=lambda z: z[:1]).eval(), (x, y), errors.BadModel, "one row of logits"),
        "NaN logits": (Wrapped(net, after=lambda z: z * torch.nan).eval(), (x, y), errors.BadModel, "NaN"),
        "batch statistics": (Wrapped(net, after=lambda z: z - z.mean(0)).eval(), (x, y), errors.BadModel, "batch"),
        "no gradient": (Wrapped(net, before=lambda v: v.detach()).eval(), (x, y), errors.BadModel, "exactly zero"),
        "not a module": (lambda v: v, (x, y), errors.BadModel, "torch.nn.Module"),
    }


CASES = list(refusals(torch.zeros(24, 3, 32, 32), torch.zeros(24, dtype=torch.long)))


@pytest.mark.parametrize("case", CASES)
def test_what_would_make_numbers_wrong_is_refused_before_work(images, tmp_path, case):
    x, y = images, load("cifar10-1k").labels[:24]
    model, data, error, sentence = refusals(x, y)[case]
    with pytest.raises(error, match=sentence) as caught:
        ra.evaluate(model, data, ra.LInf(8 / 255), "pgd", out=tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists(), "nothing half-written"


def test_a_black_box_attack_needs_no_gradient(learnt):
    net, data = learnt
    result = ra.evaluate(Wrapped(net, before=lambda v: v.detach()).eval(), data, ra.LInf(0.2), "uniform-noise")
    assert result.records["queries"].sum() > 0


def test_nan_in_the_middle_of_a_run_is_named(learnt):
    net, data = learnt
    calls = {"n": 0}

    def late_nan(z):
        calls["n"] += 1
        return z * torch.nan if calls["n"] > 12 else z

    with pytest.raises(errors.ModelFailed, match="returned NaN in the middle"):
        ra.evaluate(Wrapped(net, after=late_nan).eval(), data, ra.LInf(0.1 / 255), "pgd:steps=50")


def test_repeated_attacks_get_a_folder_each(learnt, tmp_path):
    net, data = learnt
    result = ra.evaluate(net, data, ra.LInf(1 / 255), ["pgd:steps=2", "pgd:steps=9"], out=tmp_path / "runs")
    assert list(result.parts) == ["pgd-1", "pgd-2"]
    assert result.parts["pgd-2"].records["backwards"].max() == 9


@pytest.mark.parametrize(("count", "total"), [(0, 10), (3, 10), (10, 10), (431, 1000)])
def test_wilson_interval_by_its_formula(count, total):
    z, p = 1.959963984540054, count / total
    centre = (p + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total))
    assert Rate(count, total).interval() == pytest.approx((centre - half, centre + half), abs=1e-9)


def test_of_failures_the_worst_case_takes_the_one_inside_the_ball():
    """A minimum-norm attack ends at a margin of about zero, beyond eps: that says nothing about the ball."""
    row = {
        "sample_id": "a",
        "success": False,
        "iterations": 1,
        "forwards": 1,
        "backwards": 1,
        "queries": 1,
        "seconds": 1.0,
    }
    inside = pd.DataFrame([row | {"distance": None, "margin": 2.0}])
    beyond = pd.DataFrame([row | {"distance": 0.5, "margin": -0.001}])
    for parts in ({"fmn": beyond, "pgd": inside}, {"pgd": inside, "fmn": beyond}):
        merged = worst_case(parts)
        assert merged["attack"].tolist() == ["pgd"]
        assert merged["margin"].tolist() == [2.0]
        assert merged["queries"].tolist() == [2]


def test_worst_case_takes_the_closest_success():
    def table(success, distance):
        n = len(success)
        numbers = {c: np.ones(n) for c in ("iterations", "forwards", "backwards", "queries", "seconds")}
        return pd.DataFrame(
            {"sample_id": list("abc"), "success": success, "distance": distance, "margin": np.zeros(n), **numbers}
        )

    one = table([True, False, True], [0.3, np.nan, 0.1])
    two = table([True, True, False], [0.2, 0.5, np.nan])
    merged = worst_case({"one": one, "two": two})
    assert merged["attack"].tolist() == ["two", "two", "one"]
    assert merged["distance"].tolist() == [0.2, 0.5, 0.1]
    assert merged["forwards"].tolist() == [2, 2, 2]


def flaky(net: nn.Module, offset: float) -> nn.Module:
    """A net whose verifying batches of 32 see slightly safer logits than the search does."""

    def after(z):
        return z + offset * torch.nn.functional.one_hot(z.argmax(1), 10) if len(z) == 32 else z

    return Wrapped(net, after=after).eval()


def test_a_near_miss_does_not_end_a_search_as_robust(learnt, monkeypatch):
    """A claim that verification refuses is taken back, and the row is attacked until the success is clear."""
    net, data = learnt
    monkeypatch.setattr("robustassay.evaluation.checks.depends_on_batch", lambda *given: False)  # or it is refused
    small_steps = "pgd:steps=60,rel_step=0.02"
    plain = ra.evaluate(net, data, ra.LInf(2 / 255), small_steps)
    held = []

    def watched(module, device, claims):
        verdict = verify(module, device, claims)
        held.append([image.numpy().tobytes() for image, valid in zip(claims.x0, verdict.valid, strict=True) if valid])
        return verdict

    monkeypatch.setattr(wave, "verify", watched)
    doubted = ra.evaluate(flaky(net, -2e-3), data, ra.LInf(2 / 255), small_steps, execution=ra.Execution(batch_size=8))
    assert plain.robust_accuracy < 0.5
    assert doubted.invalid_claims == 0
    assert doubted.robust_accuracy <= plain.robust_accuracy + 0.1
    found = [image for images in held for image in images]
    assert len([images for images in held if images]) > 1
    assert len(found) == len(set(found)), "a claim that held is not verified again"


def test_a_claim_refused_for_good_is_recorded_as_invalid(learnt, monkeypatch):
    """Where verification never agrees, the sample stands, and says why it is in doubt."""
    net, data = learnt
    monkeypatch.setattr("robustassay.evaluation.checks.depends_on_batch", lambda *given: False)  # or it is refused
    result = ra.evaluate(flaky(net, -1e3), data, ra.LInf(2 / 255), "pgd:steps=10", execution=ra.Execution(batch_size=8))
    doubtful = result.records[result.records["clean_ok"] & result.records["claimed"]]
    assert len(doubtful) > 5
    assert result.invalid_claims >= len(doubtful[doubtful["problem"].notna()]) > 0
    assert not doubtful["success"][doubtful["problem"].notna()].any()
    assert set(doubtful["problem"].dropna()) == {"goal not reached"}


class Shifted(nn.Module):
    """Preprocesses with a value that no hash of weights sees."""

    def __init__(self, net, shift):
        super().__init__()
        self.net, self.shift = net, shift

    def forward(self, x):
        return self.net(x + self.shift)


def changes(net, x, y):
    other = small_net()
    with torch.no_grad():
        next(other.parameters())[0, 0, 0, 0] += 1e-3
    pixel = x.clone()
    pixel[0, 0, 0, 0] = 1 - pixel[0, 0, 0, 0]
    ids = [str(row) for row in range(len(y))]
    targets = [ra.LabelList({i: (int(t) + k) % 10 for i, t in zip(ids, y, strict=True)}) for k in (1, 2)]
    base = {"model": net, "data": (x, y), "threat": ra.LInf(1 / 255), "attack": "pgd:steps=2", "seed": 0}
    aimed = {**base, "threat": ra.ThreatModel(ra.LInf(1 / 255), targets[0])}
    return {
        "seed": (base, {"seed": 1}),
        "query budget": (base, {"search": ra.Search(query_budget=5)}),
        "target rule": (
            base,
            {"threat": ra.ThreatModel(ra.LInf(1 / 255), ra.RandomTarget())},
        ),
        "target list": (aimed, {"threat": ra.ThreatModel(ra.LInf(1 / 255), targets[1])}),
        "eps": (base, {"threat": ra.LInf(2 / 255)}),
        "norm": (base, {"threat": ra.L2(1 / 255)}),
        "attack": (base, {"attack": "bim"}),
        "attack setting": (base, {"attack": "pgd:steps=3"}),
        "a weight": (base, {"model": other}),
        "a pixel": (base, {"data": (pixel, y)}),
        "a label": (base, {"data": (x, (y + (torch.arange(len(y)) == 3)) % 10)}),
        "structure": (base, {"model": nn.Sequential(net).eval()}),
        "preprocessing": ({**base, "model": Shifted(net, 0.0).eval()}, {"model": Shifted(net, 0.1).eval()}),
    }


CHANGES = list(changes(small_net(), torch.zeros(4, 3, 32, 32), torch.zeros(4, dtype=torch.long)))


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_results_is_another_run(learnt, tmp_path, change):
    net, (x, y) = learnt
    request, other = changes(net, x[:8], y[:8])[change]
    ra.evaluate(**request, out=tmp_path / "run")
    ra.evaluate(**request, out=tmp_path / "run", execution=ra.Execution(batch_size=3, wave_size=2))
    with pytest.raises(errors.WrongFolder):
        ra.evaluate(**{**request, **other}, out=tmp_path / "run")


def test_attacks_that_search_one_model_in_different_ways_are_merged(learnt):
    """A GPU searches in half precision for some attacks and not for those that seek the nearest point."""
    net, (x, y) = learnt
    plain = ra.evaluate(net, (x, y), ra.LInf(2 / 255), "fgsm", limit=8)
    spec = plain.manifest["spec"]
    in_half = {**plain.manifest, "spec": {**spec, "model": {**spec["model"], "search": "float16"}}}
    other = {**plain.manifest, "spec": {**spec, "model": {**spec["model"], "sha256": "another"}}}
    both = ra.Result.worst_of({"a": plain, "b": dataclasses.replace(plain, manifest=in_half)})
    assert both.robust_accuracy == plain.robust_accuracy
    with pytest.raises(errors.BadRequest, match="another model"):
        ra.Result.worst_of({"a": plain, "b": dataclasses.replace(plain, manifest=other)})


def test_runs_that_do_not_belong_together_are_not_merged(learnt, tmp_path):
    net, (x, y) = learnt
    ra.evaluate(net, (x, y), ra.LInf(1 / 255), "fgsm", out=tmp_path / "runs" / "a")
    ra.evaluate(net, (x, y), ra.LInf(2 / 255), "fgsm", out=tmp_path / "runs" / "b")
    with pytest.raises(errors.BadRequest, match="another model, data or threat"):
        ra.Result.load(tmp_path / "runs")
    ra.evaluate(net, (x, y), ra.LInf(1 / 255), "bim", limit=5, out=tmp_path / "more" / "a")
    ra.evaluate(net, (x, y), ra.LInf(1 / 255), "fgsm", limit=9, out=tmp_path / "more" / "b")
    with pytest.raises(errors.BadRequest, match="covers other samples"):
        ra.Result.load(tmp_path / "more")


def test_saving_adds_what_is_new_and_refuses_what_is_no_run(learnt, tmp_path):
    net, data = learnt
    ra.evaluate(net, data, ra.LInf(1 / 255), "fgsm", limit=5).save(tmp_path / "saved")
    whole = ra.evaluate(net, data, ra.LInf(1 / 255), "fgsm", limit=9)
    whole.save(tmp_path / "saved")
    assert len(ra.Result.load(tmp_path / "saved").records) == 9
    with pytest.raises(errors.BadRequest, match="is not a run"):
        whole.counting_uint8_only().save(tmp_path / "other")


def test_a_list_keeps_the_image_of_whoever_won(learnt):
    net, (x, y) = learnt
    result = ra.evaluate(net, (x, y), ra.LInf(1 / 255), ATTACKS)
    assert result.x_adv is not None
    with torch.no_grad():
        wrong = (net(result.x_adv).argmax(1) != y).numpy()
    assert (wrong == result.records["success"].to_numpy(bool)).all()


def test_images_asked_for_later_are_made(learnt, tmp_path):
    net, data = learnt
    first = ra.evaluate(net, data, ra.LInf(1 / 255), "fgsm", out=tmp_path / "run", keep_images=False)
    assert first.x_adv is None
    again = ra.evaluate(net, data, ra.LInf(1 / 255), "fgsm", out=tmp_path / "run")
    assert again.x_adv is not None
    pd.testing.assert_frame_equal(
        again.records.drop(columns="seconds"), first.records.drop(columns="seconds"), check_like=True
    )


def test_bad_targets_are_found_before_the_first_wave(learnt, tmp_path):
    net, (x, y) = learnt
    targets = {str(row): (int(label) + 1) % 10 for row, label in enumerate(y)}
    targets["20"] = int(y[20])
    threat = ra.ThreatModel(ra.LInf(1 / 255), ra.LabelList(targets))
    with pytest.raises(errors.BadRequest, match="sample '20'"):
        ra.evaluate(net, (x, y), threat, "fgsm", execution=ra.Execution(wave_size=4), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_runs_of_another_version_are_refused_with_one_sentence_that_names_it(learnt, tmp_path):
    net, data = learnt
    ra.evaluate(net, data, ra.LInf(1 / 255), "fgsm", limit=4, out=tmp_path / "run")
    path = tmp_path / "run" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["spec"]["version"] = 4
    manifest["software"] = {"assay": "0.1.0"}
    path.write_text(json.dumps(manifest))
    for use in (
        lambda: ra.Result.load(tmp_path / "run"),
        lambda: ra.evaluate(net, data, ra.LInf(1 / 255), "fgsm", limit=4, out=tmp_path / "run"),
    ):
        with pytest.raises(errors.WrongFolder, match=r"was written by version 0\.1\.0 ") as caught:
            use()
        assert str(caught.value).count(". ") == 0


class Signals:
    """Sends a signal to this process once so many samples are finished."""

    def __init__(self, number: signal.Signals, after: int) -> None:
        self.number, self.after = number, after

    def start(self, title: str, samples: int, finished: int) -> None: ...

    def update(self, finished: float, robust: object) -> None:
        if finished >= self.after:
            self.after = 10**9
            os.kill(os.getpid(), self.number)

    def finish(self) -> None: ...


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("saved", [False, True])
def test_a_finished_result_survives_an_interrupt(learnt, tmp_path, number, saved):
    net, data = learnt
    request: dict[str, Any] = {
        "limit": 8,
        "execution": ra.Execution(wave_size=4),
        "out": tmp_path / "run" if saved else None,
    }
    result = ra.evaluate(net, data, ra.LInf(1 / 255), "fgsm", **request, progress=Signals(number, after=8))
    assert len(result.records) == 8


def test_an_interrupt_without_a_folder_does_not_promise_to_resume(learnt):
    net, data = learnt
    request: dict[str, Any] = {
        "limit": 8,
        "execution": ra.Execution(wave_size=4),
        "progress": Signals(signal.SIGINT, after=4),
    }
    with pytest.raises(errors.Interrupted, match="Stopped after 4 of 8 samples: nothing is saved without an output"):
        ra.evaluate(net, data, ra.LInf(1 / 255), "fgsm", **request)


def test_an_interrupt_in_the_last_wave_of_one_attack_stops_before_the_next(learnt, tmp_path):
    net, data = learnt
    request: dict[str, Any] = {"limit": 8, "out": tmp_path / "run", "progress": Signals(signal.SIGINT, after=8)}
    with pytest.raises(errors.Interrupted, match="Stopped after 0 of 8 samples: run the same command again"):
        ra.evaluate(net, data, ra.LInf(1 / 255), ["fgsm", "bim:steps=2"], **request)
    assert len(ra.Result.load(tmp_path / "run" / "fgsm").records) == 8


WRONG = {
    "threat": {"threat": "Linf"},
    "attack class": {"attack": ra.attacks.PGD},
    "no attack": {"attack": None},
    "limit": {"limit": 2.5},
    "seed": {"seed": "one"},
    "device": {"device": "quantum"},
    "data": {"data": (1, 2, 3)},
}


@pytest.mark.parametrize("case", WRONG)
def test_python_users_get_sentences_too(learnt, case):
    net, data = learnt
    request = {"model": net, "data": data, "threat": ra.LInf(1 / 255), "attack": "fgsm"}
    with pytest.raises(errors.BadRequest):
        ra.evaluate(**{**request, **WRONG[case]})


@pytest.mark.parametrize(("norm", "eps"), [(ra.LInf, 8), (ra.L0, 0.5), (ra.L0, 8 / 255), (ra.L2, 0)])
def test_radii_that_no_attack_could_use_are_refused(norm, eps):
    with pytest.raises(errors.BadRequest):
        norm(eps)


def test_the_callers_autocast_and_no_grad_do_not_leak_in(learnt):
    net, data = learnt
    plain = ra.evaluate(net, data, ra.LInf(1 / 255), "bim", seed=np.int64(0))  # type: ignore[arg-type]
    with torch.no_grad(), torch.autocast("cpu", torch.float16):
        inside = ra.evaluate(net, data, ra.LInf(1 / 255), "bim")
    pd.testing.assert_frame_equal(inside.records.drop(columns="seconds"), plain.records.drop(columns="seconds"))


def test_a_model_without_slope_is_refused(learnt):
    net, data = learnt
    with pytest.raises(errors.BadModel, match="exactly zero"):
        ra.evaluate(Wrapped(net, before=lambda x: (x * 64).round() / 64).eval(), data, ra.LInf(0.1), "bim")
