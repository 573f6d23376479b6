"""A service as a target: the verdicts of the model behind it, whatever goes wrong, and nothing paid twice."""

import contextlib
import json
import math
import re
import threading
import time

import httpx2
import pytest
import torch
from torch import nn

import robustassay as ra
from robustassay import attacks
from robustassay.cli import main
from robustassay.errors import BadRequest, Interrupted, ModelFailed
from robustassay.remote import Adapter, RemoteModel, Service, as_service, open_service, submit
from robustassay.remote.adapter import Limits
from robustassay.remote.budget import QueryBudget
from robustassay.remote.labels import LabelMap
from robustassay.remote.response_formats import Answer, MalformedResponse, read_answers
from robustassay.remote.throttle import Throttle
from robustassay.serve import Faults
from robustassay.serve.batcher import Batcher
from robustassay.serve.server import running
from robustassay.target import LocalModel, ScoreAccess, check_supports
from robustassay.threat import Ball, Untargeted
from tests.support.services import GERMAN_NAMES, NAMES, Tiny, dataset, service_config
from tests.support.toys import CPU, ignore_step

JOBS = {
    "square": ("square:steps=25", ra.LInf(12 / 255), None),
    "nes": ("nes:samples=20,steps=3,sigma=0.01", ra.LInf(12 / 255), None),
    "boundary": ("boundary", ra.L2(0.6), 60),
    "hopskipjump": ("hopskipjump", ra.L2(0.6), 100),
}
VERDICTS = ["sample_id", "clean_label", "claimed", "valid", "success", "adv_label", "queries", "iterations"]
FOUND = [*VERDICTS, "distance", "claimed_at_query", "margin", "problem"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ASSAY_API_KEY", raising=False)
    monkeypatch.delenv("ASSAY_CACHE", raising=False)
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def served():
    with running(Tiny(), service_config()) as address:
        yield address


def images_classified(address: str) -> int:
    found = re.search(r"^assay_images_total (\d+)$", httpx2.get(f"{address}/metrics").text, re.MULTILINE)
    assert found
    return int(found[1])


def write(path, **sections):
    """Write an adapter file."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in sections.items() if not isinstance(value, dict)]
    for name, section in sections.items():
        if isinstance(section, dict):
            lines += [f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in section.items())]
    path.write_text("\n".join(lines))
    return str(path)


def _toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value)


class EightBits(nn.Module):
    """The model in process, shown what a service is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Tiny()
        self.eval()

    def forward(self, x):
        return self.model(x.clamp(0, 1).mul(255).round().div(255))


# ---------------------------------------------------------------- the same verdicts


@pytest.mark.parametrize(
    ("name", "path"),
    [*((name, "/classify") for name in JOBS), ("square", "/v2/models/model"), ("nes", "/v2/models/model")],
)
def test_verdicts_and_query_counts_are_those_of_the_model_in_process(served, name, path):
    attack, threat, budget = JOBS[name]
    data = dataset(8)
    over_http = ra.evaluate(served + path, data, threat, attack, search=ra.Search(query_budget=budget)).records
    in_process = ra.evaluate(
        EightBits(), data, threat, attack, search=ra.Search(query_budget=budget, despite_flags=True)
    ).records
    assert over_http[VERDICTS].equals(in_process[VERDICTS])
    assert 0 < over_http["success"].sum() < len(data), "the attack must neither win nor lose everything"
    # A claim over HTTP is the rounded image, so its distance may differ by what rounding moves at most.
    moved = torch.tensor(over_http["distance"].to_numpy() - in_process["distance"].to_numpy()).nan_to_num()
    assert moved.abs().max() <= (0.5 / 255) * (1 if threat.name == "Linf" else 192**0.5)


def test_a_claim_is_the_image_that_was_sent(served):
    """In process a minimum-norm attack may claim a point between two 8-bit images; over HTTP it cannot."""
    found = ra.evaluate(
        served + "/classify", dataset(6), ra.LInf(8 / 255), "hopskipjump", search=ra.Search(query_budget=60)
    )
    assert found.x_adv is not None
    steps = found.x_adv.double() * 255
    assert (steps - steps.round()).abs().max() < 1e-4
    claimed = found.records["claimed"].to_numpy(bool)
    distances = torch.tensor(found.records["distance"].to_numpy()[claimed]) * 255
    assert (distances - distances.round()).abs().max() < 1e-4
    logits = Tiny()(found.x_adv[claimed])
    assert logits.argmax(1).tolist() == found.records["adv_label"][claimed].tolist()


def test_rounding_never_carries_a_point_out_of_its_ball(served):
    """Rounding a dense L2 step makes it longer; sent as it is, every point at the edge would be wasted."""
    data = dataset(8)
    service = Service(Adapter.ready(served + "/v2/models/model"))
    network, _ = RemoteModel.open(service, data, CPU)
    x0 = data.images(slice(0, 8))
    from robustassay.rng import Streams
    from tests.support.toys import open_ledger

    norm = ra.L2(0.08)
    ledger = open_ledger(norm, x0, Untargeted(data.labels))
    box = ScoreAccess(network, ledger, Streams.of(0, list(data.ids)), torch.arange(8), ignore_step)
    edge = box.ball.project(x0 + torch.randn(8, *x0.shape[1:], generator=torch.Generator().manual_seed(0)))
    rounded = (edge * 255).round() / 255
    assert (box.ball.distance(rounded) > norm.eps).any(), "else this tests nothing"
    points = torch.stack((edge, x0), 1)
    box.scores(points)
    seen = [json.loads(line) for line in transcript(service).read_text().splitlines()]
    assert len(seen) == 2 + 4 + 16  # first looks, then sixteen images that all differ
    assert (ledger.queries == 2).all()
    # Every point counted as inside: the lowest margin is that of one of the two points sent.
    assert (ledger.lowest_margin < torch.inf).all()
    result = ra.evaluate(served + "/classify", data, ra.L2(0.3), "square:steps=60")
    assert result.records["success"].any()
    assert (result.records["distance"].dropna() <= 0.3 + 1e-6).all()


def transcript(service):
    from robustassay.remote.service import _make_folder

    return _make_folder(service.adapter) / "transcript.jsonl"


# ---------------------------------------------------------------- when things go wrong


ROUGH = {"square": ("square:steps=8", ra.LInf(12 / 255), None), "hopskipjump": ("hopskipjump", ra.L2(0.6), 20),
         "nes": ("nes:samples=16,steps=2,sigma=0.01", ra.LInf(12 / 255), None)}  # fmt: skip


@contextlib.contextmanager
def restarting(faults, after):
    """Serve with faults; stop once so many images are classified, and start again on the same port."""
    desks: list[Batcher] = []
    address: list[str] = []
    over, started = threading.Event(), threading.Event()

    def run():
        port, again = 0, False
        while not over.is_set():
            with running(Tiny(), service_config(faults=faults), port=port) as at:
                address[:] = [at]
                port = int(at.rpartition(":")[2])
                started.set()
                while not over.is_set() and (again or desks[-1].images < after):
                    time.sleep(0.01)
            again = True

    def make(*given):
        desks.append(Batcher(*given))
        return desks[-1]

    thread = threading.Thread(target=run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("robustassay.serve.handlers.Batcher", make)
        thread.start()
        started.wait()
        try:
            yield address[0], desks
        finally:
            over.set()
            thread.join()


def test_faults_and_a_restart_change_nothing_and_the_cap_holds(served, tmp_path):
    data, cap = dataset(4), 1500
    searches = {name: ra.Search(query_budget=budget) for name, (_, _, budget) in ROUGH.items()}
    smooth = {name: ra.evaluate(f"{served}/classify", data, threat, attack, search=searches[name]).records
              for name, (attack, threat, _) in ROUGH.items()}  # fmt: skip
    faults = Faults(errors=0.1, hangs=0.1, hang_seconds=0.25, bursts=0.02, burst_length=8, seed=3)
    limits = {"timeout_s": 0.15, "tries": 80, "max_backoff_s": 0.1, "max_queries": cap, "concurrency": 16}
    with restarting(faults, after=60) as (address, desks):
        service = Service(Adapter.of(write(tmp_path / "s.toml", url=f"{address}/classify", limits=limits)))
        rough = {name: ra.evaluate(service, data, threat, attack, search=searches[name], name="rough").records
                 for name, (attack, threat, _) in ROUGH.items()}  # fmt: skip
    assert len(desks) == 2, "the service was restarted once"
    for name, records in smooth.items():
        assert rough[name][FOUND].equals(records[FOUND])
    answered = service.budget.answered
    lines = [json.loads(line) for line in transcript(service).read_text().splitlines()]
    won = [line["images"][0] for line in lines if line["purpose"] == "search" and line["outcome"] == 200]
    assert len(won) == len(set(won)) == answered["search"], "no image was answered, or counted, twice"
    outcomes = {str(line["outcome"]).partition(":")[0] for line in lines}
    assert {"200", "429", "500", "no complete answer within 0.15 s"} <= outcomes
    assert service.budget.retried > 20
    classified = sum(desk.images for desk in desks)
    assert answered.total() <= classified <= service.budget.sent <= cap
    asked = sum(int(records["queries"].sum()) for records in rough.values())
    assert answered["search"] <= asked + len(data), "every answer is a query of the result, or a look at a clean image"


def test_a_cap_stops_before_it_is_passed_and_the_next_run_pays_for_the_rest_only(served, tmp_path):
    attack, threat, _ = JOBS["square"]
    data = dataset(6)
    request = {
        "data": data,
        "threat": threat,
        "attack": attack,
        "execution": ra.Execution(wave_size=2),
        "out": tmp_path / "run",
    }
    place = write(tmp_path / "s.toml", url=f"{served}/classify", limits={"max_queries": 60, "concurrency": 4})
    before = images_classified(served)
    with pytest.raises(Interrupted, match="cap of 60 queries"):
        ra.evaluate(place, **request)
    spent = images_classified(served) - before
    assert 50 <= spent <= 60
    write(tmp_path / "s.toml", url=f"{served}/classify", limits={"concurrency": 4})
    resumed = ra.evaluate(place, **request)
    total = images_classified(served) - before
    whole = ra.evaluate(f"{served}/classify", data, threat, attack, execution=ra.Execution(wave_size=2))
    assert resumed.records[FOUND].equals(whole.records[FOUND])
    # Search is paid once; first looks, probes and the verification of each claim are asked again on purpose.
    afresh = 2 * (2 + 4 + 2) + int(resumed.records["claimed"].sum())
    assert total <= int(resumed.records["queries"].sum()) + len(data) + afresh + 2


def test_the_second_run_asks_only_what_must_be_fresh(served):
    attack, threat, _ = JOBS["square"]
    data = dataset(5)
    first = ra.evaluate(f"{served}/classify", data, threat, attack).records
    before = images_classified(served)
    again = ra.evaluate(f"{served}/classify", data, threat, attack).records
    assert again[FOUND].equals(first[FOUND])
    # Two looks at one image, four at patterns, two of the probe, and one at each claim.
    assert images_classified(served) - before == 2 + 4 + 2 + int(first["claimed"].sum())


def test_answers_of_another_model_at_the_same_address_are_not_believed():
    class Other(Tiny):
        def forward(self, x):
            return super().forward(x).roll(1, 1)

    attack, threat, _ = JOBS["square"]
    data = dataset(4)
    for terms, method in (({}, attack), ({"label_only": True}, "hopskipjump:queries=12")):
        with running(Tiny(), service_config(**terms)) as address:
            port = int(address.rpartition(":")[2])
            assert ra.evaluate(f"{address}/classify", data, threat, method).clean_accuracy == 1
        with running(Other(), service_config(**terms), port=port):
            assert ra.evaluate(f"{address}/classify", data, threat, method).clean_accuracy == 0


def test_a_cost_is_a_cap_as_well():
    limits = Limits(cost_per_query=0.1, max_cost=0.3, max_queries=100)
    budget = QueryBudget(limits, print)
    for _ in range(3):
        budget.reserve(1)
    with pytest.raises(Interrupted, match=r"cap of 0\.3 on the cost"):
        budget.reserve(1)
    assert budget.cost == pytest.approx(0.3)
    budget.refund(1)
    budget.reserve(1)
    assert "4 of 100 queries sent, 3 may be charged, cost 0.3" in str(budget)
    budget.take_back(1)
    assert (budget.sent, budget.charged) == (3, 2)


def test_a_live_counter_speaks_as_answers_come(monkeypatch):
    told: list[str] = []
    now = [0.0]
    monkeypatch.setattr("robustassay.remote.budget.time.monotonic", lambda: now[0])
    budget = QueryBudget(Limits(max_queries=9), told.append)
    for second in range(12):
        now[0] = float(second)
        budget.reserve(second % 4 == 0)
        budget.count_answers("search", 1)
    assert len(told) == 2
    assert told[0].startswith("2 of 9 queries sent, 2 may be charged; answered 6 for search")


def test_a_service_that_only_fails_ends_the_run_and_judges_nothing(tmp_path):
    place = {"url": "", "limits": {"tries": 3, "max_backoff_s": 0.01}}
    with running(Tiny(), service_config(faults=Faults(errors=1.0))) as address:
        place["url"] = f"{address}/classify"
        with pytest.raises(ModelFailed, match=r"failed 3 times in a row \(500\)"):
            ra.evaluate(write(tmp_path / "s.toml", **place), dataset(3), ra.LInf(8 / 255), "square",
                           out=tmp_path / "run")  # fmt: skip
    assert not (tmp_path / "run").exists()
    with pytest.raises(ModelFailed, match="ConnectError"):  # and now it is gone
        ra.evaluate(write(tmp_path / "s.toml", **place), dataset(3), ra.LInf(8 / 255), "square")


def test_a_failure_in_the_middle_leaves_no_record(tmp_path):
    """Every request fails from the 60th image on: what was not finished must not be counted as broken or robust."""
    seen = {"images": 0}

    class Dies(Tiny):
        def forward(self, x):
            seen["images"] += len(x)
            if seen["images"] > 500:
                raise RuntimeError("gone")
            return super().forward(x)

    place = {"limits": {"tries": 2, "max_backoff_s": 0.01, "concurrency": 1}}
    with running(Dies(), service_config()) as address:
        spec = write(tmp_path / "s.toml", url=f"{address}/classify", **place)
        with pytest.raises(ModelFailed, match="failed 2 times"):
            ra.evaluate(
                spec,
                dataset(6),
                ra.LInf(1 / 255),
                "square:steps=20",
                execution=ra.Execution(wave_size=1),
                out=tmp_path / "run",
            )
    saved = ra.Result.load(tmp_path / "run").records
    assert 0 < len(saved) < 6
    assert not saved["success"].any()
    assert (saved["queries"] == 20).all()


def test_a_wrong_key_is_no_reason_to_try_again(monkeypatch, tmp_path):
    with running(Tiny(), service_config(api_key="right")) as address:
        with pytest.raises(ModelFailed, match="status 401"):
            ra.evaluate(f"{address}/classify", dataset(2), ra.LInf(8 / 255), "square:steps=2")
        monkeypatch.setenv("ASSAY_API_KEY", "right")
        result = ra.evaluate(f"{address}/classify", dataset(2), ra.LInf(8 / 255), "square:steps=2")
        assert len(result.records) == 2
        assert "right" not in json.dumps(result.manifest)


# ---------------------------------------------------------------- knowledge


def test_attacks_that_need_more_than_is_shown_are_refused(served):
    for attack, reason in (("pgd", "needs gradients"), ("nes", "8 bits per value cannot show")):
        with pytest.raises(BadRequest, match=reason):
            ra.evaluate(f"{served}/classify", dataset(2), ra.LInf(8 / 255), attack)
    with running(Tiny(), service_config(label_only=True)) as address, pytest.raises(BadRequest, match="labels only"):
        ra.evaluate(f"{address}/classify", dataset(2), ra.LInf(8 / 255), "square")


def test_a_model_in_process_supports_every_attack_and_receives_every_value():
    target = LocalModel(Tiny(), 4, CPU, 8)
    for name in ("square", "pgd", "nes", "boundary"):
        check_supports(target, attacks.create(name))
    x = torch.rand(2, 3, 8, 8)
    assert target.quantise(x) is x


def test_a_service_that_contradicts_itself_is_flagged():
    class Moody(Tiny):
        def forward(self, x):
            return super().forward(x) + torch.randn(len(x), 1) * torch.arange(4)

    with running(Moody(), service_config()) as address:
        result = ra.evaluate(f"{address}/classify", dataset(3), ra.LInf(8 / 255), "square:steps=3")
    assert "contradicts-itself" in result.flags


def test_labels_only_and_other_names_from_the_command_line(tmp_path, monkeypatch, capsys):
    import numpy as np

    data = dataset(6)
    np.savez(tmp_path / "d.npz", x=data.images(slice(0, 6)).mul(255).round().byte().numpy(), y=data.labels.numpy())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SERVICE_KEY", "k3y")
    (tmp_path / "words.json").write_text(json.dumps({label: index for index, label in enumerate(GERMAN_NAMES)}))
    with running(Tiny(), service_config(label_only=True, labels=GERMAN_NAMES, api_key="k3y")) as address:
        write(
            tmp_path / "service.toml",
            url=f"{address}/classify",
            request={"headers": {"X-API-Key": "$SERVICE_KEY"}},
            response={"labels": "predictions.*.label"},
            labels={"file": "words.json"},
            limits={"max_queries": 4000, "cost_per_query": 0.001},
        )
        request = ["eval", "service.toml", "--data", "d.npz", "--attack", "hopskipjump", "--norm", "L2"]
        request += ["--eps", "0.4", "--query-budget", "80", "--json", "--out", "run", "--keep-images"]
        assert main(request) == 0
        (told,) = json.loads(capsys.readouterr().out)
        assert told["clean_accuracy"] == 1
        assert 0 < told["attack_success_rate"] <= 1
        assert main([*request[:6], "square", "--eps", "8/255", "--out", "other"]) == 2
        assert "labels only" in capsys.readouterr().err
    found = ra.Result.load("run")
    local = ra.evaluate(
        EightBits(), data, ra.L2(0.4), "hopskipjump", search=ra.Search(query_budget=80, despite_flags=True)
    )
    # Which claim is closest may differ: a service's points are measured as sent, rounded to 8 bits.
    same = [column for column in VERDICTS[1:] if column not in ("adv_label", "success")]
    assert found.records[same].equals(local.records[same])
    everything = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"k3y" not in everything.replace(b"SERVICE_KEY", b"")


# ---------------------------------------------------------------- labels


def test_the_label_a_service_puts_first_is_its_label():
    words = LabelMap.of(Adapter("http://x/"), NAMES)
    tied = words.logits([Answer(("blue", "red", "green"), (0.5, 0.5, 0.0))])
    assert tied.argmax(1).tolist() == [2]
    assert tied[0, 0] == pytest.approx(math.log(0.5))
    assert tied[0, 1] == tied[0, 3] == pytest.approx(math.log(1e-12))
    one = words.logits([Answer(("grey",), None)])
    assert one.tolist() == [[0, 0, 0, 1]]
    numbers = LabelMap.of(Adapter("http://x/", kind="logits"), NAMES)
    assert numbers.logits([Answer(("1", "0", "3", "2"), (4.0, 3.0, 2.0, -1.5))]).tolist() == [[3, 4, -1.5, 2]]


def test_what_top_k_hides_is_shared_evenly_and_never_above_what_is_shown():
    words = LabelMap.of(Adapter("http://x/"), NAMES)
    (row,) = words.logits([Answer(("red", "blue"), (0.7, 0.2))]).exp().tolist()
    assert row == pytest.approx([0.7, 0.05, 0.2, 0.05])
    (row,) = words.logits([Answer(("red",), (0.4,))]).exp().tolist()
    assert row == pytest.approx([0.4, 0.2, 0.2, 0.2])
    (row,) = words.logits([Answer(("red", "blue"), (0.4, 0.1))]).exp().tolist()
    assert row == pytest.approx([0.4, 0.1, 0.1, 0.1])


def test_many_labels_may_mean_one_class_and_the_best_of_them_speaks():
    adapter = Adapter("http://x/", label_map={"tabby": "red", "siamese": 0, "husky": "green"}, outside="wrong")
    words = LabelMap.of(adapter, NAMES)
    assert words.count == 5
    # The sum would say red (0.55); the service itself says husky.
    logits = words.logits([Answer(("husky", "tabby", "siamese", "car"), (0.4, 0.3, 0.25, 0.05))])
    assert logits.argmax(1).tolist() == [1]
    assert logits.exp()[0, 0] == pytest.approx(0.3)
    assert words.logits([Answer(("lorry",), None)]).argmax(1).tolist() == [4]


def test_a_label_nobody_mapped_stops_the_run():
    with (
        running(Tiny(), service_config(labels=GERMAN_NAMES)) as address,
        pytest.raises(ModelFailed, match="no class of the data"),
    ):
        ra.evaluate(f"{address}/classify", dataset(2), ra.LInf(8 / 255), "square:steps=2")
    bare = LabelMap.of(Adapter("http://x/"), ("0", "1"), seen=("0", "3", "1", "2"))
    assert bare.logits([Answer(("3",), None)]).tolist() == [[0, 0, 0, 1]]  # data that lack the last classes
    with pytest.raises(BadRequest, match="'purple', which is no class"):
        LabelMap.of(Adapter("http://x/", label_map={"rot": "purple"}), NAMES)


# ---------------------------------------------------------------- adapters


def streamed(status, text, headers=None):
    """A response that is read from a stream, as those of a network are."""
    return httpx2.Response(status, stream=httpx2.ByteStream(text.encode()), headers=headers)


def test_an_adapter_file_describes_another_service(tmp_path, monkeypatch):
    """A service with JSON bodies, base64 images and answers at odd places."""
    monkeypatch.setenv("TOKEN", 'sesame"x')
    place = write(
        tmp_path / "s.toml",
        url="https://example.org/v1?key=$TOKEN",
        folder=str(tmp_path / "kept"),
        request={"body": "json", "json": '{"data": {"b64": "{image}"}}', "headers": {"Authorization": "Bearer $TOKEN"}},
        response={"labels": "out.0.tags.*.name", "scores": "out.0.tags.*.p"},
        labels={"map": {"x": "red"}, "outside": "wrong"},
    )
    adapter = Adapter.of(place)
    body = {"out": [{"tags": [{"name": "y", "p": 0.2}, {"name": "x", "p": 0.8}]}]}
    assert read_answers(json.dumps(body).encode(), 1, adapter) == [Answer(("x", "y"), (0.8, 0.2))]
    assert "sesame" not in json.dumps(adapter.identity) + adapter.request_key
    service = Service(adapter)
    sent = []

    def respond(request):
        sent.append(request)
        if len(sent) == 1:
            return streamed(503, 'no, sesame"x', {"Retry-After": "0"})
        return streamed(200, json.dumps(body))

    service._client._exchange.http._transport = httpx2.MockTransport(respond)
    service.learn_classes(NAMES)
    x = dataset(1).images([0])
    assert service(x).exp()[0].tolist() == pytest.approx([0.8, 1e-12, 1e-12, 1e-12, 0.2], rel=1e-5)
    assert str(sent[1].url) == "https://example.org/v1?key=sesame%22x"
    assert sent[1].headers["authorization"] == 'Bearer sesame"x'
    import base64
    import io

    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(json.loads(sent[1].content)["data"]["b64"]))) as image:
        assert image.format == "PNG"
        assert image.size == (8, 8)
    kept = (tmp_path / "kept" / "transcript.jsonl").read_text()
    assert "sesame" not in kept
    first, second = map(json.loads, kept.splitlines())
    assert (first["outcome"], first["said"], second["try"]) == (503, "no, ***", 2)
    assert second["answers"][0]["labels"] == ["x", "y"]


def test_a_form_and_a_jpeg_are_sent_as_asked(tmp_path):
    adapter = Adapter("http://x/", body="multipart", encoding="jpeg", quality=50, form_field="photo",
                      folder=str(tmp_path))  # fmt: skip
    service = Service(adapter)
    sent = []

    def respond(request):
        sent.append(request.read())
        return streamed(200, '{"predictions": [{"label": "red"}]}')

    service._client._exchange.http._transport = httpx2.MockTransport(respond)
    service.learn_classes(NAMES)
    assert service(dataset(1).images([0])).tolist() == [[1, 0, 0, 0]]
    assert b'name="photo"; filename="image.jpeg"' in sent[0]
    assert b"\xff\xd8\xff" in sent[0]


def test_many_images_may_share_a_request_of_the_protocol(served, tmp_path):
    place = write(tmp_path / "s.toml", url=f"{served}/v2/models/model", limits={"batch": 4})
    service = Service(Adapter.of(place))
    service.learn_classes(NAMES)
    x = dataset(10).images(slice(0, 10))
    assert torch.equal(service(x), Tiny()(x))
    lines = [json.loads(line) for line in transcript(service).read_text().splitlines()]
    assert sorted(len(line["images"]) for line in lines) == [2, 4, 4]
    exact = Service(Adapter.ready(f"{served}/v2/models/model", encoding="float"))
    exact.learn_classes(NAMES)
    between = (x + 0.3 / 255).clamp(0, 1)
    assert torch.equal(exact(between), Tiny()(between))


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"url": "ftp://x/"}, "address"),
        ({"url": "http://me:pw@x/"}, "no password"),
        ({"url": "http://x/", "request": {"encoding": "bmp"}}, "encoding must be"),
        ({"url": "http://x/", "request": {"encoding": "float"}}, "go with the body oip"),
        ({"url": "http://x/", "request": {"body": "json", "json": "{}"}}, "write {image}"),
        ({"url": "http://x/", "request": {"body": "json", "json": '{"i": {image}}'}}, "inside a text"),
        ({"url": "http://[x/"}, "address"),
        ({"url": "http://x:99999999/"}, "address"),
        ({"url": "http://x/", "limits": {"max_response_bytes": 0}}, "max_response_bytes must be"),
        ({"url": "http://x/", "limits": {"batch": 2}}, "Only the body oip"),
        ({"url": "http://x/", "limits": {"tries": 0}}, "tries must be"),
        ({"url": "http://x/", "limits": {"max_cost": 1}}, "needs cost_per_query"),
        ({"url": "http://x/", "limits": {"speed": 1}}, "no adapter knows"),
        ({"url": "http://x/", "colour": 1}, "no adapter knows"),
        ({"url": "http://x/", "labels": {"outside": "maybe"}}, "error or wrong"),
        ({"url": "http://x/", "labels": {"file": "none.json"}}, "no label file"),
    ],
)
def test_an_adapter_that_makes_no_sense_is_refused(tmp_path, sections, reason):
    with pytest.raises(BadRequest, match=reason):
        Adapter.of(write(tmp_path / "s.toml", **sections))


def test_a_missing_key_or_package_is_a_sentence(monkeypatch, tmp_path):
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(BadRequest, match=r"\$NOT_SET"):
        Service(Adapter("http://x/", headers={"X": "$NOT_SET"}))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadRequest, match=re.escape("robustassay[http]")):
        Service(Adapter("http://x/"))


@pytest.mark.parametrize(
    "text", ["", "[]", '{"predictions": []}', '{"predictions": [{"label": "a", "confidence": NaN}]}']
)
def test_a_response_that_holds_no_answer_is_unreadable(text):
    with pytest.raises(MalformedResponse):
        read_answers(text.encode(), 1, Adapter("http://x/"))


def test_requests_keep_their_throttle(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("robustassay.remote.throttle.time.monotonic", lambda: now[0])
    throttle = Throttle(50)
    assert [throttle.reserve() for _ in range(3)] == pytest.approx([0, 0.02, 0.04])
    now[0] += 1
    assert [throttle.reserve() for _ in range(2)] == pytest.approx([0, 0.02])
    assert [Throttle(None).reserve() for _ in range(2)] == [0, 0]


def test_a_throttled_service_is_asked_slowly(served):
    service = Service(Adapter.ready(f"{served}/classify", limits=Limits(per_second=50)))
    started = time.monotonic()
    service.answers(dataset(11).images(slice(0, 11)))
    assert time.monotonic() - started >= 0.2


# ---------------------------------------------------------------- section 7 of Liu et al.


def test_images_made_elsewhere_are_submitted_and_counted(served):
    data = dataset(8)
    x0, labels = data.images(slice(0, 8)), data.labels.clone()
    labels[0] = (labels[0] + 1) % 4  # the service does not know this one, so it proves ignore_step
    x_adv = torch.cat((x0[:4], x0.flip(0)[4:]))
    predicted = Tiny()(x_adv).argmax(1)
    targets = (labels + 1) % 4
    service = Service(Adapter.ready(f"{served}/classify"))
    found = submit(service, x_adv, labels, NAMES, targets, x0)
    known = torch.arange(8) > 0
    assert found.counted == 7
    assert found.error_rate == pytest.approx(float((predicted != labels)[known].float().mean()))
    assert found.matching_rate == pytest.approx(float((predicted == targets)[known].float().mean()))
    assert [one.label for one in found.images] == [NAMES[index] for index in predicted]
    assert 0 < found.error_rate < 1
    assert "7 of 8 images counted" in str(found)
    assert math.isnan(submit(service, x_adv, labels, NAMES).matching_rate)
    assert service.budget.answered["transfer"] == 8, "clean images stand among them, and known ones are not paid again"


# ---------------------------------------------------------------- the service as a target


def unreachable(tmp_path, **settings) -> Service:
    return Service(Adapter("http://localhost:1/classify", folder=str(tmp_path), **settings))


@pytest.mark.parametrize("given", ["", "/", "/infer", "/infer/"])
@pytest.mark.parametrize("query", ["", "?key=1&x=/infer"])
def test_the_address_of_a_model_is_completed_before_its_query(given, query):
    address = "http://127.0.0.1:1/v2/models/model"
    assert Adapter.ready(f"{address}{given}{query}").url == f"{address}/infer{query}"


def test_a_copy_of_a_service_is_a_service(tmp_path):
    target = RemoteModel(unreachable(tmp_path), 4, CPU, gives_scores=False)
    for copy in (target.on(CPU), target.with_draws(3)):
        assert type(copy) is RemoteModel
        assert copy.service is target.service
        assert (copy.is_remote, copy.gives_scores, copy.gives_gradients, copy.draws) == (True, False, False, 1)
    assert target.exact is target
    assert target.for_search(exactly=True) is target


def test_a_service_refuses_gradients_and_other_modules(tmp_path):
    target, x = RemoteModel(unreachable(tmp_path), 4, CPU, gives_scores=True), torch.zeros(1, 3, 8, 8)
    labels = torch.zeros(1, dtype=torch.int64)
    for ask in (
        lambda: target.gradient(x, lambda logits, goal: logits[:, 0], Untargeted(labels)),
        lambda: target.jacobian(x, labels[:, None]),
        lambda: target.call_differentiable(x),
    ):
        with pytest.raises(BadRequest, match="no gradients"):
            ask()
    with pytest.raises(BadRequest, match="no module"):
        target.with_module(Tiny())


def test_images_are_rounded_to_what_is_sent_and_stay_in_their_ball(tmp_path):
    target = RemoteModel(unreachable(tmp_path), 4, CPU, gives_scores=True)
    x0 = (torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * 255).round() / 255
    ball = Ball(ra.LInf(2.5 / 255), x0, torch.full((6,), 2.5 / 255))
    edge = ball.project(x0 + 0.5)
    plain, inside = target.quantise(edge), target.quantise(edge, ball)
    for points in (plain, inside):
        assert torch.equal((points * 255).round() / 255, points)
    assert not ball.holds(plain, ball.distance(plain)).any(), "else this tests nothing"
    assert ball.holds(inside, ball.distance(inside)).all()
    exact = RemoteModel(unreachable(tmp_path, body="oip", encoding="float", labels=""), 4, CPU, gives_scores=True)
    assert exact.quantise(edge) is edge
    assert exact.smallest_step == 0


def test_answers_are_kept_in_the_cache_folder_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "mine"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    Service(Adapter("http://localhost:1/classify"))
    assert (tmp_path / "mine" / "services" / "localhost-1" / "answers.sqlite").is_file()
    assert not (tmp_path / "other").exists()


def test_a_module_of_this_process_is_no_service(tmp_path):
    service = unreachable(tmp_path)
    assert as_service(service) is service
    assert as_service(Tiny()) is None
    with pytest.raises(BadRequest, match="not a service"):
        open_service("resnet20-natural")
