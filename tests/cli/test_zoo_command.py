"""`assay zoo`: models that are not what their cards say are caught, and the cards say what was measured."""

import json
import math
import pickle
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benchmarks import measure_defenses, measure_zoo
from tools import defenses_page, zoo_table

from robustassay import models
from robustassay.cli import main
from robustassay.data import load
from robustassay.models import verification
from robustassay.models.card import ModelCard
from robustassay.models.verification import binomial_p_value, verify
from robustassay.models.weights import sha256_of
from robustassay.models.zoo import EMBEDDED

NAME, IMAGES = "resnet20-natural", 100


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A zoo of one honest model."""
    for suffix in ("json", "safetensors"):
        shutil.copy(EMBEDDED / f"{NAME}.{suffix}", tmp_path)
    return tmp_path


def rewrite(folder: Path, **changes: object) -> None:
    """Put other words on the card."""
    card = replace(models.card(NAME, folder), **changes)  # type: ignore[arg-type]
    (folder / f"{NAME}.json").write_text(card.to_json())


def weights(folder: Path) -> Path:
    return folder / f"{NAME}.safetensors"


def verdict(folder: Path, capsys: pytest.CaptureFixture[str], images: int = IMAGES) -> tuple[int, dict[str, object]]:
    """The exit code and what the command says of the one model."""
    code = main(["zoo", "verify", "--folder", str(folder), "--limit", str(images), "--json"])
    (found,) = json.loads(capsys.readouterr().out)
    return code, found


def test_an_honest_model_is_counted_rightly(folder, capsys):
    sample = load("cifar10-1k").take(IMAGES)
    said = torch.cat([models.load(NAME)(sample.images(range(at, at + 20))) for at in range(0, IMAGES, 20)]).argmax(1)
    right = sum(one == label for one, label in zip(said.tolist(), sample.labels.tolist(), strict=True))
    code, found = verdict(folder, capsys)
    assert code == 0
    assert found["verdict"] == "ok"
    assert found["problem"] is None
    assert (found["correct"], found["images"]) == (right, IMAGES)
    assert found["card_accuracy"] == models.card(NAME).clean_accuracy


def test_a_card_that_lies_about_its_hash(folder, capsys):
    rewrite(folder, sha256="0" * 64)
    code, found = verdict(folder, capsys)
    assert code == 1
    assert found["verdict"] == "changed"
    assert sha256_of(weights(folder))[:12] in str(found["problem"])


@pytest.mark.parametrize("place", [8, -1], ids=["in the header", "the last weight"])
def test_one_flipped_byte(folder, capsys, place):
    content = bytearray(weights(folder).read_bytes())
    content[place] ^= 1
    weights(folder).write_bytes(content)
    code, found = verdict(folder, capsys)
    assert code == 1
    assert found["verdict"] == "changed"


@pytest.mark.parametrize("claimed", [0.4, 1.0])
def test_a_card_that_lies_about_its_accuracy(folder, capsys, claimed):
    """One that boasts to be perfect is caught by a single mistake."""
    rewrite(folder, clean_accuracy=claimed)
    code, found = verdict(folder, capsys)
    assert code == 1
    assert found["verdict"] == "inconsistent"
    assert f"{claimed:.1%}" in str(found["problem"])


def test_other_weights_under_a_card_with_their_hash(folder, capsys):
    """The hash fits, the accuracy does not: those of adversarial training lose a fifth of it."""
    shutil.copy(EMBEDDED / "resnet20-pgd.safetensors", weights(folder))
    rewrite(folder, sha256=sha256_of(weights(folder)))
    code, found = verdict(folder, capsys, 300)
    assert code == 1
    assert found["verdict"] == "inconsistent"


def test_code_that_computes_something_else(folder, capsys, monkeypatch):
    """Bytes and card are right, and the network is not: a layer that was changed since."""
    monkeypatch.setattr(torch.nn.functional, "relu", torch.nn.functional.silu)
    assert verdict(folder, capsys)[1]["verdict"] == "inconsistent"


class Trap:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("suffix", ["safetensors", "pt", "pth", "pkl"])
def test_pickles_are_refused_and_never_run(folder, capsys, suffix):
    weights(folder).unlink()
    file = folder / f"{NAME}.{suffix}"
    file.write_bytes(pickle.dumps(Trap(folder / "sprung")))
    rewrite(folder, sha256=sha256_of(file))
    code, found = verdict(folder, capsys)
    assert code == 1
    assert found["verdict"] == ("unreadable" if suffix == "safetensors" else "changed")
    assert "safetensors" in str(found["problem"])
    assert not (folder / "sprung").exists()
    pickle.loads(pickle.dumps(Trap(folder / "sprung")))
    assert (folder / "sprung").exists(), "the trap works"


def test_a_model_of_other_classes_is_said_to_be_one(folder, capsys):
    rewrite(folder, classes=100)
    code, found = verdict(folder, capsys)
    assert code == 1
    assert found["verdict"] == "unreadable"


def test_all_are_tried_though_one_is_bad(folder, capsys):
    for suffix in ("json", "safetensors"):
        shutil.copy(EMBEDDED / f"mobilenet025-natural.{suffix}", folder)
    rewrite(folder, sha256="0" * 64)
    assert main(["zoo", "verify", "--folder", str(folder), "--limit", "50"]) == 1
    out, err = capsys.readouterr()
    lines = {line.split()[0]: line.split()[1] for line in out.splitlines() if "natural" in line}
    assert lines == {NAME: "changed", "mobilenet025-natural": "ok"}
    assert "[1/2] mobilenet025-natural: ok" in err
    assert "[2/2] resnet20-natural: changed" in err
    assert f"1 of 2 models differ from their cards: {NAME}." in err


def test_a_random_model_gets_the_same_verdict_each_time():
    sample = load("cifar10-1k").take(60)
    first, second = (verify("vgg16-rse", sample) for _ in range(2))
    assert first == second
    assert first.verdict == "ok"


@pytest.mark.parametrize(("right", "images", "promised"), [(7, 20, 0.7), (20, 20, 0.9), (0, 6, 0.3), (14, 20, 0.7)])
def test_chance_is_that_of_all_counts_no_likelier(right, images, promised):
    likely = [math.comb(images, k) * promised**k * (1 - promised) ** (images - k) for k in range(images + 1)]
    expected = sum(one for one in likely if one <= likely[right] * (1 + 1e-9))
    assert binomial_p_value(right, images, promised) == pytest.approx(expected)


def test_honest_cards_pass_and_five_points_do_not():
    """The error rate of the whole check, summed over all counts, is the level at most; and it can see."""
    promised, images = 0.9, 150
    rejected = [
        count for count in range(images + 1) if binomial_p_value(count, images, promised) < verification.SIGNIFICANCE
    ]
    wrongly = sum(math.comb(images, k) * promised**k * (1 - promised) ** (images - k) for k in rejected)
    assert 0 < wrongly <= verification.SIGNIFICANCE
    assert binomial_p_value(850, 1000, promised) < verification.SIGNIFICANCE
    assert binomial_p_value(950, 1000, promised) < verification.SIGNIFICANCE


def test_what_does_not_exist_is_said_at_once(folder, capsys):
    assert main(["zoo", "verify", "resnet2-natural"]) == 2
    assert NAME in capsys.readouterr().err
    assert main(["zoo", "show", "nonsense"]) == 2
    assert main(["zoo", "verify", "--folder", str(folder / "nowhere")]) == 2
    assert "no model" in capsys.readouterr().err


def test_show_prints_the_card(capsys):
    assert main(["zoo", "show", "vgg16-rse", "--json"]) == 0
    card = models.card("vgg16-rse")
    assert ModelCard.from_json(capsys.readouterr().out) == card
    assert main(["zoo", "show", "vgg16-rse"]) == 0
    shown = capsys.readouterr().out
    for text in (card.title, card.sha256, card.hardware, "87.3", "923,130", "noise_in=0.2", card.notes, "10,000"):
        assert text in shown


def test_list_prints_every_card(capsys):
    assert main(["zoo", "list", "--json"]) == 0
    cards = [ModelCard.from_json(json.dumps(content)) for content in json.loads(capsys.readouterr().out)]
    assert cards == [models.card(name) for name in models.names()]
    assert main(["zoo", "list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in models.names())
    assert main(["list", "models"]) == 0
    assert capsys.readouterr().out == shown


# ---------------------------------------------------------------- what the cards say of express


@pytest.mark.parametrize("name", models.names())
def test_every_card_holds_its_express_accuracy(name):
    card = models.card(name)
    said = card.measurements["express"]
    assert said["sha256"] == card.sha256, "measure these weights: python -m benchmarks.measure_zoo"
    assert said["robust_accuracy"] == pytest.approx(said["robust"] / said["images"])
    assert said["doubtful"] <= said["robust"] <= said["clean"] <= said["images"]
    assert said["images"] >= 100
    assert f"eval {name} " in said["command"]
    assert f"--limit {said['images']}" in said["command"]


def test_a_measurement_is_what_its_command_prints(tmp_path, capsys):
    found = measure_zoo.measure("resnet20-pgd", 4, tmp_path / "a", "cpu")
    assert main([*found["command"].split()[1:], "--json", "--out", str(tmp_path / "b")]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert 0 < found["robust_accuracy"] == said["robust_accuracy"] < 1
    assert found["doubtful"] == said["doubtful"]
    assert found["clean"] == round(4 * said["clean_accuracy"])


def test_a_card_is_measured_again_for_other_weights_or_more_images():
    card = replace(models.card(NAME), measurements={"express": {"sha256": models.card(NAME).sha256, "images": 200}})
    assert measure_zoo.is_known(card, 200)
    assert not measure_zoo.is_known(card, 201)
    assert not measure_zoo.is_known(replace(card, sha256="0" * 64), 100)
    assert not measure_zoo.is_known(replace(card, measurements={}), 100)


def test_a_new_measurement_leaves_the_others(folder, monkeypatch):
    rewrite(folder, measurements={"express": {"images": 1}, "certified_accuracy": 0.4})
    measure_zoo.add(NAME, {"express": {"images": 2}}, folder)
    assert models.card(NAME, folder).measurements == {"express": {"images": 2}, "certified_accuracy": 0.4}
    assert models.card(NAME, folder).sha256 == models.card(NAME).sha256


def test_the_table_replaces_what_stands_between_its_marks():
    before = f"above\n{zoo_table.BEGIN}\n| stale |\n{zoo_table.END}\nbelow\n"
    after = zoo_table.renewed(before)
    assert after == f"above\n{zoo_table.BEGIN}\n{zoo_table.zoo_table()}{zoo_table.END}\nbelow\n"
    assert zoo_table.renewed(after) == after
    with pytest.raises(SystemExit, match="marks"):
        zoo_table.renewed("no table here")


# ---------------------------------------------------------------- what the cards say of defended models


def row(adaptive: int, **naive: tuple[int, int]) -> defenses_page.Row:
    """Of 100 images, so many stand; of a naive attacker, and so many fall to it and not to the adaptive one."""
    found = {"adaptive": {"robust": adaptive, "images": 100}}
    for attacker, (robust, alone) in naive.items():
        more = {"only_adaptive_breaks": robust - adaptive + alone, "only_this_breaks": alone}
        found[attacker] = {"robust": robust, "images": 100, **more}
    return defenses_page.Row("jpeg", NAME, "Linf 8/255", found)


def test_a_gap_is_more_than_chance():
    """Six images of six are two in 64 by chance, five of five two in 32."""
    assert row(5, unaware=(11, 0)).p_value("unaware") == pytest.approx(2 / 64)
    assert row(5, unaware=(10, 0)).p_value("unaware") == pytest.approx(2 / 32)
    assert row(40, unaware=(5, 35)).p_value("unaware") == 1, "weaker than a naive attacker is no false security"


def test_the_page_says_so_where_there_is_no_gap():
    told = defenses_page.sentence(row(5, unaware=(40, 2), one_draw=(8, 2)))
    assert "leaves 5% (broken)." in told
    assert re.search(r"Gap: non-adaptive 40% \(p = .e-\d+\)\.", told)
    assert "No gap: one draw 8% (p = 0.5)." in told
    assert "leaves 12% (not broken)." in defenses_page.sentence(row(12, unaware=(40, 0)))


def test_the_page_is_what_the_cards_say():
    assert defenses_page.PAGE.read_text() == defenses_page.page(), "run python -m tools.defenses_page"


def test_every_case_is_measured_for_the_weights_of_today():
    for case in measure_defenses.CASES:
        for attacker in case.attackers:
            said = measure_defenses.known(case, attacker)
            assert said.get("images", 0) >= 100, f"run python -m benchmarks.measure_defenses: {case}, {attacker}"
            assert said["robust"] <= said["clean"] <= said["images"]


@pytest.mark.long
def test_attackers_are_who_they_say(tmp_path, capsys):
    """On rounding: who follows the zero gradient gets least, who knows of it most; commands give the same numbers."""
    case, images = measure_defenses.Case("bit-depth:bits=3", NAME, 4, ()), 10
    results = {
        one: measure_defenses.attack(case, one, images, tmp_path, "cpu")
        for one in ("adaptive", "own_gradient", "unaware")
    }
    found = {one: measure_defenses.cell(case, one, result, results["adaptive"]) for one, result in results.items()}
    for said in found.values():
        assert said["robust"] - found["adaptive"]["robust"] == said["only_adaptive_breaks"] - said["only_this_breaks"]
    assert found["own_gradient"]["robust"] > found["unaware"]["robust"] >= found["adaptive"]["robust"]
    assert "OwnGradient" in found["own_gradient"]["command"]
    for one in ("unaware", "adaptive"):
        words = shlex.split(found[one]["command"])[1:]
        assert main([*words, "--json", "--out", str(tmp_path / f"{one}-again")]) == 0
        (said,) = json.loads(capsys.readouterr().out)
        assert round(said["robust_accuracy"] * images) == found[one]["robust"]
        assert ("naive|" in said["model"]) == (one == "unaware")
