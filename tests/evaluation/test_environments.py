"""An evaluation gives the same records whatever its caller has set."""

import asyncio
import contextlib
import cProfile
import gc
import profile
import sys
import threading
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import robustassay as ra
from robustassay.errors import BadModel

X = torch.rand(8, 3, 6, 6, generator=torch.Generator().manual_seed(1))


class Network(nn.Module):
    """A small network whose forward pass makes a tensor of the default type and device."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(4, 108, generator=generator, dtype=torch.float32, device="cpu"))
        self.eval()

    def forward(self, x):
        return torch.tanh(x.flatten(1) - 0.5) @ self.weight.T


class UsesDefaults(Network):
    def forward(self, x):
        return super().forward(x) @ torch.eye(4)


NETWORK = Network()
LABELS = NETWORK(X).argmax(1)


def result(model=None):
    chosen = NETWORK if model is None else model(Network())
    search = ra.Search(self_test=0)
    return ra.evaluate(chosen, (X, LABELS), ra.LInf(0.03), "pgd:steps=3", device="cpu", search=search)


def records(found):
    return found.records[["sample_id", "clean_ok", "success", "distance"]].fillna(-1).round(5).to_dict("records")


@pytest.fixture(scope="module")
def expected():
    found = result()
    assert 0 < found.robust_accuracy < 1
    return records(found)


@contextlib.contextmanager
def tracing(setter, getter):
    def watch(frame, event, argument):
        return None

    before = getter()
    setter(watch)
    try:
        yield
        assert getter() is watch
    finally:
        setter(before)


@contextlib.contextmanager
def default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        yield
        assert torch.get_default_dtype() is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


SETTINGS: dict[str, Any] = {
    "cProfile": cProfile.Profile,
    "sys.settrace": lambda: tracing(sys.settrace, sys.gettrace),
    "sys.setprofile": lambda: tracing(sys.setprofile, sys.getprofile),
    "inference mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu"),
    "default dtype float64": default_dtype,
    "default device meta": lambda: torch.device("meta"),
    "deterministic algorithms": deterministic,
    "one thread": one_thread,
    "anomaly detection": torch.autograd.detect_anomaly,
    "torch profiler": lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_the_caller_change_nothing(name, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the setting itself, such as anomaly detection
        with SETTINGS[name]():
            found = result()
    assert records(found) == expected
    assert "no-gradients" not in found.flags


def compiled(network):
    return torch.compile(network, backend="eager")


def exported(network):
    batch = torch.export.Dim("batch", min=1, max=4096)
    program = torch.export.export(network, (torch.rand(4, 3, 6, 6),), dynamic_shapes=({0: batch},))
    return program.module()


def hooked(network):
    network.register_forward_hook(lambda module, inputs, output: output.clone())
    network.register_full_backward_hook(lambda module, given, wanted: None)
    return network


MODELS: dict[str, Any] = {
    "scripted": torch.jit.script,
    "traced": lambda network: torch.jit.trace(network, X[:2]),
    "frozen": lambda network: torch.jit.freeze(torch.jit.script(network)),
    "compiled": compiled,
    "exported": exported,
    "data-parallel": lambda network: nn.DataParallel(network).eval(),
    "hooked": hooked,
    "sequential": lambda network: nn.Sequential(network).eval(),
    "functional": lambda network: network.requires_grad_(False),
}


@pytest.mark.parametrize("name", MODELS)
def test_forms_of_a_model_change_nothing(name, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        assert (
            records(
                result(
                    lambda network: MODELS[name](network).eval() if name == "data-parallel" else MODELS[name](network)
                )
            )
            == expected
        )


def test_threads_and_event_loops_change_nothing(expected):
    found = {}
    threads = [threading.Thread(target=lambda key=key: found.update({key: records(result())})) for key in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def inside_a_loop():
        return records(result())

    assert [*found.values(), asyncio.run(inside_a_loop())] == 3 * [expected]


def test_the_model_is_called_with_the_defaults_of_its_caller(expected):
    def wide(network):
        model = UsesDefaults().double()
        model.load_state_dict(network.state_dict())
        return model

    with default_dtype():
        found = result(wide)
    assert [row["success"] for row in records(found)] == [row["success"] for row in expected]


def test_weights_of_inference_mode_and_programs_get_one_sentence():
    with torch.inference_mode():
        model = Network()
    with pytest.raises(BadModel, match="inference_mode"):
        result(lambda _: model)
    program = torch.export.export(Network(), (X,))
    with pytest.raises(BadModel, match=r"program\.module\(\)"):
        result(lambda _: program)


def test_a_profiler_in_pure_python_is_set_again(expected):
    found = []
    gc.disable()  # a callback of another library in the collector would be profiled too, and fails
    try:
        profile.Profile().runcall(lambda: found.append(result()))
    finally:
        gc.enable()
    assert records(found[0]) == expected
