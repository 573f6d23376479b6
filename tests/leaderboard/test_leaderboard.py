"""The leaderboard: from records alone, nothing believed unchecked, published entries beside, broken ones named."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import robustassay as ra
from robustassay import attacks, data, leaderboard, models
from robustassay.analysis import rates
from robustassay.cli import main
from robustassay.errors import BadData, BadRequest
from robustassay.evaluation import Result
from robustassay.evaluation.model_ref import ModelRef
from robustassay.evaluation.spec import RunSpec
from robustassay.leaderboard import EntryCard, External, boards, gather, measured_entry, read_folder, to_model_info
from robustassay.leaderboard import card_of_zoo as zoo_card
from robustassay.leaderboard.admission import admit
from robustassay.leaderboard.audit import contradictions
from robustassay.leaderboard.recheck import check_records
from robustassay.leaderboard.records_file import ABOUT, pack, read
from robustassay.leaderboard.submission import Submission, add
from robustassay.records import SCHEMA, to_pandas
from robustassay.registry import describe
from tests.support import toys
from tests.support.forging import forge

CPU = torch.device("cpu")
DATA = data.load("cifar10-1k").take(8)
TEN = [
    "alexnet-natural", "vgg11-natural", "vgg16-natural", "mobilenet025-natural", "mobilenet-natural", "convnet-ibp",
    "resnet20-natural", "resnet20-pgd", "resnet20-alp", "resnet20-deepdefense",
]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Ten models, one gradient step each, and one of them under two attacks more, images kept."""
    folder = tmp_path_factory.mktemp("runs")
    for name in TEN:
        ra.evaluate(name, DATA, ra.LInf(8 / 255), "fgsm", out=folder / name, keep_images=name == "resnet20-natural")
    for attack in ("pgd:steps=2", "uniform-noise"):
        ra.evaluate("vgg11-natural", DATA, ra.LInf(8 / 255), attack, out=folder / f"vgg-{attack[:3]}")
    return folder


def test_one_command_builds_a_board_of_ten_models_from_records(runs, tmp_path, capsys):
    assert main(["leaderboard", "build", str(runs), "-o", str(tmp_path), "--board", str(tmp_path / "none")]) == 0
    assert "resnet20-pgd" in capsys.readouterr().out
    board = json.loads((tmp_path / "board.json").read_text())["boards"][0]
    entries = {entry["id"]: entry for entry in board["entries"]}
    assert entries.keys() == set(TEN)
    assert (board["dataset"], board["norm"], board["compared_on"]) == ("cifar10", "Linf", 8)
    for name, entry in entries.items():
        result = Result.load(runs / name)
        low, high = result.interval
        parts = [Result.load(path) for path in sorted(runs.glob("vgg-*"))] if name == "vgg11-natural" else []
        fallen = np.stack([one.records["success"].to_numpy(bool) for one in (result, *parts)]).any(0)
        right = result.records["clean_ok"].to_numpy(bool)
        assert entry["best_known"]["value"] == (right & ~fallen).mean()
        assert entry["clean"]["value"] == right.mean()
        assert len(entry["attacks"]) == 1 + len(parts)
        if not parts:
            assert (entry["robust"]["value"], entry["robust"]["low"]) == (result.robust_accuracy, low)
            assert entry["robust"]["high"] == high
            assert "weak-evaluation" in entry["flags"]  # one step is no evaluation
        card = models.card(name)
        assert (entry["name"], entry["parameters"]) == (card.title, card.parameters)
        assert entry["date"] == result.manifest["started"][:10]
        assert entry["seconds"] > 0
    assert "weak-evaluation" not in entries["vgg11-natural"]["flags"]
    order = [entry["best_known"]["value"] for entry in board["entries"]]
    assert order == sorted(order, reverse=True)
    assert len(pd.read_csv(tmp_path / "board.csv")) == len(TEN)
    written = (tmp_path / "board.md").read_text()
    assert all(name in written for name in TEN)
    assert "do not differ significantly" in written


def fake(name, falls, clean=None, attack="autoattack", weights=None, eps=8 / 255, **remarks):
    """A run in which the given samples fell."""
    n = len(falls)
    clean = np.ones(n, bool) if clean is None else np.array(clean)
    falls = np.array(falls) | ~clean
    columns = {
        "sample_id": [str(row) for row in range(n)],
        "label": [3] * n,
        "clean_label": [3 if ok else 1 for ok in clean],
        "clean_ok": clean,
        "claimed": falls,
        "valid": [True if fell else None for fell in falls],
        "success": falls,
        "distance": [eps if fell else None for fell in falls],
        "adv_label": [1 if fell else None for fell in falls],
        "margin": np.where(falls, -1.0, 0.5),
        "clean_margin": [1.0] * n,
        **{cost: [10] * n for cost in ("iterations", "forwards", "backwards", "queries")},
        "seconds": [0.5] * n,
    }
    frame = pd.DataFrame({field.name: columns.get(field.name, [None] * n) for field in SCHEMA})
    records = to_pandas(pa.Table.from_pandas(frame, schema=SCHEMA, preserve_index=False))
    spec = RunSpec(
        model={"name": name, "weights": weights or name, "structure": "s"},
        data={"name": "cifar10", "sha256": "0" * 64},
        threat={"norm": "Linf", "eps": eps, "target": None, "query_budget": None},
        attack=describe("attack", attacks.create(attack)),
        seed=0,
    )
    manifest = {"key": spec.key, "spec": dataclasses.asdict(spec), "started": "2024-05-06T00:00:00", "title": name}
    return Result({**manifest, "stages": [], "flags": {}, **remarks}, records, None)


def test_entries_are_grouped_where_they_cannot_be_told_apart():
    rng = np.random.default_rng(0)
    base = rng.random(400)
    falls = {"best": base < 0.30, "near": base < 0.31, "worst": base < 0.60}
    (board,) = boards([measured_entry(EntryCard(name=name), [fake(name, fell)]) for name, fell in falls.items()])
    places = {entry.card.name: (board.place(entry), board.group(entry)) for entry in board.entries}
    assert places["best"] == ((1, 2), "a")
    assert places["near"] == ((1, 2), "a")
    assert places["worst"] == ((3, 3), "b")
    assert [entry.card.name for entry in board.entries] == ["best", "near", "worst"]
    short = measured_entry(EntryCard(name="short"), [fake("short", base[:50] < 0.2)])
    (board,) = boards([*board.entries, short])
    assert board.samples == 400
    assert board.place(short) is None  # judged on other samples, so not compared


def test_best_known_is_the_worst_case_over_all_runs_and_over_others():
    whole = np.zeros(100, bool)
    standard, more, partial = whole.copy(), whole.copy(), whole.copy()[:50]
    standard[:40], more[30:60], partial[45:50] = True, True, True
    results = [fake("m", standard), fake("m", more, attack="square"), fake("m", partial, attack="cw")]
    entry = measured_entry(EntryCard(name="m"), results)
    assert (entry.robust.value, entry.robust.by) == (0.6, "autoattack")
    assert (entry.best_known.value, entry.best_known.external) == (0.4, False)
    low, high = rates.Rate(60, 100).interval()
    assert (entry.robust.low, entry.robust.high, entry.robust.samples) == (low, high, 100)
    assert [one.robust.value for one in entry.attacks] == [0.6, 0.7, 0.9]
    assert entry.seconds == pytest.approx(0.5 * 250)

    others = (
        External(accuracy=0.1, norm="L2", eps=0.5, by="another threat"),
        External(accuracy=0.35, norm="Linf", eps=8 / 255, by="an adaptive attack"),
    )
    entry = measured_entry(EntryCard(name="m", external=others), results)
    assert (entry.best_known.value, entry.best_known.by) == (0.35, "an adaptive attack")
    assert entry.best_known.external
    assert to_model_info(entry)["external"] == "35.00"
    assert to_model_info(entry)["autoattack_acc"] == "60.00"
    assert to_model_info(measured_entry(EntryCard(name="m"), results[1:]))["autoattack_acc"] is None


def test_a_confirming_run_counts_and_ends_no_doubt():
    first = fake("m", [True, False, False, False], attack="express")
    first.records["margin"] = first.records["margin"].where(first.records["success"], 0.01)  # close calls
    assert measured_entry(EntryCard(name="m"), [first]).doubtful == 3
    again = fake("m", [True, True, False, False], attack="autoattack", confirms=[first.manifest["key"]])
    again = dataclasses.replace(again, records=again.records.iloc[1:3])
    entry = measured_entry(EntryCard(name="m"), [first, again])
    assert (entry.robust.value, entry.robust.by) == (0.5, "express, confirmed")
    assert entry.doubtful == 2  # tried again or not: both stand by a small margin


RB = {
    "link": "https://example.org/paper",
    "name": "A paper",
    "authors": "A, B",
    "additional_data": True,
    "number_forward_passes": 1,
    "dataset": "cifar10",
    "venue": "ICLR 2020",
    "architecture": "WideResNet-28-10",
    "eps": "0.031",
    "clean_acc": "79.28",
    "reported": "52.4",
    "autoattack_acc": "18.50",
    "external": "7.15",
    "unreliable": True,
    "footnote": "",
}


def model_info(folder, **files):
    for place, content in files.items():
        path = folder / "cifar10" / "Linf" / f"{place}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))


def test_published_entries_stand_beside_and_malformed_ones_are_named(runs, tmp_path, capsys):
    folder = tmp_path / "model_info"
    model_info(
        folder,
        Good2020=RB,
        NotJson="{",
        NoObject="[]",
        NoClean={key: value for key, value in RB.items() if key != "clean_acc"},
        BadRate=RB | {"autoattack_acc": "153"},
        WordRate=RB | {"clean_acc": "high"},
        BadEps=RB | {"eps": None},
        BadFlag=RB | {"additional_data": "yes"},
        NoRobust=RB | {"autoattack_acc": None, "external": None},
        NoName=RB | {"name": 7},
    )
    (folder / "cifar10" / "elsewhere").mkdir()
    (folder / "cifar10" / "elsewhere" / "Lost.json").write_text(json.dumps(RB))
    (folder / "cifar10" / "corruptions").mkdir()
    spoilt = {key: value for key, value in RB.items() if key not in ("autoattack_acc", "external", "eps")}
    spoilt |= {"corruptions_acc": "92.78", "corruptions_mce": "41.7"}
    (folder / "cifar10" / "corruptions" / "Deck.json").write_text(json.dumps(spoilt))

    entries, problems = read_folder(folder)
    good = next(entry for entry in entries if entry.card.name == "Good2020")
    assert (good.kind, good.clean.value, good.robust.value) == ("published", 0.7928, 0.185)
    assert (good.best_known.value, good.unreliable, good.card.year) == (0.0715, True, 2020)
    assert {entry.card.name for entry in entries} == {"Good2020", "Deck"}
    named = " ".join(problems)
    bad = ("NotJson", "NoObject", "NoClean", "BadRate", "WordRate", "BadEps", "BadFlag", "NoRobust", "NoName", "Lost")
    assert all(f"{name}.json" in named for name in bad)
    assert len(problems) == len(bad)

    arguments = ["leaderboard", "build", str(runs), "--published", str(folder), "-o", str(tmp_path / "out")]
    assert main([*arguments, "--board", str(tmp_path / "none")]) == 0
    assert "NotJson.json" in capsys.readouterr().err
    built = json.loads((tmp_path / "out" / "board.json").read_text())
    together = next(board for board in built["boards"] if board["norm"] == "Linf")
    kinds = {entry["id"]: entry["kind"] for entry in together["entries"]}
    assert kinds["Good2020"] == "published"  # 0.031 is beside 8/255
    assert list(kinds.values()).count("measured") == len(TEN)
    assert next(entry for entry in together["entries"] if entry["id"] == "Good2020")["rank"] is None
    assert len(built["left_out"]) == len(bad)


def test_an_export_covers_robustbenchs_fields_and_reads_back(runs, tmp_path):
    found = boards(gather([runs]).entries)
    leaderboard.write(found, tmp_path)
    entries, problems = read_folder(tmp_path / "model_info")
    assert not problems
    measured_here = {entry.card.name: entry for entry in found[0].entries}
    assert {entry.card.name for entry in entries} == measured_here.keys()
    for entry in entries:
        own = measured_here[entry.card.name]
        assert entry.best_known.value == pytest.approx(own.best_known.value, abs=5e-5)
        assert entry.clean.value == pytest.approx(own.clean.value, abs=5e-5)
        assert entry.threat == own.threat
    exported = json.loads((tmp_path / "model_info/cifar10/Linf/resnet20-pgd.json").read_text())
    assert exported.keys() >= RB.keys()
    assert exported["venue"] == "ICLR 2018"


def test_a_published_accuracy_lowers_what_is_known_of_the_same_model(tmp_path):
    model_info(tmp_path, Good2020=RB | {"eps": "8/255"})
    published, _ = read_folder(tmp_path)
    own = measured_entry(EntryCard(name="robustbench:Good2020"), [fake("m", np.arange(10) < 5)])
    (board,) = boards([own, *published])
    mine = next(entry for entry in board.entries if entry.kind == "measured")
    assert (mine.best_known.value, mine.best_known.external, mine.robust.value) == (0.0715, True, 0.5)


# ---------------------------------------------------------------- submissions and admission


def test_a_submission_is_a_card_and_records_whose_claims_are_seen_again(runs, tmp_path, capsys):
    run = runs / "resnet20-natural"
    assert main(["leaderboard", "add", "resnet20-natural", str(run), "--board", str(tmp_path)]) == 0
    entry = tmp_path / "entries" / "resnet20-natural"
    capsys.readouterr()
    assert main(["leaderboard", "check", str(entry)]) == 0
    told = capsys.readouterr().out
    fell = int(Result.load(run).records["success"].sum())
    assert f"{fell} of {fell} successes verify again" in " ".join(told.split())
    assert main(["leaderboard", "build", "--board", str(tmp_path)]) == 0
    board = json.loads((tmp_path / "board.json").read_text())["boards"][0]
    assert [entry["id"] for entry in board["entries"]] == ["resnet20-natural"]


def test_forged_records_are_refused(runs, tmp_path):
    path = pack(runs / "resnet20-natural", tmp_path)
    table, result = pq.read_table(path), read(path)
    assert not contradictions(result)
    whole = all(check.passed for check in check_records(path, None, None, CPU)[0])
    assert whole

    clean_wrong = result.records.assign(distance=0.0)
    hidden = clean_wrong.assign(success=False)  # though the claims are there, and verified
    assert "counts as no success" in contradictions(dataclasses.replace(result, records=hidden))[0]
    for change in ({"distance": 1.0}, {"adv_label": result.records["label"]}, {"valid": False}, {"forwards": -1}):
        assert contradictions(dataclasses.replace(result, records=result.records.assign(**change))), change
    twice = pd.concat([result.records, result.records.iloc[:1]])
    assert "two rows" in contradictions(dataclasses.replace(result, records=twice))[0]

    # Images that do not fool the model: the clean ones.
    def clean(images, rows):
        return DATA.images([DATA.ids.index(row["sample_id"]) for row in rows])

    path = pack(forge(runs / "resnet20-natural", tmp_path / "clean", images=clean), tmp_path / "packed")
    checks = {check.rule: check for check in check_records(path, None, None, CPU)[0]}
    assert checks["claims"].passed is False
    assert "goal not reached" in checks["claims"].text

    # Another model's answers.
    assert check_records(path, "resnet20-pgd", None, CPU)[0][-1].passed is False

    # A manifest that was edited.
    manifest = json.loads(table.schema.metadata[b"assay-manifest"])
    manifest["spec"]["threat"]["eps"] = 16 / 255
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, ABOUT: json.dumps(manifest)}), path)
    with pytest.raises(BadData, match="changed after the run"):
        read(path)
    pq.write_table(pq.read_table(path).drop_columns(["margin"]), path)
    with pytest.raises(BadData, match="margin"):
        read(path)


def test_a_damaged_file_is_named_and_the_others_are_ranked(runs, tmp_path):
    pack(runs / "resnet20-pgd", tmp_path / "a")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 no")
    found = gather([tmp_path])
    assert [entry.card.name for entry in found.entries] == ["resnet20-pgd"]
    assert len(found.problems) == 1
    assert "b.parquet" in found.problems[0]
    with pytest.raises(BadRequest, match="no run"):
        gather([tmp_path / "nothing"])


def test_cards_say_what_is_wrong_with_them(tmp_path):
    card = zoo_card(models.card("resnet20-pgd"))
    assert EntryCard.from_json(card.to_json()) == card
    external = External(accuracy=0.1, norm="Linf", eps=8 / 255, by="x")
    again = EntryCard.from_json(dataclasses.replace(card, external=(external,)).to_json())
    assert again.external == (external,)
    for wrong, says in (
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"title": "x"}', "lacks a name"),
        ('{"name": "x", "colour": 1}', "colour"),
        ('{"name": "a b/c"}', "without blanks"),
        ('{"name": "x", "reported": 47.1}', "from 0 to 1"),
        ('{"name": "x", "parameters": "many"}', "whole number"),
        ('{"name": "x", "external": [{"accuracy": 2, "norm": "L2", "eps": 1, "by": "y"}]}', "external"),
    ):
        with pytest.raises(BadData, match=re.escape(says)):
            EntryCard.from_json(wrong)
    (tmp_path / "card.json").write_text("{")
    assert Submission(tmp_path).check(None, None, CPU)[0].passed is False
    for name in ("one", "two"):
        fake(name, [True]).save(tmp_path / name)
    with pytest.raises(BadRequest, match="different models"):
        add(EntryCard(name="x"), [tmp_path / "one", tmp_path / "two"], tmp_path)


class Rounded(torch.nn.Module):
    """A model that no gradient passes, as it rounds its input."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        self.eval()

    def forward(self, x):
        return self.module((x * 4).round() / 4)


class Noisy(Rounded):
    def forward(self, x):
        return self.module(x + 0.1 * torch.rand_like(x))


class Optimising(Rounded):
    def forward(self, x):
        with torch.enable_grad():
            moved = x.detach().requires_grad_()
            torch.autograd.grad(moved.square().sum(), moved)
        return self.module(x)


@pytest.mark.parametrize(
    ("wrap", "broken"),
    [
        (None, set()),
        (Rounded, {"non-zero gradient"}),
        (Noisy, {"deterministic"}),
        (Optimising, {"no optimisation loop"}),
    ],
)
def test_admission_rules(wrap, broken):
    linear = toys.Linear(0.01 * torch.randn(10, 3072, generator=torch.Generator().manual_seed(0)), torch.zeros(10))
    checks = admit(ModelRef.of(wrap(linear) if wrap else linear, "m"), DATA, CPU)
    rules = {check.rule: check.passed for check in checks if not check.rule.startswith("flag")}
    assert rules == {
        rule: rule not in broken for rule in ("non-zero gradient", "deterministic", "no optimisation loop")
    }


def test_a_declared_gradient_does_not_admit(capsys):
    """JPEG rounds; that its defense says how to differentiate it helps an attacker, not the rule."""
    assert main(["leaderboard", "check", "bit-depth|resnet20-natural"]) == 2
    told = " ".join(capsys.readouterr().out.split())
    assert "declares a substitute" in told


def test_a_confirming_run_alone_is_no_entry(runs, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(runs, copy)
    for manifest in copy.rglob("manifest.json"):
        held = json.loads(manifest.read_text())
        manifest.write_text(json.dumps(held | {"confirms": ["0123456789abcdef"]}))
    with pytest.raises(BadRequest, match="confirming runs"):
        gather([copy])


def test_an_autoattack_with_other_settings_is_not_the_standard_attack():
    weak = fake("m", [True, False, False, False], attack="autoattack:steps=1,queries=1")
    strong = fake("m", [True, True, True, False], attack="pgd")
    entry = measured_entry(EntryCard(name="m"), [weak, strong])
    assert (entry.robust.value, entry.robust.by) == (0.25, "pgd")
    alone = measured_entry(EntryCard(name="m"), [weak])
    assert alone.robust.by == "autoattack, other settings"
    assert to_model_info(alone)["autoattack_acc"] is None
