import dataclasses
import json
import math
import re
import shlex
import statistics
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch import nn

import assay
from assay import data, models
from assay.analysis import trust
from assay.eps import format_eps
from assay.errors import BadRequest, StoreFailed
from assay.models.card import ModelCard
from assay.models.weights import hash_state
from assay.registry import lookup
from assay.report import build, gallery, pictures, words
from assay.store import Store

SPACE = "\u202f"
WEAK_PGD = "pgd:steps=2,rel_step=0.0001"
FACTORY = """
import torch
def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3)).eval()
"""

# ---------------------------------------------------------------- runs to report


@pytest.fixture(scope="module")
def toy():
    """A linear model on images it mostly gets right: FGSM is then the best attack there is."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 3)).eval()
    model[1].weight.data = torch.randn(3, 48, generator=generator)
    model[1].bias.data = -model[1].weight.data.sum(1) / 2
    x = torch.rand(40, 3, 4, 4, generator=generator)
    y = model(x).argmax(1)
    y[::10] = (y[::10] + 1) % 3
    return SimpleNamespace(model=model, data=data.from_arrays(x, y, name="toys"))


@pytest.fixture(scope="module")
def runs(toy, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    evaluate = assay.evaluate
    evaluate(
        toy.model, toy.data, assay.LInf(0.02), ["uniform-noise", "fgsm", "pgd:steps=20"], out=folder / "a", name="toy"
    )
    evaluate(toy.model, toy.data, assay.L2(0.1), "pgd:steps=20", out=folder / "b" / "deep", name="toy")
    return folder


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory):
    return Page(build([runs], tmp_path_factory.mktemp("site")))


def rewrite(store, change):
    """Replace the records of a run by what `change` makes of each."""
    records = [row | (change(row) or {}) for row in store.records().to_pylist()]
    for shard in (store.path / "shards").iterdir():
        shard.unlink()
    store.append(pa.Table.from_pylist(records, schema=store.records().schema))


class Page(HTMLParser):
    """A page taken apart: its elements, its rows by the run they link to, and its text."""

    def __init__(self, path):
        super().__init__()
        self.html = path.read_text(encoding="utf-8")
        self.elements, self.rows, self.text, self.commands = [], [], "", []
        self.open: Counter[str] = Counter()
        self.feed(self.html)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.elements.append((tag, attributes))
        self.open[tag] += 1
        if tag == "tr":
            self.rows.append(SimpleNamespace(cells=[], links=[]))
        elif tag in ("td", "th"):
            self.rows[-1].cells.append("")
        elif tag == "a" and self.open["tr"]:
            self.rows[-1].links.append(attributes["href"].removeprefix("#"))
        elif tag == "pre":
            self.commands.append("")

    def handle_endtag(self, tag):
        self.open[tag] -= 1

    def handle_data(self, text):
        self.text += "" if self.open["style"] else text
        if self.open["td"] or self.open["th"]:
            self.rows[-1].cells[-1] += text
        if self.open["pre"]:
            self.commands[-1] += text

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def row(self, key, width):
        (row,) = [row for row in self.rows if row.links[:1] == [key] and len(row.cells) == width]
        return [" ".join(cell.split()) for cell in row.cells]


def wilson(count, total, z=1.959963984540054):
    """The textbook formula, written again."""
    share, spread = count / total, z * z / total
    centre = (share + spread / 2) / (1 + spread)
    reach = z / (1 + spread) * math.sqrt(share * (1 - share) / total + spread / (4 * total))
    return max(0.0, centre - reach), min(1.0, centre + reach)


# ---------------------------------------------------------------- the numbers are those of the records


def test_every_run_has_its_row_of_numbers(runs, page):
    for manifest in runs.rglob("manifest.json"):
        store = Store.at(manifest.parent)
        rows = store.records().to_pylist()
        correct = [row for row in rows if row["clean_ok"]]
        broken = [row for row in correct if row["success"]]
        robust = len(correct) - len(broken)
        low, high = wilson(robust, len(rows))
        attack, samples, clean, robust_cell, success, distance, forward, backward, _ = page.row(
            store.manifest()["key"], 9
        )
        assert attack.startswith(store.manifest()["spec"]["attack"]["name"])
        assert samples == "40"
        assert clean == f"{100 * len(correct) / 40:.1f}" == "90.0"
        assert robust_cell.startswith(f"{100 * robust / 40:.1f}")
        assert robust_cell.endswith(f"{100 * low:.1f}–{100 * high:.1f}")
        assert success == f"{100 * len(broken) / len(correct):.1f}"
        assert distance == (f"{statistics.median(row['distance'] for row in broken):.3g}" if broken else "–")
        assert forward == f"{statistics.mean(row['forwards'] for row in rows):.2f}"
        assert backward == f"{statistics.mean(row['backwards'] for row in rows):.2f}"


def test_the_headline_is_the_worst_case_over_attacks(runs, page):
    stores = [Store.at(path) for path in (runs / "a").iterdir()]
    fallen = {row["sample_id"] for store in stores for row in store.records().to_pylist() if row["success"]}
    robust = 40 - len(fallen)
    low, high = wilson(robust, 40)
    assert 0 < robust < 36
    keys = {store.manifest()["key"] for store in stores}
    (row,) = [row for row in page.rows if set(row.links) == keys]
    clean, headline = (" ".join(cell.split()) for cell in row.cells[1:3])
    assert clean == f"clean 90.0{SPACE}%".replace(SPACE, " ")
    assert headline == f"robust {100 * robust / 40:.1f} % {100 * low:.1f}–{100 * high:.1f} {robust} of 40"
    (bar,) = [bar for bar in page.all("span") if bar.get("class") == "bar-robust"][:1]
    assert bar["style"] == f"width: {100 * robust / 40:.2f}%"


def test_the_summary_counts(page):
    assert "1 model met 3 attacks under 2 threats (L∞ 0.02 and L2 0.1) on 40 samples of toys, measured 20" in page.text


def test_a_sound_study_is_called_sound(page):
    assert "Nothing in these records speaks against the numbers." in page.text
    assert "No attack lost to a weaker one on the same samples (3 pairs compared)." in page.text
    assert "Every run covers 40 samples." in page.text


# ---------------------------------------------------------------- what to trust


def test_claims_that_did_not_verify_are_named(toy, tmp_path):
    assay.evaluate(toy.model, toy.data, assay.LInf(0.02), "pgd:steps=20", out=tmp_path / "run")
    store = Store.at(tmp_path / "run")
    claims = sum(row["claimed"] and row["clean_ok"] for row in store.records().to_pylist())
    won = [row["sample_id"] for row in store.records().to_pylist() if row["success"] and row["clean_ok"]][:2]
    lie = {"valid": False, "problem": "farther than eps", "success": False, "uint8_ok": None}
    rewrite(store, lambda row: lie if row["sample_id"] in won else None)
    page = Page(build([tmp_path], tmp_path / "site"))
    assert f"2 of {claims} claimed successes did not verify. None of them is counted anywhere." in page.text
    assert "2 × farther than eps" in page.text
    assert page.row(store.manifest()["key"], 6)[4] == "2"
    assert "checks found something" in page.text


def test_a_stronger_attack_that_lost_is_flagged(toy, tmp_path):
    assay.evaluate(toy.model, toy.data, assay.LInf(0.02), ["fgsm", WEAK_PGD], out=tmp_path / "run", name="toy")
    page = Page(build([tmp_path], tmp_path / "site"))
    broken = {
        name: sum(row["success"] and row["clean_ok"] for row in Store.at(tmp_path / "run" / name).records().to_pylist())
        for name in ("fgsm", "pgd")
    }
    assert broken["fgsm"] > broken["pgd"] + 5
    assert "toy, L∞ 0.02, pgd: attack may have failed (p < 0.001)." in page.text
    assert f"fgsm alone broke {broken['fgsm'] - broken['pgd']} and this attack alone 0" in page.text


def frame(broken, backwards, iterations, clean_wrong=""):
    """Records of samples 0 to 9, of which those in `broken` fell."""
    rows = [
        {
            "sample_id": sample,
            "clean_ok": sample not in clean_wrong,
            "success": sample in broken,
            "backwards": backwards,
            "iterations": iterations,
        }
        for sample in "0123456789"
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("weak", "strong", "flagged"),
    [
        (frame("0123", 1, 1), frame("012", 40, 40), True),  # one step beats many
        (frame("0123", 1, 1), frame("0124", 40, 40), False),  # a tie
        (frame("012", 1, 1), frame("0123", 40, 40), False),
        (frame("0123", 0, 5000), frame("012", 40, 40), True),  # queries beat gradients
        (frame("0123", 0, 5000), frame("012", 1, 1), False),  # one step may lose to a patient attack
        (frame("0123", 40, 40), frame("012", 100, 100), False),  # equals
        (frame("0129", 1, 1, "9"), frame("012", 40, 40, "9"), False),  # clean mistakes are no victory
    ],
)
def test_which_pairs_of_attacks_say_something(weak, strong, flagged):
    upsets = trust.rank({"weak": weak, "strong": strong}).upsets
    assert [(upset.stronger, upset.weaker) for upset in upsets] == ([("strong", "weak")] if flagged else [])


def test_noise_must_lose_to_everything():
    parts = {"noise": frame("0123", 0, 10), "fgsm": frame("0", 1, 1), "square": frame("4", 0, 1000)}
    ranking = trust.rank(parts, noise=["noise"])
    assert ranking.pairs == 2
    assert {(upset.stronger, upset.only_weaker, upset.only_stronger) for upset in ranking.upsets} == {
        ("fgsm", 3, 0),
        ("square", 4, 1),
    }
    assert ranking.upsets[0].chance == pytest.approx(1 / 8)


def test_partial_runs_are_named_and_left_out_of_the_headline(toy, tmp_path):
    assay.evaluate(toy.model, toy.data, assay.LInf(0.02), "fgsm", out=tmp_path / "fgsm", name="toy", limit=30)
    assay.evaluate(toy.model, toy.data, assay.LInf(0.02), "pgd:steps=5", out=tmp_path / "pgd", name="toy", limit=10)
    page = Page(build([tmp_path], tmp_path / "site"))
    assert "toy, L∞ 0.02, pgd: 10 of 30; left out of the headline" in page.text
    partial = Store.at(tmp_path / "pgd").manifest()["key"]
    (headline,) = [row for row in page.rows if len(row.cells) == 4 and row.links]
    assert partial not in headline.links
    assert "No attack followed the gradient for many steps" in page.text


def test_a_run_without_records_is_shown_as_such(runs, tmp_path):
    manifest = json.loads((runs / "b" / "deep" / "manifest.json").read_text())
    Store.open(tmp_path / "started", manifest)
    page = Page(build([tmp_path / "started"], tmp_path / "site"))
    assert "No run has a record yet." in page.text
    assert page.row(manifest["key"], 9)[1:6] == ["0", "–", "– 0.0–100.0", "–", "–"]


def test_one_specification_in_two_folders_is_one_run(toy, tmp_path):
    for part in (1, 2):
        assay.evaluate(toy.model, toy.data, assay.LInf(0.02), "fgsm", out=tmp_path / str(part), shard=(part, 2))
    page = Page(build([tmp_path, tmp_path / "1"], tmp_path / "site"))
    assert len(page.all("article")) == 1
    assert page.row(Store.at(tmp_path / "1").manifest()["key"], 9)[1] == "40"


def test_models_of_one_name_are_told_apart(toy, tmp_path):
    other = nn.Sequential(nn.Flatten(), nn.Linear(48, 3)).eval()
    for folder, model in (("a", toy.model), ("b", other)):
        assay.evaluate(model, toy.data, assay.LInf(0.02), "fgsm", out=tmp_path / folder, name="same", limit=5)
    text = Page(build([tmp_path], tmp_path / "site")).text
    assert all(f"same ({hash_state(model)[:12]})" in text for model in (toy.model, other))


# ---------------------------------------------------------------- the page as a page


def test_the_page_loads_nothing(page):
    loads = [attributes.get("src", "") for _, attributes in page.elements if "src" in attributes]
    loads += [attributes["href"] for attributes in page.all("link")]
    assert all(address.startswith("data:") for address in loads)
    assert not re.search(r"url\(|@import|https?://", page.html)
    assert not page.all("script")


def test_the_page_is_sound_html(page):
    ids = Counter(attributes["id"] for _, attributes in page.elements if "id" in attributes)
    assert max(ids.values()) == 1
    assert {attributes["href"].removeprefix("#") for attributes in page.all("a")} <= ids.keys()
    assert len(page.all("caption")) == len(page.all("table")) == 4
    assert all("scope" in attributes for attributes in page.all("th"))
    assert [tag for tag, _ in page.elements if tag in ("h1", "h2")] == ["h1"] + 5 * ["h2"]


def test_the_page_suits_the_dark_the_phone_and_the_printer(page):
    for media in ("(prefers-color-scheme: dark)", "(max-width:", "print", "(prefers-reduced-motion: reduce)"):
        assert f"@media {media}" in page.html
    assert '<meta name="viewport"' in page.html


def test_names_are_shown_and_never_run(toy, tmp_path):
    name = """<script>alert(1)</script> "quoted' &amp; <b>"""
    assay.evaluate(toy.model, toy.data, assay.LInf(0.02), "fgsm", out=tmp_path / "run", name=name, limit=5)
    page = Page(build([tmp_path / "run"], tmp_path / "site"))
    assert name in page.text
    assert not page.all("script")
    assert not page.all("b")[5:]  # the five ticks of the scale are the only ones


def test_building_twice_gives_the_same_page_and_nothing_else(runs, tmp_path):
    first = build([runs], tmp_path / "site").read_bytes()
    (tmp_path / "site" / "index.html").write_text("old")
    index = build([runs], tmp_path / "site")
    assert index == tmp_path / "site" / "index.html"
    assert index.read_bytes() == first
    assert list(index.parent.iterdir()) == [index]


@pytest.mark.parametrize("folder", ["empty", "missing", "other"])
def test_a_folder_without_runs_is_refused(tmp_path, folder):
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text("")
    with pytest.raises(BadRequest, match="holds no run: give the folder"):
        build([tmp_path / folder], tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_no_folder_at_all_is_refused(tmp_path):
    with pytest.raises(BadRequest, match="at least one run"):
        build([], tmp_path)


def test_a_file_in_the_way_is_refused(runs, tmp_path):
    (tmp_path / "site").write_text("")
    with pytest.raises(BadRequest, match="is a file"):
        build([runs], tmp_path / "site")


def test_a_strange_manifest_is_refused(tmp_path):
    Store.open(tmp_path / "run", {"key": "1", "spec": {}})
    with pytest.raises(StoreFailed, match="not a manifest this version"):
        build([tmp_path / "run"], tmp_path / "site")


def test_importing_the_report_does_not_import_torch():
    code = "import sys, assay.report; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---------------------------------------------------------------- repeating a run


def repeated(command, dataset):
    """Run a command's evaluation through the library and return its key."""
    option = dict(zip(command[3::2], command[4::2], strict=True))
    norm = lookup("norm", option["--norm"])(option["--eps"])
    rule = assay.RandomTarget() if option.get("--targeted") == "random" else None
    budget = int(option["--query-budget"]) if "--query-budget" in option else None
    result = assay.evaluate(
        command[2],
        dataset,
        assay.ThreatModel(norm, rule),
        option["--attack"],
        seed=int(option["--seed"]),
        limit=int(option["--limit"]),
        query_budget=budget,
    )
    return result.manifest["key"], option["--out"]


def test_the_command_repeats_the_run(toy, tmp_path):
    (tmp_path / "my models.py").write_text(FACTORY)
    model = f"{tmp_path / 'my models.py'}:make"
    third = assay.ThreatModel(assay.L2(1 / 3 + 1e-9), assay.RandomTarget())
    assay.evaluate(
        model, toy.data, assay.LInf(8 / 255), "pgd:steps=3,rel_step=0.3", out=tmp_path / "1", limit=4, seed=7
    )
    assay.evaluate(model, toy.data, third, "mim:decay=0.3", out=tmp_path / "2", limit=4, query_budget=9)
    page = Page(build([tmp_path], tmp_path / "site"))
    keys = {Store.at(tmp_path / run).manifest()["key"] for run in "12"}
    commands = [shlex.split(command) for command in page.commands]
    assert {repeated(command, toy.data) for command in commands} == {(key, f"runs/{key}") for key in keys}
    assert all(command[:2] == ["assay", "eval"] for command in commands)
    assert f"your copy of toys after --data; its SHA-256 begins with {toy.data.sha256[:12]}" in page.text


def test_a_model_handed_over_in_python_has_no_command(page):
    assert not page.commands
    assert "The model was handed over in Python" in page.text


def card(name):
    facts: dict[str, Any] = dict.fromkeys((field.name for field in dataclasses.fields(ModelCard)), "")
    facts |= {
        "title": "Linear, natural",
        "parameters": 147,
        "recipe": "natural",
        "recipe_fields": {"rate": 0.1},
        "epochs": 3,
    }
    return ModelCard(**facts | {"architecture": {"name": "linear", "width": 48}})


def test_an_embedded_model_shows_its_card_and_its_namesake_does_not(toy, tmp_path, monkeypatch):
    other = nn.Sequential(nn.Flatten(), nn.Linear(48, 3)).eval()
    monkeypatch.setattr(models, "names", lambda: ("toy",))
    monkeypatch.setattr(models, "card", card)
    assay.evaluate(toy.model, toy.data, assay.LInf(0.02), "fgsm", out=tmp_path / "run", name="toy", limit=5)
    facts = "Linear, natural linear (width 48) · 147 parameters · recipe natural, 3 epochs"
    for loaded, shown in ((toy.model, True), (other, False)):
        monkeypatch.setattr(models, "load", lambda name, loaded=loaded: loaded)
        page = Page(build([tmp_path / "run"], tmp_path / "site"))
        assert (facts in page.text) == shown
        assert bool(page.commands) == shown


# ---------------------------------------------------------------- the gallery


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A linear model fitted to a few embedded photographs, under an attack that breaks about half of them."""
    few = data.load("cifar10-1k").take(16)
    x = few.images(slice(None)).flatten(1).double()
    target = torch.nn.functional.one_hot(few.labels, 10).double() - 0.1
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10, bias=False)).eval()
    model[1].weight.data = torch.linalg.lstsq(x, target).solution.T.float().contiguous()
    folder = tmp_path_factory.mktemp("photos")
    assay.evaluate(model, few, assay.LInf(24 / 255), ["fgsm", "pgd:steps=5"], out=folder, name="fitted")
    return folder


def test_the_gallery_shows_who_fell_and_who_stood(photos, tmp_path):
    index = build([photos], tmp_path)
    page = Page(index)
    alts = [image["alt"] for image in page.all("img")]
    assert len(page.all("figure")) == 3
    assert len(alts) == 2 * 3 + 1
    assert all(alts)
    assert "The change, magnified 5 times around grey" in alts
    assert "stood, but came closest to falling" in page.text
    assert index.stat().st_size < 2_000_000
    rows = [row for name in ("fgsm", "pgd") for row in Store.at(photos / name).records().to_pylist()]
    lowest = min((row for row in rows if row["success"] and row["clean_ok"]), key=lambda row: row["margin"])
    classes = data.load("cifar10-1k").classes
    assert f"{classes[lowest['label']]} → {classes[lowest['adv_label']]} fell, most clearly wrong" in page.text


def test_data_that_is_not_the_same_is_not_shown(photos, tmp_path, monkeypatch):
    other = data.from_arrays(torch.rand(16, 3, 32, 32), torch.zeros(16, dtype=torch.int64))
    monkeypatch.setattr(data, "load", lambda name: other)
    page = Page(build([photos], tmp_path))
    assert "The cifar10-1k at hand is not the one the run saw" in page.text
    assert not page.all("img")


def test_data_that_cannot_be_loaded_is_not_shown(page):
    assert "The images of toys cannot be loaded by that name" in page.text
    assert not page.all("img")


def test_the_gallery_stays_small(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(gallery, "BUDGET_BYTES", 100)
    page = Page(build([photos], tmp_path))
    assert "Further pictures are left out" in page.text
    assert not page.all("img")


@pytest.mark.parametrize(("channels", "side", "width"), [(1, 8, 96), (3, 32, 96), (3, 224, 112)])
def test_pictures_are_enlarged_or_shrunk_by_whole_factors(channels, side, width):
    x = torch.rand(channels, side, side)
    drawn = pictures.draw(x, (x + 0.1).clamp(0, 1))
    assert (drawn.width, drawn.height, drawn.factor) == (width, width, 5)


@pytest.mark.parametrize(("largest", "factor"), [(8 / 255, 15), (0.5, 1), (1.0, 1), (0.1, 5), (1 / 255, 127)])
def test_the_change_is_magnified_as_far_as_grey_allows(largest, factor):
    assert pictures.magnification(largest) == factor


# ---------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("eps", "text"),
    [(8 / 255, "8/255"), (0.5, "0.5"), (0.2, "0.2"), (12.0, "12"), (1 / 3, "85/255"), (math.pi, "3.141592653589793")],
)
def test_a_radius_reads_back_as_itself(eps, text):
    assert format_eps(eps) == text
    assert lookup("norm", "l2")(text).eps == eps


def test_lists_read_like_sentences():
    assert [words.listed(list(names)) for names in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]
    assert words.count(1, "sample") == "1 sample"
    assert words.count(1000, "sample") == "1,000 samples"
