"""Services that answer slowly, endlessly, in pieces or with nonsense, and secrets that they repeat."""

import contextlib
import gzip
import itertools
import json
import os
import signal
import threading
import time
import tracemalloc
import zlib

import pytest

import robustassay as ra
from robustassay.errors import Interrupted, ModelFailed
from robustassay.interrupt import graceful_interrupt
from robustassay.remote import Adapter, Service
from robustassay.remote.adapter import Limits
from tests.support.hostile_service import ANSWER, dripped, hostile, response
from tests.support.services import NAMES, dataset

SOON_S = 3.0
"""A second, and what a busy machine adds; the answers below take longer than that, or for ever."""

ENDLESS = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ASSAY_API_KEY", raising=False)


@pytest.fixture
def x():
    return dataset(1).images([0])


def open_at(address, folder, settings=None, **limits):
    """Open a service that is asked once, and gives up early."""
    chosen = Limits(**{"tries": 1, "timeout_s": 30.0, "max_backoff_s": 0.01, **limits})
    service = Service(Adapter(address, folder=str(folder), limits=chosen, **(settings or {})))
    service.learn_classes(NAMES)
    return service


def lines_of(folder):
    """Read the transcript, which must be plain ASCII."""
    return [json.loads(line) for line in (folder / "transcript.jsonl").read_text(encoding="ascii").splitlines()]


def one_sentence(raised):
    """Return a message that a terminal can show as it is."""
    said = str(raised.value)
    assert said.isprintable()
    assert len(said) < 600
    return said


# ---------------------------------------------------------------- answers that do not end


def endless_body():
    yield ENDLESS
    while True:
        yield b"1\r\n \r\n"
        time.sleep(0.01)


def endless_hints():
    while True:
        yield b"HTTP/1.1 100 Continue\r\n\r\n"
        time.sleep(0.01)


def silence():
    time.sleep(20)
    yield b""


SLOW = {
    "a dripped head": lambda: dripped(response(), 0.1),
    "a dripped body": lambda: itertools.chain([response()[:-20]], dripped(b"     " * 200)),
    "an endless body": endless_body,
    "endless hints": endless_hints,
    "no answer": silence,
}


@pytest.mark.parametrize("name", SLOW)
def test_a_request_ends_at_its_deadline_however_slowly_it_is_answered(name, tmp_path, x):
    with hostile(lambda number, request: SLOW[name]()) as at:
        service = open_at(at.address, tmp_path, timeout_s=0.3)
        started = time.monotonic()
        with pytest.raises(ModelFailed) as raised:
            service(x)
        assert time.monotonic() - started < SOON_S
    assert "no complete answer within 0.3 s" in one_sentence(raised)
    (line,) = lines_of(tmp_path)
    assert "no complete answer within 0.3 s" in line["outcome"]
    assert service.budget.sent == 1, "the image was sent, whatever came back"


def is_dripping(at, quick):
    """Wait until the service has begun an answer that takes a minute."""
    until = time.monotonic() + 20
    while len(at.requests) <= quick and time.monotonic() < until:
        time.sleep(0.01)


@pytest.fixture
def survives_sigterm():
    """Outside of an evaluation SIGTERM would end the tests themselves."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("survives_sigterm")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_a_slow_answer_within_seconds(number, tmp_path):
    """Eight quick answers open the service and probe it; the search then waits for a minute."""
    quick, sent_at = 8, []
    with hostile(lambda n, request: [response()] if n < quick else dripped(response(), 1)) as at:

        def interrupt():
            is_dripping(at, quick)
            sent_at.append(time.monotonic())
            os.kill(os.getpid(), number)

        service = open_at(at.address, tmp_path / "kept", timeout_s=60)
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(Interrupted, match="same command") as raised:
            ra.evaluate(service, dataset(2), ra.LInf(8 / 255), "square:steps=50", out=tmp_path / "run")
        assert time.monotonic() - sent_at[0] < SOON_S
        thread.join()
    one_sentence(raised)
    assert lines_of(tmp_path / "kept")[-1]["outcome"] == "interrupted"


def test_an_interrupt_before_the_run_ends_a_slow_answer_too(tmp_path, x):
    sent_at = []
    with hostile(lambda n, request: dripped(response(), 1)) as at:

        def interrupt():
            is_dripping(at, 0)
            sent_at.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        service = open_at(at.address, tmp_path, timeout_s=60)
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            service(x)
        assert time.monotonic() - sent_at[0] < SOON_S
        thread.join()


def test_no_request_is_sent_once_the_user_has_asked_to_stop(tmp_path, x):
    with hostile(lambda n, request: [response()]) as at:
        service = open_at(at.address, tmp_path)
        with graceful_interrupt() as stop:
            stop.asked = True
            with pytest.raises(Interrupted, match="same command"):
                service(x)
        assert at.requests == []
        assert service(x).argmax() == 0


# ---------------------------------------------------------------- answers that are too large


def packed(content, method):
    return {"gzip": lambda: gzip.compress(content, 9), "deflate": lambda: zlib.compress(content, 9)}[method]()


@pytest.mark.parametrize("status", ["200 OK", "500 Internal Server Error"])
def test_a_decompression_bomb_is_given_up_at_the_limit(status, tmp_path, x):
    bomb = packed(bytes(1 << 26), "gzip")
    with hostile(lambda n, request: [response(bomb, status, content_encoding="gzip")]) as at:
        service = open_at(at.address, tmp_path, max_response_bytes=1 << 20)
        tracemalloc.start()
        try:
            with pytest.raises(ModelFailed) as raised:
                service(x)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 1 << 24
    one_sentence(raised)
    (line,) = lines_of(tmp_path)
    assert "more than 1048576 bytes" in (line["outcome"] if status.startswith("200") else line["said"])


@pytest.mark.parametrize("encoding", ["deflate", "br", "zstd", "gzip, gzip", "compress"])
def test_only_the_encoding_that_was_asked_for_is_decoded(encoding, tmp_path, x):
    body = packed(ANSWER.encode(), "deflate")
    with hostile(lambda n, request: [response(body, content_encoding=encoding)]) as at:
        with pytest.raises(ModelFailed, match="encoding") as raised:
            open_at(at.address, tmp_path)(x)
        one_sentence(raised)
        assert b"accept-encoding: gzip\r\n" in at.requests[0].lower()


def test_a_compressed_answer_is_read(tmp_path, x):
    with hostile(lambda n, request: [response(packed(ANSWER.encode(), "gzip"), content_encoding="gzip")]) as at:
        assert open_at(at.address, tmp_path)(x).argmax() == 0


def test_a_body_longer_than_the_limit_is_not_read_to_its_end(tmp_path, x):
    written = []

    def endless(n, request):
        yield ENDLESS
        for _ in range(1000):
            written.append(1 << 16)
            yield b"10000\r\n" + b" " * (1 << 16) + b"\r\n"

    with hostile(endless) as at, pytest.raises(ModelFailed, match="more than 1000000 bytes"):
        open_at(at.address, tmp_path, max_response_bytes=1_000_000)(x)
    assert sum(written) < 32 << 20


def test_a_huge_head_is_refused(tmp_path, x):
    head = b"HTTP/1.1 200 OK\r\n" + b"".join(b"x-%d: %s\r\n" % (n, b"a" * 1000) for n in range(5000))
    with hostile(lambda n, request: [head + b"\r\n"]) as at, pytest.raises(ModelFailed) as raised:
        open_at(at.address, tmp_path)(x)
    one_sentence(raised)
    assert len(lines_of(tmp_path)) == 1


# ---------------------------------------------------------------- answers that make no sense


def scores(text):
    return f'{{"predictions": [{{"label": "red", "confidence": {text}}}]}}'


def label(text):
    return f'{{"predictions": [{{"label": {text}, "confidence": 0.5}}]}}'


NONSENSE = {
    "nothing": response(b""),
    "deep lists": response("[" * 100_000),
    "deep objects": response('{"predictions":' * 100_000),
    "a deep label": response(label("[" * 900 + "]" * 900)),
    "NaN": response(scores("NaN")),
    "infinity": response(scores("-Infinity")),
    "a large float": response(scores("1e400")),
    "a large integer": response(scores("1" + "0" * 400)),
    "an integer too large to read": response(scores("1" + "0" * 5000)),
    "a score that is text": response(scores('"\\u001b[2Jmuch"')),
    "a score that is long text": response(scores(json.dumps("9x" * 100_000))),
    "a long label": response(label(json.dumps("a" * 100_000))),
    "a label that is a list": response(label("[1]")),
    "not UTF-8": response(b'{"predictions": "\xff\xfe\xfd"}'),
    "half of UTF-16": response(b'\xff\xfe{"\x00'),
    "no such charset": response("[]", content_type="application/json; charset=klingon-8"),
    "bad gzip": response(b"this is no gzip", content_encoding="gzip"),
    "half a gzip": response(packed(ANSWER.encode(), "gzip")[:-9], content_encoding="gzip"),
    "two gzips": response(packed(b"{}", "gzip") * 2, content_encoding="gzip"),
    "no HTTP": b"\x1b[31mhello\r\n\r\n",
    "half a body": response()[:-30],
    "a status of four digits": b"HTTP/1.1 2000 OK\r\n\r\n",
    "a bad length": b"HTTP/1.1 200 OK\r\ncontent-length: 10e9\r\n\r\n",
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_one_sentence_and_one_line_of_the_transcript(name, tmp_path, x):
    with hostile(lambda n, request: [NONSENSE[name]]) as at, pytest.raises(ModelFailed) as raised:
        open_at(at.address, tmp_path)(x)
    assert "no result of this request was counted" in one_sentence(raised)
    (line,) = lines_of(tmp_path)
    assert len(json.dumps(line)) < 1500
    assert "answers" not in line


HIDDEN = "\x1b[2J\x1b]0;title\x07\u202egnp.exe\u2066\u200b\x9b31m\r\nassay: done"


@pytest.mark.parametrize("status", ["418 I'm a teapot", "503 Service Unavailable"])
@pytest.mark.parametrize("charset", ["utf-8", "klingon-8", "utf-7", "rot13", "hex"])
def test_what_a_service_says_is_escaped_before_it_is_printed(status, charset, tmp_path, x):
    answer = response(HIDDEN, status, content_type=f"text/plain; charset={charset}")
    with hostile(lambda n, request: [answer]) as at, pytest.raises(ModelFailed) as raised:
        open_at(at.address, tmp_path)(x)
    said = one_sentence(raised)
    if status.startswith("418"):
        assert "gnp.exe" in said
    assert "gnp.exe" in lines_of(tmp_path)[0]["said"]


def test_labels_are_escaped_before_anybody_sees_them(tmp_path, x):
    body = {"predictions": [{"label": HIDDEN + "\ud800", "confidence": 1.0}]}
    with hostile(lambda n, request: [response(json.dumps(body))]) as at:
        service = open_at(at.address, tmp_path)
        with pytest.raises(ModelFailed, match="no class of the data") as raised:
            service(x)
        one_sentence(raised)
        (answer,) = service.answers(x)
    assert answer.labels[0].isprintable()
    assert "gnp.exe" in answer.labels[0]
    assert lines_of(tmp_path)[0]["answers"][0]["labels"] == list(answer.labels)


def test_a_label_with_invisible_characters_still_means_what_the_adapter_says(tmp_path, x):
    name = "na\u200cme"
    body = {"predictions": [{"label": name, "confidence": 1.0}]}
    with hostile(lambda n, request: [response(json.dumps(body))]) as at:
        service = open_at(at.address, tmp_path, {"label_map": {name: "blue"}})
        assert service(x).argmax() == NAMES.index("blue")


# ---------------------------------------------------------------- redirects and cookies


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
def test_a_redirect_is_not_followed(status, tmp_path, x):
    with hostile(lambda n, request: [response()]) as other:
        with hostile(lambda n, request: [response("", status, location=other.address)]) as at:
            with pytest.raises(ModelFailed, match=status[:3]) as raised:
                open_at(at.address, tmp_path, {"headers": {"X-API-Key": "a-key-of-mine"}})(x)
            one_sentence(raised)
        assert other.requests == []


def test_cookies_of_a_service_are_not_kept(tmp_path, x):
    with hostile(lambda n, request: [response(set_cookie=f"c{n}={'x' * 3000}; Path=/")]) as at:
        service = open_at(at.address, tmp_path)
        for _ in range(3):
            service.ask_again(x)
        assert not any(b"\r\ncookie:" in request.lower() for request in at.requests)


# ---------------------------------------------------------------- caps


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
def test_no_more_images_are_sent_than_the_cap_allows_whatever_the_service_answers(status, tmp_path):
    x = dataset(20).images(slice(0, 20))
    with hostile(lambda n, request: [response("", status, retry_after="0")]) as at:
        service = open_at(at.address, tmp_path, tries=50, max_queries=60, concurrency=8)
        with pytest.raises(Interrupted, match="cap of 60 queries"):
            service(x)
        assert len(at.requests) == 60
    assert service.budget.sent == 60
    assert service.budget.charged == (0 if status.startswith("429") else 60)
    assert len(lines_of(tmp_path)) == 60


def test_the_cap_on_cost_counts_what_may_be_charged(tmp_path):
    x = dataset(4).images(slice(0, 4))
    script = itertools.cycle([response("", "429 Too Many Requests", retry_after="0"), response()])
    with hostile(lambda n, request: [next(script)]) as at:
        service = open_at(at.address, tmp_path, tries=9, cost_per_query=0.5, max_cost=1.5, concurrency=1)
        with pytest.raises(Interrupted, match=r"cap of 1\.5 on the cost"):
            service(x)
        assert len(at.requests) == 6
    assert (service.budget.sent, service.budget.charged, service.budget.cost) == (6, 3, 1.5)


def test_what_was_never_sent_is_not_counted(tmp_path, x):
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(hostile(lambda n, request: [])).address
    service = open_at(address, tmp_path, tries=3, max_queries=2)
    with pytest.raises(ModelFailed, match="3 times"):
        service(x)
    assert (service.budget.sent, service.budget.charged) == (0, 0)
