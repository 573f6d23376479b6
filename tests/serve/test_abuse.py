"""Clients that are slow, greedy, malicious or gone take nothing from the others."""

import asyncio
import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
import time

import httpx2
import pytest
import torch
from torch import nn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from robustassay.cli import main
from robustassay.errors import BadRequest
from robustassay.serve.batcher import Batcher
from robustassay.serve.clients import client_of
from robustassay.serve.connections import ConnectionTable
from robustassay.serve.fair_lock import FairLock
from robustassay.serve.http_error import HttpError
from robustassay.serve.limits import Limits, connections_for_descriptors
from robustassay.serve.parser_process import ParserProcess
from robustassay.serve.server import running, serve
from robustassay.serve.tensor_request import parse
from tests.support.services import SHAPE, Tiny, dataset, file_of, service_config

PNG = file_of(dataset(1).images([0])[0])
HEAD = b"POST /classify HTTP/1.1\r\nHost: x\r\n"


def client_at(address):
    return httpx2.Client(base_url=address, timeout=60)


def infer(client, n, **headers):
    data = {"name": "images", "shape": [n, *SHAPE], "datatype": "UINT8", "data": [7] * (n * 192)}
    return client.post("/v2/models/model/infer", json={"inputs": [data]}, headers=headers)


@pytest.fixture
def connect():
    """A function that opens a connection and sends bytes; the test's end closes it."""
    with contextlib.ExitStack() as opened:

        def connect(address, sent=b"", receive_buffer=None):
            host, port = address.removeprefix("http://").split(":")
            connection = opened.enter_context(socket.socket())
            if receive_buffer:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            connection.settimeout(10)
            connection.connect((host, int(port)))
            connection.sendall(sent)
            return connection

        yield connect


def read_to_end(connection):
    """All bytes until the server closes the connection."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            found += part
    return found


@pytest.fixture(params=[HttpToolsProtocol, H11Protocol], ids=["httptools", "h11"])
def parser(request, monkeypatch):
    """Each of the two HTTP parsers of uvicorn."""
    monkeypatch.setattr("robustassay.serve.guarded_protocol.AutoHTTPProtocol", request.param)


class Blocked(nn.Module):
    """Waits in its passes until `go` is set, and counts their images."""

    def __init__(self):
        super().__init__()
        self.inner, self.begun, self.go, self.images = Tiny(), threading.Event(), threading.Event(), 0

    def forward(self, x):
        self.begun.set()
        self.go.wait(50)
        self.images += len(x)
        return self.inner(x)


# ---------------------------------------------------------------- who a client is, and its rate


def test_a_forwarded_address_is_no_way_around_the_rate_limit():
    with running(Tiny(), service_config(per_second=1)) as address, client_at(address) as client:
        found = [
            client.post("/classify", content=PNG, headers={"X-Forwarded-For": f"10.0.0.{number}"}).status_code
            for number in range(3)
        ]
    assert found == [200, 429, 429]


def test_a_trusted_proxy_names_the_clients():
    config = service_config(per_second=1, trusted_proxy="127.0.0.1")
    with running(Tiny(), config) as address, client_at(address) as client:
        found = [
            client.post("/classify", content=PNG, headers={"X-Forwarded-For": f"6.6.6.6, 10.0.0.{number}"}).status_code
            for number in (1, 2, 1)
        ]
    assert found == [200, 200, 429]
    with pytest.raises(BadRequest, match="trusted proxy"):
        service_config(trusted_proxy="*")


def test_a_client_is_an_ipv4_address_or_an_ipv6_network():
    assert client_of("10.0.0.1") == client_of("::ffff:10.0.0.1") == "10.0.0.1"
    assert client_of("2001:db8::1") == client_of("2001:db8::ffff:2") != client_of("2001:db8:0:1::1")
    assert client_of("x" * 60_000) == client_of(None) == "unknown"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere only 127.0.0.1 can be used at once")
def test_the_addresses_of_this_machine_share_a_rate_limit():
    with running(Tiny(), service_config(per_second=1)) as address:
        found = []
        for number in (1, 2, 3):
            transport = httpx2.HTTPTransport(local_address=f"127.0.0.{number}")
            with httpx2.Client(base_url=address, timeout=60, transport=transport) as client:
                found.append(client.post("/classify", content=PNG).status_code)
    assert found == [200, 429, 429]


def test_the_rate_limit_counts_images():
    with running(Tiny(), service_config(per_second=4)) as address, client_at(address) as client:
        assert infer(client, 4).status_code == 200
        assert infer(client, 4).status_code == 429
        too_many = infer(client, 5)
    assert too_many.status_code in (413, 429)


def test_a_batch_above_the_bucket_is_told_how_many_images_may_come():
    with running(Tiny(), service_config(per_second=4)) as address, client_at(address) as client:
        refused = infer(client, 5)
    assert refused.status_code == 413
    assert "4 images" in refused.json()["error"]


# ---------------------------------------------------------------- slow clients


@pytest.mark.usefixtures("parser")
def test_an_unfinished_header_has_a_deadline(connect):
    limits = Limits(header_seconds=0.3)
    with running(Tiny(), service_config(limits=limits)) as address:
        silent, slow = connect(address), connect(address, HEAD)
        started = time.monotonic()
        for _ in range(4):
            time.sleep(0.05)
            slow.sendall(b"X: y\r\n")  # a byte now and then does not help
        assert read_to_end(silent) == read_to_end(slow) == b""
        assert time.monotonic() - started < 5


@pytest.mark.usefixtures("parser")
def test_an_unfinished_body_has_a_deadline(connect):
    limits = Limits(body_seconds=0.3)
    with running(Tiny(), service_config(limits=limits)) as address:
        slow = connect(address, HEAD + b"Content-Length: 100\r\n\r\n")
        for _ in range(3):
            time.sleep(0.05)
            slow.sendall(b"x")
        assert read_to_end(slow).startswith(b"HTTP/1.1 408")


@pytest.mark.usefixtures("parser")
def test_the_next_header_of_a_connection_has_a_deadline_too(connect, monkeypatch):
    monkeypatch.setattr("robustassay.serve.guarded_protocol.KEEP_ALIVE_SECONDS", 0.1)
    with running(Tiny(), service_config(limits=Limits(header_seconds=0.3))) as address:
        slow = connect(address, b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n" + HEAD)
        started = time.monotonic()
        answer = read_to_end(slow)
        assert answer.count(b"HTTP/1.1 200") == 1
        assert time.monotonic() - started < 5


@pytest.mark.usefixtures("parser")
def test_a_response_that_nobody_reads_has_a_deadline(connect):
    labels = tuple(mark * 300_000 for mark in "abcd")
    config = service_config(labels=labels, limits=Limits(response_seconds=0.2))
    with running(Tiny(), config) as address:
        whole = HEAD + b"Content-Length: %d\r\n\r\n" % len(PNG) + PNG
        deaf = connect(address, whole * 8, receive_buffer=4096)
        time.sleep(0.6)
        assert len(read_to_end(deaf)) < 8 * 4 * 300_000


@pytest.mark.usefixtures("parser")
def test_an_endless_header_is_cut_off(connect):
    with running(Tiny(), service_config()) as address:
        talker = connect(address, HEAD)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            talker.sendall((b"X: " + b"y" * 8000 + b"\r\n") * 2000)


def test_an_endless_header_behind_a_request_that_is_worked_on_is_cut_off(connect):
    model = Blocked()
    with running(model, service_config()) as address:
        talker = connect(address, HEAD + b"Content-Length: %d\r\n\r\n" % len(PNG) + PNG)
        try:
            assert model.begun.wait(10)
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                talker.sendall(HEAD + (b"X: " + b"y" * 8000 + b"\r\n") * 5000)
        finally:
            model.go.set()


def test_thousands_of_pipelined_requests_are_cut_off(connect):
    with running(Tiny(), service_config()) as address:
        flood = connect(address)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            flood.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n" * 20_000)
        assert read_to_end(flood).count(b"200 OK") < 2000


# ---------------------------------------------------------------- many connections

SERVICE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from robustassay.serve.server import running
from tests.support.services import Tiny, service_config
with running(Tiny(), service_config()) as address:
    print(address, flush=True)
    sys.stdin.read()
"""


def test_400_half_open_connections_at_256_descriptors_lock_nobody_out(connect):
    command = [sys.executable, "-c", SERVICE]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as service:
        assert service.stdout is not None
        address = service.stdout.readline().strip()
        for _ in range(400):
            connect(address, HEAD)
        with httpx2.Client(base_url=address, timeout=5) as client:
            found = [client.post("/classify", content=PNG).status_code for _ in range(3)]
        _, complaints = service.communicate("")
    assert found == [200, 200, 200]
    assert complaints == ""


def test_the_connection_limit_follows_from_the_descriptors(monkeypatch):
    for allowed, connections in ((256, 96), (1024, 480), (10**6, 2048), (16, 2)):
        monkeypatch.setattr("resource.getrlimit", lambda kind, allowed=allowed: (allowed, allowed))
        assert connections_for_descriptors() == connections
        assert 2 * connections + 64 <= allowed or allowed == 16


class FakeConnection:
    def __init__(self, client, waiting_since):
        self.client, self.waiting_since, self.aborted = client, waiting_since, False

    def abort(self):
        self.aborted = True


def test_a_full_table_closes_the_longest_waiting_connection_of_the_client_with_most():
    table = ConnectionTable(Limits(connections=6))
    lone = FakeConnection("b", 0.0)
    many = [FakeConnection("a", 3.0), FakeConnection("a", 1.0), FakeConnection("a", None)]
    others = [FakeConnection("c", 0.0), FakeConnection("d", 0.0)]
    assert all(table.admit(one) for one in (lone, *many, *others))
    assert table.admit(FakeConnection("e", 9.0))
    assert [one.aborted for one in many] == [False, True, False]
    assert not lone.aborted


def test_a_client_may_hold_half_of_the_connections_and_a_proxy_all():
    table = ConnectionTable(Limits(connections=4), trusted_proxy="10.0.0.9")
    busy = [FakeConnection("a", None) for _ in range(2)]
    assert all(table.admit(one) for one in busy)
    assert not table.admit(FakeConnection("a", 0.0))  # both are being answered
    table.remove(busy[0])
    assert table.admit(FakeConnection("a", 0.0))
    table = ConnectionTable(Limits(connections=4), trusted_proxy="10.0.0.0/24")
    assert all(table.admit(FakeConnection("10.0.0.9", None)) for _ in range(4))
    assert not table.admit(FakeConnection("b", 0.0))
    table = ConnectionTable(Limits(connections=4), trusted_proxy="2001:db8::1")
    assert all(table.admit(FakeConnection(client_of("2001:db8::1"), None)) for _ in range(4))


# ---------------------------------------------------------------- memory


def test_large_bodies_share_a_bounded_memory_and_small_ones_always_pass():
    blocked, limits = Blocked(), Limits(held_bytes=1 << 20)
    with running(blocked, service_config(limits=limits)) as address, client_at(address) as client:
        statuses: list[int] = []
        threads = [
            threading.Thread(target=lambda: statuses.append(infer(client, 800).status_code))  # 307 kB each
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 20
        while statuses.count(503) < 2 and time.monotonic() < deadline:  # a client may hold a quarter: one body
            time.sleep(0.01)
        refused = infer(client, 800)
        small = threading.Thread(target=lambda: statuses.append(client.post("/classify", content=PNG).status_code))
        small.start()
        blocked.go.set()
        for thread in (*threads, small):
            thread.join()
        assert sorted(statuses) == [200, 200, 503, 503]
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert infer(client, 800).status_code == 200  # what was answered is no longer held


# ---------------------------------------------------------------- clients that leave


@pytest.mark.usefixtures("parser")
def test_a_client_that_leaves_causes_no_traceback_and_no_work(connect, capfd):
    blocked = Blocked()
    with running(blocked, service_config()) as address, client_at(address) as client:
        connect(address, HEAD + b"Content-Length: 100\r\n\r\nx").close()  # in its body
        waiting = threading.Thread(target=client.post, args=("/classify",), kwargs={"content": PNG})
        waiting.start()
        assert blocked.begun.wait(20)
        whole = HEAD + b"Content-Length: %d\r\n\r\n" % len(PNG) + PNG
        gone = [connect(address, whole) for _ in range(5)]  # they wait for the pass to end

        def figure(pattern):
            found = re.search(pattern, client.get("/metrics").text)
            return int(found[1]) if found else 0

        deadline = time.monotonic() + 20
        while figure(r"assay_images_waiting (\d+)") < 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        for one in gone:
            one.close()
        while figure(r'status="499"} (\d+)') < 6 and time.monotonic() < deadline:
            time.sleep(0.01)
        blocked.go.set()
        waiting.join()
        assert client.post("/classify", content=PNG).status_code == 200
        assert figure(r"assay_images_total (\d+)") == 2
        assert figure(r"assay_images_waiting (\d+)") == 0
    captured = capfd.readouterr()
    assert captured.err + captured.out == ""


# ---------------------------------------------------------------- large batches


class Passes:
    """A model that notes the images of each pass: their first pixel says whose they are."""

    def __init__(self, seconds):
        self.seconds, self.seen = seconds, []

    def logits(self, x):
        time.sleep(self.seconds)
        self.seen.append(x[:, 0, 0, 0].tolist())
        return x[:, :, 0, 0]


def run_batcher(model, story):
    async def whole():
        batcher = Batcher(model, 64)
        running = asyncio.create_task(batcher.run())
        try:
            return await asyncio.wait_for(story(batcher), 30)
        finally:
            running.cancel()

    return asyncio.run(whole())


def images(mark, n):
    return torch.full((n, *SHAPE), float(mark))


def test_a_small_request_does_not_wait_for_a_large_one():
    model = Passes(0.005)

    async def story(batcher):
        await batcher.logits(images(0, 1), "a")  # the first pass measures the model
        large = asyncio.create_task(batcher.logits(images(1, 200), "a"))
        await asyncio.sleep(0)
        small = await batcher.logits(images(2, 1), "a")
        assert not large.done()
        assert torch.equal(small, images(2, 1)[:, :, 0, 0])
        assert torch.equal(await large, images(1, 200)[:, :, 0, 0])

    run_batcher(model, story)
    assert 2.0 in model.seen[1] + model.seen[2]
    assert max(map(len, model.seen)) < 64


def test_a_large_request_alone_fills_its_passes():
    model = Passes(0.005)

    async def story(batcher):
        await batcher.logits(images(1, 100), "a")
        await batcher.logits(images(1, 100), "a")

    run_batcher(model, story)
    assert [len(seen) for seen in model.seen] == [64, 36, 64, 36]


def test_clients_take_turns_in_the_passes():
    model = Passes(0.005)

    async def story(batcher):
        await batcher.logits(images(0, 1), "a")
        flood = [asyncio.create_task(batcher.logits(images(1, 1), "a")) for _ in range(100)]
        await asyncio.sleep(0)
        await batcher.logits(images(2, 1), "b")
        assert not all(one.done() for one in flood)
        await asyncio.gather(*flood)

    run_batcher(model, story)
    assert 2.0 in model.seen[1] + model.seen[2]


def test_one_client_does_not_fill_the_queue_for_the_others():
    async def story(batcher):
        flood = [asyncio.create_task(batcher.logits(images(1, 8), "a")) for _ in range(1200)]
        await asyncio.sleep(0)
        assert torch.equal(await batcher.logits(images(2, 8), "b"), images(2, 8)[:, :, 0, 0])
        for task in flood:
            task.cancel()
        refused = await asyncio.gather(*flood, return_exceptions=True)
        assert sum(isinstance(one, HttpError) for one in refused) > 900

    run_batcher(Passes(0.005), story)


def test_the_parser_imports_nothing_from_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "numpy.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    parser = ParserProcess(SHAPE, 10)
    try:
        with pytest.raises(HttpError, match="not JSON"):
            parser.parse(b"x")
    finally:
        parser.stop()
    assert not (tmp_path / "trace").exists()


def test_a_lock_goes_from_client_to_client():
    order = []

    async def story():
        lock = FairLock()

        async def one(client):
            async with lock.turn(client):
                order.append(client)
                await asyncio.sleep(0)

        tasks = [asyncio.create_task(one(client)) for client in "aaabbc"]
        await asyncio.sleep(0)
        tasks[2].cancel()  # the third of a
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(story())
    assert "".join(order) == "abcab"


def test_a_large_request_is_parsed_in_another_process_with_the_same_bits():
    x = dataset(300).images(slice(0, 300))
    data = {"name": "images", "shape": [300, *SHAPE], "datatype": "FP32", "data": x.tolist()}
    with running(Tiny(), service_config()) as address, client_at(address) as client:
        answer = client.post("/v2/models/model/infer", json={"inputs": [data], "id": "é"})
        bad = client.post("/v2/models/model/infer", json={"inputs": [{**data, "name": "x"}]})
    assert answer.json()["id"] == "é"
    logits = torch.tensor(answer.json()["outputs"][0]["data"]).view(300, 4)
    assert torch.equal(logits.argmax(1), Tiny()(x).argmax(1))
    assert torch.allclose(logits, Tiny()(x), atol=1e-5)
    assert bad.status_code == 400
    assert "The only input is 'images'" in bad.json()["error"]


def test_a_parser_that_died_is_started_again(monkeypatch):
    from robustassay.serve.parser_process import ParserProcess

    parser = ParserProcess(SHAPE, 100)
    body = json.dumps({"inputs": [{"name": "images", "shape": [1, *SHAPE], "datatype": "UINT8", "data": [0] * 192}]})
    try:
        assert parser.parse(body.encode())[0].shape == (1, *SHAPE)
        assert parser._process is not None
        parser._process.kill()
        parser._process.wait()
        with pytest.raises(HttpError, match="try again"):
            parser.parse(body.encode())
        assert parser.parse(body.encode())[1] is None
    finally:
        parser.stop()


# ---------------------------------------------------------------- answers and addresses


def test_half_a_surrogate_pair_is_a_bad_request():
    with running(Tiny(), service_config()) as address, client_at(address) as client:
        tensor = {"name": "images", "shape": [1, *SHAPE], "datatype": "UINT8", "data": [7] * 192}
        body = json.dumps({"inputs": [tensor], "id": "\ud800"}).encode()
        answer = client.post("/v2/models/model/infer", content=body)
    assert answer.status_code == 400
    assert "Unicode" in answer.json()["error"]


def test_a_shape_of_thousands_of_digits_is_a_bad_request():
    tensor = {"name": "images", "shape": [10**4299, *SHAPE], "datatype": "UINT8", "data": []}
    with pytest.raises(HttpError, match="100 images"):
        parse(json.dumps({"inputs": [tensor]}).encode(), SHAPE, 100)


def test_metrics_need_the_key():
    with running(Tiny(), service_config(api_key="s3cret")) as address, client_at(address) as client:
        assert client.get("/metrics").status_code == 401
        assert client.get("/metrics", headers={"X-API-Key": "s3cret"}).status_code == 200
        assert client.get("/v2/health/live").status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1"])
def test_without_a_key_only_this_machine_can_connect(host):
    with pytest.raises(BadRequest, match="--key-from"):
        serve(Tiny(), service_config(), host, 0, torch.device("cpu"), lambda address: None)


def test_the_command_refuses_an_open_address_without_a_key(capsys):
    assert main(["serve", "resnet20-natural", "--host", "0.0.0.0", "--port", "0"]) == 2
    assert "--key-from" in capsys.readouterr().err
