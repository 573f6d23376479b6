"""What a logbook is told reaches the place it writes to, in that place's own words."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

import robustassay as ra
from robustassay.analysis.rates import Rate
from robustassay.cli import main
from robustassay.errors import BadRequest, UnknownName
from robustassay.evaluation.tracking import Tracking


class Watcher:
    """Notes everything, as a sheet and as a Progress."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str):
        return lambda *given: self.seen.append((name, *given))


def test_a_real_run_is_noted_from_first_to_last_sample():
    sheet, beside, titles = Watcher(), Watcher(), []

    def opens(title: str) -> Watcher:
        titles.append(title)
        return sheet

    request: dict[str, Any] = {"limit": 12, "execution": ra.Execution(wave_size=4), "progress": Tracking(opens, beside)}
    result = ra.evaluate("resnet20-natural", "cifar10-1k", ra.LInf(1 / 255), "fgsm", **request)
    assert titles == ["resnet20-natural on cifar10-1k, fgsm, L∞ 1/255"]
    *written, last = sheet.seen
    assert last == ("close",)
    steps = [step for _, step, _ in written]
    assert steps == sorted(steps)
    assert {4, 8} <= set(steps)
    assert steps[-1] == 12
    values = written[-1][2]
    assert values["robust accuracy"] == result.robust_accuracy
    assert (values["robust accuracy low"], values["robust accuracy high"]) == result.interval
    assert [name for name, *_ in beside.seen if name != "update"] == ["start", "finish"]


def test_a_log_is_closed_once_even_if_the_run_ended_badly():
    sheet = Watcher()
    book = Tracking(lambda title: sheet)
    book.start("a run", 10, 0)
    book.finish()
    book.finish()
    assert sheet.seen == [("close",)]


def noted(monkeypatch, place: str, **modules: Any) -> None:
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name.replace("__", "."), module)
    book = Tracking.to(place, "elsewhere")
    book.start("a run", 4, 0)
    book.update(2.5, Rate(1, 2))
    book.update(2.9, Rate(1, 2))  # nothing more is finished
    book.finish()


def test_tensorboard(monkeypatch):
    writer = Watcher()
    noted(monkeypatch, "tensorboard", torch__utils__tensorboard=SimpleNamespace(SummaryWriter=lambda folder: writer))
    assert writer.seen[0] == ("add_scalar", "robust accuracy", 0.5, 2)
    assert len(writer.seen) == 4
    assert writer.seen[-1] == ("close",)


def test_the_command_line_logs_too(monkeypatch, tmp_path):
    writer = Watcher()
    tensorboard = SimpleNamespace(SummaryWriter=lambda folder: writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", tensorboard)
    request = ["eval", "resnet20-natural", "--attack", "fgsm", "--limit", "4", "--out", str(tmp_path / "out")]
    assert main([*request, "--log", "tensorboard", "--quiet"]) == 0
    assert any(seen[:2] == ("add_scalar", "robust accuracy") and seen[3] == 4 for seen in writer.seen)
    assert writer.seen[-1] == ("close",)


def test_wandb(monkeypatch):
    calls: list[Any] = []
    run = SimpleNamespace(log=lambda values, step: calls.append((step, values)), finish=lambda: calls.append("finish"))

    def init(**given):
        calls.append(given)
        return run

    noted(monkeypatch, "wandb", wandb=SimpleNamespace(init=init))
    started, (step, values), last = calls
    assert (started["project"], started["name"]) == ("elsewhere", "a run")
    assert (step, values["robust accuracy"], last) == (2, 0.5, "finish")


def test_mlflow(monkeypatch):
    calls: list[Any] = []
    noted(
        monkeypatch,
        "mlflow",
        mlflow=SimpleNamespace(
            set_experiment=lambda name: calls.append(name),
            start_run=lambda run_name: calls.append(run_name),
            log_metrics=lambda values, step: calls.append((step, values)),
            end_run=lambda: calls.append("end"),
        ),
    )
    assert calls[:2] == ["elsewhere", "a run"]
    assert calls[2][0] == 2
    assert calls[2][1]["robust_accuracy"] == 0.5
    assert calls[3:] == ["end"]


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(BadRequest, match="pip install mlflow"):
        Tracking.to("mlflow").start("a run", 1, 0)
    with pytest.raises(UnknownName, match="tensorboard"):
        Tracking.to("tensorbord")
