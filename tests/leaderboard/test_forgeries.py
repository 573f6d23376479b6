"""Records that somebody changed, with every hash, name and key made to fit: each forgery is found, honest runs pass."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import robustassay as ra
from robustassay import data
from robustassay.cli import main
from robustassay.errors import BadData, BadRequest
from robustassay.evaluation import Result
from robustassay.leaderboard import add, gather, records_file
from robustassay.leaderboard.card import EntryCard
from robustassay.leaderboard.recheck import check_records
from robustassay.shards import read_binding
from tests.support.forging import forge

CPU = torch.device("cpu")
LIMIT = 32
EPS = 2 / 255
DATA = data.load("cifar10-1k").take(LIMIT)


@pytest.fixture(scope="module")
def honest(tmp_path_factory) -> Path:
    """A run in several shards, in which most samples fall."""
    out: Path = tmp_path_factory.mktemp("honest") / "run"
    execution = ra.Execution(wave_size=8)
    result = ra.evaluate("resnet20-natural", DATA, ra.LInf(EPS), "pgd:steps=5", out=out, execution=execution)
    assert 0 < result.robust_accuracy < 0.5
    return out


def seen(path: Path, reattack: int = LIMIT) -> dict[str, tuple[bool | None, str]]:
    checks, _ = check_records(path, None, None, CPU, reattack)
    return {check.rule: (check.passed, check.text) for check in checks}


def lift(row: dict[str, Any]) -> None:
    """Clear a success, and nothing else, as in the forgery that was once believed."""
    row["success"] = row["success"] and not row["clean_ok"]


def lift_whole(row: dict[str, Any]) -> None:
    """Write a row that fell as a run writes one that stands."""
    if row["success"] and row["clean_ok"]:
        row |= {"success": False, "claimed": False, "valid": None, "distance": None, "adv_label": None, "margin": 0.7}
        row |= {"adv_confidence": None, "uint8_ok": None, "claimed_at_iteration": None, "claimed_at_query": None}
        row |= {"improvements": []}


def clean_images(images: torch.Tensor, rows: list[dict[str, Any]]) -> torch.Tensor:
    clean = DATA.images([DATA.ids.index(row["sample_id"]) for row in rows])
    stands = torch.tensor([not row["success"] for row in rows])
    return torch.where(stands.view(-1, 1, 1, 1), clean, images)


@pytest.mark.parametrize("packed", [False, True])
def test_an_honest_run_passes_and_what_was_not_attacked_again_is_unverified(honest, tmp_path, packed):
    path = records_file.pack(honest, tmp_path) if packed else honest
    found = seen(path)
    assert [passed for passed, _ in found.values()] == [True] * 5, found
    standing = int((Result.load(honest).records["success"].eq(False)).sum())
    passed, text = seen(path, reattack=2)["standing"]
    assert passed is None
    assert (
        f"0 of 2 standing samples fell when attacked again with the same attack and seed; {standing - 2} were" in text
    )
    assert seen(path, reattack=0)["standing"] == (None, f"{standing} standing samples are unverified.")


def test_the_command_never_says_passed_of_samples_that_were_not_attacked_again(honest, capsys):
    assert main(["leaderboard", "check", str(honest), "--reattack", "1"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "standing" in line and "sample" in line][:1]
    assert "unverified" in line
    assert "passed" not in line


def test_a_success_that_was_cleared_contradicts_its_row(honest, tmp_path):
    sent = forge(honest, tmp_path / "sent", rows=lift)
    passed, text = seen(sent)["records"]
    assert passed is False
    assert "a claim verified within eps that counts as no success" in text
    assert "a negative margin within eps that counts as no success" in text
    with pytest.raises(BadData, match="contradict themselves"):
        records_file.read(sent)


def test_a_negative_margin_alone_contradicts_a_row_without_success(honest, tmp_path):
    def keep_margin(row: dict[str, Any]) -> None:
        margin = row["margin"]
        lift_whole(row)
        row["margin"] = margin

    passed, text = seen(forge(honest, tmp_path / "sent", rows=keep_margin))["records"]
    assert passed is False
    assert "negative margin" in text


def test_an_image_that_breaks_the_model_is_found_though_its_row_claims_nothing(honest, tmp_path):
    found = seen(forge(honest, tmp_path / "sent", rows=lift_whole), reattack=0)
    assert found["records"][0] is True, "the rows alone are consistent"
    passed, text = found["claims"]
    assert passed is False
    fell = Result.load(honest).records
    hidden = int((fell["success"] & fell["clean_ok"]).sum())
    assert f"{hidden} images break the model although their records claim no success" in text


@pytest.mark.parametrize("keep", [pytest.param(True, marks=pytest.mark.long), False])
def test_rows_and_images_that_fit_each_other_fall_when_attacked_again(honest, tmp_path, keep):
    sent = forge(honest, tmp_path / "sent", rows=lift_whole, images=clean_images)
    if not keep:
        for file in (sent / "shards").glob("*.safetensors"):
            file.unlink()
    found = seen(sent, reattack=8)
    assert found["claims"][0] is not False
    passed, text = found["standing"]
    assert passed is False
    assert "fell when attacked again" in text
    if keep:  # the command once: each check starts a process
        assert main(["leaderboard", "check", str(sent)]) == 2


@pytest.mark.parametrize(
    ("part", "value"),
    [("attack", {"steps": 40, "name": "pgd"}), ("threat", {"eps": 8 / 255})],
)
def test_records_of_a_weaker_run_do_not_pass_for_those_of_a_stronger_one(honest, tmp_path, part, value):
    sent = forge(honest, tmp_path / "sent", lambda manifest: manifest["spec"][part].update(value))
    assert seen(sent)["standing"][0] is False


@pytest.mark.parametrize("where", ["manifest", "rows"])
def test_a_model_that_draws_nothing_is_not_checked_as_a_random_one(honest, tmp_path, where):
    def say_random(manifest: dict[str, Any]) -> None:
        if where == "manifest":
            manifest["spec"]["model"]["eot"] = 20

    def redraw(row: dict[str, Any]) -> None:
        if where == "rows":
            row["redrawn"] = 0.0

    sent = forge(honest, tmp_path / "sent", say_random, redraw)
    passed, text = seen(sent)["model"]
    assert passed is False
    assert "draws no random numbers" in text


def test_samples_that_somebody_chose_are_not_a_run(honest, tmp_path):
    sent = forge(honest, tmp_path / "sent", keep=lambda row: not row["success"] or row["label"] == 3)
    passed, text = seen(sent, reattack=0)["samples"]
    assert passed is False
    assert "not the first ones" in text


def test_a_run_whose_shards_were_deleted_is_not_taken_until_they_are_done_again(honest, tmp_path):
    sent = tmp_path / "sent"
    shutil.copytree(honest, sent)
    bindings = {path: read_binding(path) for path in (sent / "shards").glob("*.parquet")}
    (first,) = [path for path, binding in bindings.items() if binding and not binding.previous]
    first.unlink()
    with pytest.raises(BadData, match="lacks 1 of its shards"):
        records_file.read(sent)
    execution = ra.Execution(wave_size=8)
    ra.evaluate("resnet20-natural", DATA, ra.LInf(EPS), "pgd:steps=5", out=sent, execution=execution)
    assert len(records_file.read(sent).records) == LIMIT


def test_a_shard_of_a_weaker_run_or_a_contradictory_one_beside_the_true_ones_is_refused(honest, tmp_path):
    weaker = tmp_path / "weaker"
    ra.evaluate("resnet20-natural", DATA, ra.LInf(EPS), "fgsm", out=weaker)
    lifted = forge(honest, tmp_path / "lifted", rows=lift_whole)
    for other, says in ((weaker, "belongs to another run"), (lifted, "contradict each other")):
        sent = tmp_path / f"sent-{other.name}"
        shutil.copytree(honest, sent)
        for file in (other / "shards").iterdir():
            shutil.copy(file, sent / "shards")
        assert says in seen(sent)["records"][1]
        with pytest.raises(BadRequest, match=says):
            gather([sent])


def test_an_honest_run_with_targets_and_a_random_model_are_not_accused(tmp_path):
    for rule in (ra.RandomTarget(), ra.LeastLikely()):
        out = tmp_path / rule.identity
        ra.evaluate("resnet20-natural", DATA, ra.ThreatModel(ra.LInf(EPS), rule), "pgd:steps=3", out=out, limit=4)
        assert all(passed is not False for passed, _ in seen(out).values()), seen(out)
    noisy, few = "noise:copies=1|resnet20-natural", ra.Search(eot=2)
    ra.evaluate(noisy, DATA, ra.LInf(EPS), "pgd:steps=1", out=tmp_path / "noise", limit=2, search=few)
    assert all(passed is not False for passed, _ in seen(tmp_path / "noise").values())


SLOW_ATTACKS = [
    pytest.param(slow, marks=pytest.mark.long) for slow in ("cw:search_steps=2,steps=10", "boundary:queries=50")
]


@pytest.mark.parametrize("attack", ["fmn:steps=10", "transfer", *SLOW_ATTACKS])
def test_honest_runs_of_other_kinds_of_attacks_pass(tmp_path, attack):
    ra.evaluate("resnet20-natural", DATA, ra.L2(0.5), attack, out=tmp_path / "run", limit=8)
    found = seen(tmp_path / "run")
    assert all(passed is not False for passed, _ in found.values()), found


@pytest.fixture(scope="module")
def confirmed(tmp_path_factory) -> Path:
    """A run on all samples, and one that confirms it on a few."""
    out: Path = tmp_path_factory.mktemp("confirmed")
    weak, search = "bim:steps=1,rel_step=0.01", ra.Search(confirm="bim:steps=3")
    result = ra.evaluate("resnet20-pgd", DATA, ra.LInf(EPS), weak, limit=12, out=out, search=search)
    assert 0 < len(result.parts["confirm"].records) < 12
    return out


def sent(tmp_path: Path, *runs: Path) -> dict[str, tuple[bool | None, str]]:
    added = add(EntryCard(name="m"), list(runs), tmp_path / "board")
    return {check.rule: (check.passed, check.text) for check in added.check(None, None, CPU, 0)}


def test_a_confirming_run_needs_the_complete_run_it_confirms_in_the_same_submission(confirmed, honest, tmp_path):
    assert sent(tmp_path / "both", confirmed / "bim", confirmed / "confirm")["confirms"][0] is True
    passed, text = sent(tmp_path / "alone", confirmed / "confirm")["confirms"]
    assert passed is False
    assert "no run of this submission" in text
    assert "confirms" not in sent(tmp_path / "plain", honest)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda about: about.update(confirms=[about["key"]]), "confirms no complete run"),
        (lambda about: about["spec"]["threat"].update(eps=1 / 255), "another model, dataset or threat"),
    ],
)
def test_a_run_of_chosen_samples_does_not_pass_for_a_confirming_one(confirmed, tmp_path, change, says):
    forged = forge(confirmed / "confirm", tmp_path / "forged", change)
    passed, text = sent(tmp_path, confirmed / "bim", forged)["confirms"]
    assert passed is False
    assert says in text


def test_a_confirming_run_has_only_samples_of_the_run_it_confirms(confirmed, tmp_path):
    few = forge(confirmed / "bim", tmp_path / "few", keep=lambda row: row["label"] == 8)
    passed, text = sent(tmp_path, few, confirmed / "confirm")["confirms"]
    assert passed is False
    assert "samples that a run it confirms does not have" in text
