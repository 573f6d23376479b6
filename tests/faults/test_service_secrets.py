"""Secrets of a service: they are sent to it, and are found nowhere else, whatever it answers."""

import base64
import html
import json
import logging
from urllib.parse import quote

import pytest

import robustassay as ra
from robustassay.cli import main
from robustassay.errors import BadRequest, ModelFailed
from robustassay.evaluation.model_ref import ModelRef
from robustassay.remote import Adapter, Service
from robustassay.remote.adapter import Limits
from robustassay.remote.credentials import Credentials
from robustassay.remote.public_form import is_random, is_secret_name, public_address
from robustassay.remote.redaction import Redactor
from tests.support.hostile_service import hostile, response
from tests.support.services import NAMES, dataset

SECRET = 'tr0ub4dor&3"\\+/x'
TOKEN = "9f8e7d6c5b4a39281706f5e4d3c2b1a0"


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MY_KEY", SECRET)
    monkeypatch.delenv("ASSAY_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def x():
    return dataset(1).images([0])


def spellings(secret):
    """All ways in which these tests look for a secret."""
    raw = secret.encode()
    encoded = [base64.b64encode(raw), base64.urlsafe_b64encode(raw)]
    texts = [secret, quote(secret, safe=""), quote(secret, safe="&+/\\"), html.escape(secret), json.dumps(secret)[1:-1]]
    return [*(text.encode() for text in texts), *(one.rstrip(b"=") for one in encoded)]


def leaks(folder, secret, *shown):
    """Return where a secret is found: in the files and names below a folder, or in texts."""
    found = [path.name for path in folder.rglob("*") if quote(secret, safe="") in str(path) or secret in path.name]
    contents = [(str(path), path.read_bytes()) for path in folder.rglob("*") if path.is_file()]
    contents += [("shown", text.encode()) for text in shown]
    return [*found, *(name for name, content in contents for spelt in spellings(secret) if spelt in content)]


def echo(secret):
    """A service that repeats a secret in every way it knows: as a label, a field, an error and a header."""
    said = [text.decode() for text in spellings(secret)]
    labels = [*NAMES, *said, f"<{secret.upper()}>"]
    body = {"predictions": [{"label": one, "confidence": 0.9 if one == "red" else 0.001} for one in labels], secret: 1}

    def respond(number, request):
        if number % 2 == 0:
            return [response(" ".join([*said, "x" * 150, secret]), "503 Busy", retry_after="0", x_echo=TOKEN)]
        return [response(json.dumps(body))]

    return respond


def places(address):
    """Where an adapter may hold a secret, and which one."""
    basic = base64.b64encode(f"me:{TOKEN}".encode()).decode()
    return {
        "environment": (SECRET, {"url": address, "headers": {"X-API-Key": "$MY_KEY"}}),
        "environment inside a value": (SECRET, {"url": address, "headers": {"X-Proof": "v1,$MY_KEY;x"}}),
        "environment in the query": (SECRET, {"url": f"{address}?who=$MY_KEY"}),
        "literal header": (TOKEN, {"url": address, "headers": {"X-Custom": TOKEN}}),
        "literal bearer": (TOKEN, {"url": address, "headers": {"Authorization": f"Bearer {TOKEN}"}}),
        "literal cookie": (TOKEN, {"url": address, "headers": {"Cookie": f"a=b; session={TOKEN}"}}),
        "basic": (TOKEN, {"url": address, "headers": {"Authorization": f"Basic {basic}"}}),
        "short literal key": ("hunter2", {"url": address, "headers": {"X-API-Key": "hunter2"}}),
        "literal query": ("hunter2", {"url": f"{address}?model=a&api_key=hunter2"}),
        "encoded query": (SECRET, {"url": f"{address}?token={quote(SECRET, safe='')}"}),
        "literal path": (TOKEN, {"url": f"{address}/hooks/{TOKEN}/run"}),
        "literal body": ("hunter2", {"url": address, "body": "json", "template": '{"key":"hunter2","i":"{image}"}'}),
    }


@pytest.mark.parametrize("place", places(""))
def test_a_secret_is_found_nowhere_whatever_the_service_repeats(place, tmp_path, capfd, caplog):
    """Answers, cache, transcript, manifest, records, names of folders, messages, logs and repr."""
    secret = places("")[place][0]
    caplog.set_level(logging.DEBUG)
    with hostile(echo(secret)) as at:
        settings = places(at.address)[place][1]
        adapter = Adapter(**settings, outside="wrong", limits=Limits(tries=3, concurrency=1))
        service = Service(adapter)
        result = ra.evaluate(service, dataset(1), ra.LInf(8 / 255), "square:steps=2", out=tmp_path / "run")
        request = b"".join(at.requests)
        assert any(spelt in request for spelt in (*spellings(secret), base64.b64encode(f"me:{secret}".encode())))
    answers = service.answers(dataset(1).images([0]))
    assert any("***" in label for label in answers[0].labels), "else this tests nothing"
    printed = capfd.readouterr()
    shown = [repr(adapter), str(service), repr(service), str(answers), json.dumps(result.manifest), str(result)]
    assert leaks(tmp_path, secret, *shown, printed.out, printed.err, caplog.text) == []


def test_a_message_shows_no_secret_even_where_it_is_cut(tmp_path, x):
    """The text is cut at 200 characters: cut first, half of the secret would be left."""
    with hostile(lambda n, request: [response("x" * (180 + n) + TOKEN, "418 No")]) as at:
        service = Service(Adapter(at.address, headers={"X-API-Key": TOKEN}))
        for _ in range(20):
            with pytest.raises(ModelFailed) as raised:
                service.ask_again(x)
            assert TOKEN[:4] not in str(raised.value)
    assert leaks(tmp_path, TOKEN[:4]) == []


def test_a_label_that_names_no_class_is_shown_without_the_secret(x):
    with hostile(lambda n, r: [response(f'{{"predictions": [{{"label": "key {TOKEN}", "confidence": 1}}]}}')]) as at:
        service = Service(Adapter(at.address, headers={"X-API-Key": TOKEN}))
        service.learn_classes(NAMES)
        with pytest.raises(ModelFailed, match=r"'key \*\*\*'.*stands for a secret") as raised:
            service(x)
    assert TOKEN not in str(raised.value)


def test_the_command_line_shows_no_secret_of_an_address(tmp_path, capfd):
    import numpy as np

    data = dataset(2)
    np.savez(tmp_path / "d.npz", x=data.images(slice(0, 2)).mul(255).byte().numpy(), y=data.labels.numpy())
    numbers = {"predictions": [{"label": str(n), "confidence": 0.7 if n == 0 else 0.1} for n in range(4)]}
    with hostile(lambda n, request: [response(json.dumps(numbers))]) as at:
        address = f"{at.address}/{TOKEN}?token=hunter2&model=small"
        request = ["eval", address, "--data", "d.npz", "--attack", "square:steps=2", "--eps", "8/255"]
        assert main(request) == 0
        assert b"token=hunter2&model=small" in at.requests[0]
    printed = capfd.readouterr()
    for secret in (TOKEN, "hunter2"):
        assert leaks(tmp_path, secret, printed.out, printed.err) == []
    assert "model=small" in printed.err
    assert main(["eval", f"https://{TOKEN}:x@example.org/", "--data", "d.npz"]) == 2
    assert main(["eval", f"https://[bad/?token={TOKEN}", "--data", "d.npz"]) == 2
    assert TOKEN not in capfd.readouterr().err


# ---------------------------------------------------------------- the key of a run


def test_the_key_of_a_run_depends_on_the_address_and_not_on_its_secrets():
    def identity(url, **settings):
        return Adapter(url, **settings).identity, Adapter(url, **settings).request_key

    plain = "https://example.org/v1/classify?model=small&key=$MY_KEY"
    assert identity(plain)[0]["url"] == plain, "what holds no secret is kept as it is"
    one = identity("https://example.org/v1/classify?model=small&key=first-secret")
    assert one == identity("https://example.org/v1/classify?model=small&key=second-secret"), "a new key, the same run"
    assert one != identity("https://example.org/v1/classify?model=large&key=first-secret")
    assert identity(f"https://example.org/{TOKEN}") != identity(f"https://example.org/{TOKEN[::-1]}")
    body = '{{"auth": {{"user": "{}"}}, "size": "{}", "image": "{{image}}"}}'
    sizes = [identity("https://x.org/", body="json", template=body.format(*two)) for two in (("a1", "s"), ("b2", "s"))]
    assert sizes[0] == sizes[1]
    assert sizes[0] != identity("https://x.org/", body="json", template=body.format("a1", "m"))
    assert Adapter("https://x.org/").identity["template"] == '{"image": "{image}"}'


def test_a_result_is_named_by_the_address_without_its_secrets():
    service = Service(Adapter("https://example.org/c?key=hunter2"))
    for name in (None, "https://example.org/c?key=hunter2"):
        assert ModelRef.of(service, name).name == "https://example.org/c?key=***"
    assert ModelRef.of(service, "mine").name == "mine"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://x.org/v1/classify", None),
        ("https://x.org/v2/models/efficientnet_b0_ns_1k_2020/infer", None),
        ("https://x.org/a?keyword=cat&country_code=de&monkey=1", None),
        ("https://x.org/a?X-Amz-Signature=abc&b=1", "https://x.org/a?X-Amz-Signature=***&b=1"),
        ("https://x.org/a?accessToken=abc#t", "https://x.org/a?accessToken=***#t"),
        ("https://x.org/a?code=abc", "https://x.org/a?code=***"),
        ("https://x.org/a?api%5Fkey=abc", "https://x.org/a?api%5Fkey=***"),
        ("https://x.org/a?key=pre$MY_KEY", "https://x.org/a?key=***"),
        ("https://x.org/a?key=$MY_KEY", None),
        ("https://x.org/$MY_KEY/a", None),
        (f"https://x.org/a?id={TOKEN}", "https://x.org/a?id=***90106111"),
        ("https://x.org/bot1234567:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/a", "https://x.org/***2be108ba/a"),
    ],
)
def test_the_public_form_of_an_address(url, shown):
    assert public_address(url) == (shown or url)


def test_names_and_tokens_are_recognised():
    for name in (
        "X-API-Key",
        "Authorization",
        "Cookie",
        "apikey",
        "APIKEY",
        "client_secret",
        "Ocp-Apim-Subscription-Key",
    ):
        assert is_secret_name(name), name
    for name in ("Accept", "X-Model", "keyword", "monkey", "Content-Type", "author"):
        assert not is_secret_name(name), name
    assert is_random(TOKEN)
    assert not is_random("12345678901234567890")
    assert not is_random("densenet-bc-100-12-natural")


# ---------------------------------------------------------------- short secrets and odd values


def test_a_short_secret_does_not_turn_every_text_into_asterisks(tmp_path, monkeypatch, x):
    """Three characters stand in many texts by chance; they are not searched for, and never written by assay itself."""
    monkeypatch.setenv("MY_KEY", "red")
    with hostile(lambda n, request: [response()]) as at:
        service = Service(Adapter(at.address, headers={"X-API-Key": "$MY_KEY", "X-Version": "1", "X-Kind": "blue"}))
        service.learn_classes(NAMES)
        assert service(x).argmax() == NAMES.index("red")
        assert b"x-api-key: red" in at.requests[0].lower()
    transcript = next(tmp_path.rglob("transcript.jsonl")).read_text()
    assert "***" not in transcript
    assert "x-api-key" not in transcript.lower()
    assert Redactor(["abc", "abcd"]).text("abc abcd") == "abc ***"


@pytest.mark.parametrize("value", ["secret\nvalue", "bell\x07", "caf\u00e9-caf\u00e9"])
def test_a_value_that_no_header_may_have_is_refused_without_showing_it(value, monkeypatch):
    monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(BadRequest, match="X-API-Key") as raised:
        Service(Adapter("https://example.org/", headers={"X-API-Key": "$MY_KEY"}))
    assert value[:4] not in str(raised.value)


def test_a_variable_that_spoils_the_address_is_refused_without_showing_it(monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret\nvalue")
    with pytest.raises(BadRequest, match="not valid") as raised:
        Service(Adapter("https://example.org/?key=$MY_KEY"))
    assert "secret" not in str(raised.value)


def test_values_of_headers_are_text(tmp_path):
    (tmp_path / "s.toml").write_text('url = "https://example.org/"\n[request]\nheaders = { X-Size = 5 }\n')
    with pytest.raises(BadRequest, match="text in quotes"):
        Adapter.of("s.toml")


def test_a_thousand_labels_are_searched_once():
    redactor = Redactor([TOKEN])
    labels = tuple(f"label {n}" for n in range(1000))
    assert redactor.texts(labels) is labels
    assert redactor.texts((*labels, f"a {TOKEN}"))[-1] == "a ***"


def test_a_secret_number_in_the_body_is_hidden_too():
    adapter = Adapter("http://127.0.0.1:9/x", body="json", template='{"image": "{image}", "pin": {"token": 73218845}}')
    assert "73218845" not in f"{adapter!r}{adapter.identity}"
    assert Credentials.of(adapter).redactor.text("you sent 73218845") == "you sent ***"
