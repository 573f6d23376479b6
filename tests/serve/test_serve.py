"""A served model gives the same outputs as in process, obeys its config, and survives every request."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import nn

from robustassay.cli import main
from robustassay.errors import BadModel, BadRequest
from robustassay.serve import Faults, ServiceConfig
from robustassay.serve.http_error import HttpError
from robustassay.serve.images import decode
from robustassay.serve.rate_limiter import RateLimiter
from robustassay.serve.server import count_classes, running
from robustassay.serve.tensor_request import parse
from tests.support.services import NAMES, SHAPE, Tiny, bomb, dataset, file_of, save, service_config


def client_of(address):
    """A client with a long timeout: server, model and clients share this process."""
    return httpx2.Client(base_url=address, timeout=60)


@pytest.fixture(scope="module")
def plain():
    with running(Tiny(), service_config()) as address, client_of(address) as client:
        yield client


def tensor(x, datatype="UINT8", **other):
    values = (x * 255).round().int() if datatype == "UINT8" else x
    written = {"name": "images", "shape": list(x.shape), "datatype": datatype, "data": values.flatten().tolist()}
    return {"inputs": [{**written, **other}]}


def ask(client, x, **more):
    return client.post("/v2/models/model/infer", json=tensor(x, **more))


# ---------------------------------------------------------------- answers


def test_both_protocols_give_the_bits_of_the_model(plain):
    x = dataset(6).images(slice(0, 6))
    logits = Tiny()(x)
    output = ask(plain, x).json()["outputs"][0]
    assert (output["name"], output["datatype"], output["shape"]) == ("logits", "FP32", [6, 4])
    assert torch.equal(torch.tensor(output["data"]).view(6, 4), logits)
    assert torch.equal(torch.tensor(ask(plain, x, datatype="FP32").json()["outputs"][0]["data"]).view(6, 4), logits)
    for image, row in zip(x, logits, strict=True):
        shown = plain.post("/classify", content=file_of(image)).json()["predictions"]
        assert [one["label"] for one in shown] == [NAMES[index] for index in row.argsort(descending=True)]
        expected = row.double().softmax(0).sort(descending=True).values
        assert torch.allclose(torch.tensor([one["confidence"] for one in shown], dtype=torch.float64), expected)


def test_a_jpeg_is_read_as_its_decoder_reads_it(plain):
    content = file_of(dataset(1).images([0])[0], "JPEG")
    seen = decode(content, SHAPE)
    shown = plain.post("/classify", content=content).json()["predictions"]
    assert shown[0]["label"] == NAMES[int(Tiny()(seen[None]).argmax())]
    assert not torch.equal(seen, dataset(1).images([0])[0])  # lossy, so it is a test of the JPEG path


def test_a_service_reveals_only_what_its_config_allows():
    x = dataset(3).images(slice(0, 3))
    settings = {"top_k": 2, "decimals": 1, "labels": ("a", "b", "c", "d")}
    with running(Tiny(), service_config(**settings)) as address, client_of(address) as client:
        shown = client.post("/classify", content=file_of(x[0])).json()["predictions"]
        assert len(shown) == 2
        assert all(one["label"] in "abcd" and one["confidence"] == round(one["confidence"], 1) for one in shown)
        labels, confidences = ask(client, x).json()["outputs"]
        assert labels["shape"] == confidences["shape"] == [3, 2]
        assert labels["datatype"] == "BYTES"
    with running(Tiny(), service_config(label_only=True)) as address, client_of(address) as client:
        assert list(client.post("/classify", content=file_of(x[0])).json()["predictions"][0]) == ["label"]
        (labels,) = ask(client, x).json()["outputs"]
        assert labels["data"] == [NAMES[index] for index in Tiny()(x).argmax(1)]
        described = client.get("/v2/models/model").json()
        assert [one["name"] for one in described["outputs"]] == ["labels"]


class Slow(nn.Module):
    """Blocks its first pass until `go` is set, so that requests queue behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.begun, self.go = Tiny(), threading.Event(), threading.Event()
        self.sizes: list[int] = []

    def forward(self, x):
        self.begun.set()
        self.go.wait(50)
        self.sizes.append(len(x))
        return self.inner(x)


def test_waiting_requests_share_a_forward_pass_and_get_their_own_predictions():
    x, slow = dataset(40).images(slice(0, 40)), Slow()
    with running(slow, service_config(max_batch=16)) as address, client_of(address) as client:
        with ThreadPoolExecutor(40) as pool:
            waiting = [pool.submit(client.post, "/classify", content=file_of(x[0]))]
            assert slow.begun.wait(50)  # with one image; later ones must wait
            waiting += [pool.submit(client.post, "/classify", content=file_of(image)) for image in x[1:]]
            deadline = time.monotonic() + 45
            while "assay_images_waiting 39" not in client.get("/metrics").text and time.monotonic() < deadline:
                time.sleep(0.05)  # the server is a thread of this process
            slow.go.set()
            answers = [one.result().json()["predictions"][0] for one in waiting]
        figures = client.get("/metrics").text
    logits = Tiny()(x)
    assert [one["label"] for one in answers] == [NAMES[index] for index in logits.argmax(1)]
    expected = logits.double().softmax(1).amax(1).tolist()
    assert [one["confidence"] for one in answers] == pytest.approx(expected, abs=1e-12)
    assert slow.sizes == [8, 16, 16, 8]  # 1, 16, 16 and 7 images, in whole lanes
    assert "assay_images_total 40" in figures
    assert "assay_forward_passes_total 4" in figures


def test_health_metrics_and_metadata(plain):
    assert plain.get("/v2/health/ready").status_code == plain.get("/v2/health/live").status_code == 200
    assert plain.get("/v2/models/model/ready").json()["ready"] is True
    assert plain.get("/v2/models/model").json()["inputs"][0]["shape"] == [-1, *SHAPE]
    before = plain.get("/metrics").text
    plain.post("/classify", content=b"")
    after = plain.get("/metrics").text

    def count(text):
        found = re.search(r'assay_requests_total{route="/classify",status="400"} (\d+)', text)
        return int(found[1]) if found else 0

    assert count(after) == count(before) + 1
    for line in after.splitlines():
        assert re.fullmatch(r'# TYPE \w+ \w+|\w+({(\w+="[^"]*",?)+})? [0-9.e+-]+', line), line


# ---------------------------------------------------------------- authentication and rate limits


def test_a_service_with_a_key_refuses_requests_without_it():
    content = file_of(dataset(1).images([0])[0])
    with running(Tiny(), service_config(api_key="s3cret")) as address, client_of(address) as client:
        assert client.post("/classify", content=content).status_code == 401
        assert client.post("/classify", content=content, headers={"X-API-Key": "wrong"}).status_code == 401
        assert client.post("/classify", content=content, headers={"X-API-Key": "s3cret"}).status_code == 200
        assert client.post("/classify", content=content, headers={"Authorization": "Bearer s3cret"}).status_code == 200
        assert client.post("/v2/models/model/infer", json={}).status_code == 401
        assert client.get("/v2/health/ready").status_code == 200
        assert "s3cret" not in client.get("/metrics").text + client.get("/openapi.json").text
    assert "s3cret" not in repr(service_config(api_key="s3cret"))


def test_each_client_has_a_bucket_of_its_own():
    now = [0.0]
    limiter = RateLimiter(2, lambda: now[0])
    for _ in range(2):
        limiter.check("a")
    with pytest.raises(HttpError, match=r"wait 0\.50 s") as refused:
        limiter.check("a")
    assert refused.value.status == 429
    limiter.check("b")
    now[0] = 0.49
    with pytest.raises(HttpError):
        limiter.check("a")
    now[0] = 0.51
    limiter.check("a")


def test_a_client_over_its_rate_limit_gets_429_and_retry_after():
    content = file_of(dataset(1).images([0])[0])
    with running(Tiny(), service_config(per_second=1)) as address, client_of(address) as client:
        answers = [client.post("/classify", content=content) for _ in range(3)]
    assert answers[0].status_code == 200
    assert answers[-1].status_code == 429
    assert answers[-1].headers["retry-after"] == "1"


# ---------------------------------------------------------------- bad requests

GREY = Image.new("L", (8, 8))
VALID_PNG = save(Image.new("RGB", (8, 8), (9, 80, 200)))
BAD_FILES = {
    "empty": (b"", 400),
    "text": (b"cat", 400),
    "truncated PNG": (VALID_PNG[:-20], 400),
    "truncated JPEG": (save(Image.new("RGB", (8, 8)), "JPEG")[:-200], 400),
    "another format": (save(GREY, "GIF"), 400),
    "decompression bomb": (bomb(30_000), 400),
    "large but no bomb": (bomb(2_000), 422),
    "too wide": (save(Image.new("RGB", (9, 8))), 422),
    "16 bits": (save(Image.new("I;16", (8, 8))), 422),
    "transparent": (save(Image.new("RGBA", (8, 8))), 422),
    "too many bytes": (bytes(5 << 20), 413),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_gets_an_error_message(plain, name):
    content, status = BAD_FILES[name]
    answer = plain.post("/classify", content=content)
    assert answer.status_code == status
    assert re.fullmatch(r"[A-Z].*\.", answer.json()["error"])
    assert "Traceback" not in answer.text
    assert plain.post("/classify", content=VALID_PNG).status_code == 200


@pytest.mark.parametrize("mode", ["L", "P", "1"])
def test_grey_and_palette_files_are_read(plain, mode):
    assert plain.post("/classify", content=save(Image.new(mode, (8, 8)))).status_code == 200


ONE = torch.zeros(1, *SHAPE)
BAD_REQUESTS = {
    "no JSON": (b"{", 400),
    "a list": ([], 400),
    "no input": ({"inputs": []}, 400),
    "two inputs": ({"inputs": tensor(ONE)["inputs"] * 2}, 400),
    "another input": (tensor(ONE, name="x"), 400),
    "wrong dtype": ({"inputs": [{**tensor(ONE)["inputs"][0], "datatype": "INT64"}]}, 400),
    "no shape": (tensor(ONE, shape=None), 400),
    "wrong size": (tensor(torch.zeros(1, 3, 9, 8)), 422),
    "no image": (tensor(torch.zeros(0, *SHAPE)), 422),
    "too few values": (tensor(ONE, data=[0]), 400),
    "words": (tensor(ONE, data=["0"] * 192), 400),
    "fractions of bytes": (tensor(ONE, data=[0.5] * 192), 400),
    "out of range": (tensor(ONE, data=[256] * 192), 400),
    "not a number": (json.dumps(tensor(ONE, data=[float("nan")] * 192)).encode(), 400),
    "a huge number": (json.dumps(tensor(ONE, data=[10**400] + [0] * 191)).encode(), 400),
    "a number for an id": ({**tensor(ONE), "id": 3}, 400),
    "a deep nest": (b"[" * 100_000, 400),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_a_bad_inference_request_gets_an_error_message(plain, name):
    request, status = BAD_REQUESTS[name]
    content = request if isinstance(request, bytes) else json.dumps(request).encode()
    answer = plain.post("/v2/models/model/infer", content=content)
    assert answer.status_code == status
    assert re.fullmatch(r"[A-Z].*\.", answer.json()["error"])


def test_unknown_routes_methods_and_models_get_an_error_message(plain):
    assert plain.get("/nowhere").status_code == 404
    assert plain.get("/classify").status_code == 405
    assert "ask for 'model'" in plain.post("/v2/models/other/infer", json=tensor(ONE)).json()["error"]
    assert plain.post("/classify", files={"file": VALID_PNG}).status_code == 415
    nested = tensor(ONE, data=ONE.int().tolist())
    assert plain.post("/v2/models/model/infer", json={**nested, "id": "7"}).json()["id"] == "7"


def status_of(read, content):
    try:
        read(content)
    except HttpError as error:
        return error.status
    return 200


@given(st.binary(max_size=300), st.integers(0, len(VALID_PNG) - 1), st.integers(0, 255))
@settings(max_examples=200, deadline=None)
def test_arbitrary_bytes_raise_only_http_errors(noise, place, value):
    mutated = VALID_PNG[:place] + bytes([value]) + VALID_PNG[place + 1 :] + noise
    for content in (noise, b"\x89PNG\r\n\x1a\n" + noise, b"\xff\xd8\xff" + noise, mutated):
        assert 200 <= status_of(lambda body: decode(body, SHAPE), content) < 500
        assert 400 <= status_of(lambda body: parse(body, SHAPE, 100), content) < 500


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["name", "shape", "datatype", "data"]), JSON), JSON)
@settings(max_examples=200, deadline=None)
def test_arbitrary_json_raises_only_http_errors(fields, number):
    request = tensor(ONE)
    request["inputs"][0].update(fields)
    content = json.dumps({**request, "id": number}).encode()
    assert 200 <= status_of(lambda body: parse(body, SHAPE, 100), content) < 500


def test_a_fuzzed_api_gives_no_server_error(plain):
    import schemathesis
    from schemathesis.checks import not_a_server_error

    schema = schemathesis.openapi.from_url(f"{plain.base_url}/openapi.json")
    statuses: Counter[int] = Counter()

    def once(case):
        if case.path.endswith("/infer"):
            case.path_parameters["name"] = "model"
        answer = case.call_and_validate(base_url=str(plain.base_url), checks=[not_a_server_error])
        statuses[answer.status_code] += 1

    rules = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    for operation in schema.get_all_operations():
        strategy = operation.ok().as_strategy()  # type: ignore[union-attr]
        rules(given(strategy)(once))()
    assert statuses.total() > 50
    assert statuses[400] > 10  # it reached the code that reads bodies


class Broken(nn.Module):
    def forward(self, x):
        raise ValueError("no such weight")


def test_a_failing_model_gives_500_and_the_service_goes_on():
    with running(Broken(), service_config()) as address, client_of(address) as client:
        for _ in range(2):
            answer = client.post("/classify", content=VALID_PNG)
            assert answer.status_code == 500
            assert answer.json()["error"].startswith("The model failed")
        assert client.get("/v2/health/ready").status_code == 200


# ---------------------------------------------------------------- config, faults, command line


def test_faults_have_their_configured_rates():
    faults = Faults.parse("errors=0.2,bursts=0.05,burst_length=3,seed=1")
    with running(Tiny(), service_config(faults=faults)) as address, client_of(address) as client:
        found = [client.post("/classify", content=VALID_PNG).status_code for _ in range(200)]
    assert set(found) == {200, 429, 500}
    assert 20 <= found.count(500) <= 60
    assert found.count(429) % 3 == 0 or found[-1] == 429
    assert 9 <= found.count(429) <= 60


@pytest.mark.parametrize("text", ["error=0.1", "errors=2", "errors", "latency=-1"])
def test_invalid_faults_are_refused(text):
    with pytest.raises(BadRequest):
        Faults.parse(text)


@pytest.mark.parametrize(
    "settings",
    [{"top_k": 5}, {"top_k": 0}, {"decimals": -1}, {"labels": ("a",) * 4}, {"per_second": 0}, {"shape": (2, 8, 8)}],
)
def test_invalid_configs_are_refused(settings):
    with pytest.raises(BadRequest):
        service_config(**settings)


def test_classes_are_counted_and_a_wrong_size_is_an_error():
    assert count_classes(Tiny(), SHAPE, torch.device("cpu")) == 4
    with pytest.raises(BadModel, match="--shape"):
        count_classes(Tiny(), (3, 9, 9), torch.device("cpu"))


def test_a_port_in_use_is_one_clear_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BadRequest, match="--port"), running(Tiny(), service_config(), port=taken.getsockname()[1]):
            pass


def test_a_missing_extra_is_one_clear_error(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["serve", "resnet20-natural"]) == 2
    assert "robustassay[serve]" in capsys.readouterr().err


def test_the_command_serves_a_zoo_model_on_loopback_until_interrupted(tmp_path):
    (tmp_path / "names.txt").write_text("\n".join(f"class {index}" for index in range(10)))
    request = [sys.executable, "-m", "robustassay", "serve", "resnet20-natural", "--port", "0", "--key-from", "MY_KEY"]
    request += ["--labels", "names.txt", "--top-k", "3"]
    environment = {**os.environ, "MY_KEY": "abc", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(request, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        address = re.search(r"(http://127\.0\.0\.1:\d+)/classify", line)
        assert address, line
        picture = save(Image.new("RGB", (32, 32), (30, 120, 220)))
        answer = httpx2.post(f"{address[1]}/classify", content=picture, headers={"X-API-Key": "abc"}, timeout=60)
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=60)
    assert process.returncode in (0, 130), rest
    shown = answer.json()["predictions"]
    assert len(shown) == 3
    assert shown[0]["label"].startswith("class ")
    assert "Traceback" not in rest


def test_the_command_refuses_wrong_arguments(capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    (tmp_path / "few.txt").write_text("cat\ndog\n")
    assert main(["serve", "resnet20-natural", "--key-from", "NO_SUCH_KEY"]) == 2
    assert "NO_SUCH_KEY" in capsys.readouterr().err
    assert main(["serve", "resnet20-natural", "--labels", str(tmp_path / "few.txt")]) == 2
    assert "2 labels and the model 10 classes" in capsys.readouterr().err
    assert main(["serve", "resnet20-natural", "--shape", "32x32"]) == 2
    assert ServiceConfig.__dataclass_fields__["api_key"].repr is False
