import copy
import csv
import dataclasses
import json
import math
import re
import shlex
import shutil
import statistics
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from PIL import Image
from torch import nn

import robustassay as ra
from robustassay import attacks, data, models
from robustassay.analysis import trust
from robustassay.eps import format_eps
from robustassay.errors import BadRequest, StoreFailed
from robustassay.models.card import ModelCard
from robustassay.models.weights import hash_state
from robustassay.registry import lookup
from robustassay.report import build, formatting
from robustassay.report.site import breakdown, gallery, pictures, sample_details, sample_pictures, samples
from robustassay.report.site.command import DEFAULT_NORM
from robustassay.report.site.references import papers
from robustassay.report.site.writing import LIST
from robustassay.store import Store
from robustassay.studies import showcase
from tests.support.synthetic_runs import write_runs

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
    evaluate = ra.evaluate
    evaluate(
        toy.model,
        toy.data,
        ra.LInf(0.02),
        ["uniform-noise", "fgsm", "pgd:steps=20"],
        out=folder / "a",
        name="toy",
    )
    evaluate(toy.model, toy.data, ra.L2(0.1), "pgd:steps=20", out=folder / "b" / "deep", name="toy")
    return folder


@pytest.fixture(scope="module")
def site(runs, tmp_path_factory):
    return Site(build([runs], tmp_path_factory.mktemp("site")).parent)


def rewrite(store, change):
    """Replace the records of a run by what `change` makes of each."""
    records = [row | (change(row) or {}) for row in store.records().to_pylist()]
    for shard in (store.path / "shards").iterdir():
        shard.unlink()
    store.append(pa.Table.from_pylist(records, schema=store.records().schema))


class Page(HTMLParser):
    """A page taken apart: its elements, its rows by the links in them, its definitions and its text."""

    def __init__(self, path):
        super().__init__()
        self.path, self.html = path, path.read_text(encoding="utf-8")
        self.elements, self.rows, self.text, self.commands, self.told = [], [], "", [], {}
        self.open: Counter[str] = Counter()
        self.term = ""
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
            self.rows[-1].links.append(attributes["href"])
        elif tag == "pre":
            self.commands.append("")
        elif tag == "dt":
            self.term = ""

    def handle_endtag(self, tag):
        self.open[tag] -= 1

    def handle_data(self, text):
        self.text += "" if self.open["script"] else text
        if self.open["td"] or self.open["th"]:
            self.rows[-1].cells[-1] += text
        if self.open["pre"]:
            self.commands[-1] += text
        if self.open["dt"]:
            self.term += text
        elif self.open["dd"]:
            self.told[self.term] = " ".join(f"{self.told.get(self.term, '')} {text}".split())

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def row(self, link):
        (row,) = [row for row in self.rows if row.links[:1] == [link]]
        return [" ".join(cell.split()) for cell in row.cells]


class Site:
    """A site on disk."""

    def __init__(self, folder):
        self.folder = folder
        self.page = lambda name: Page(folder / name)
        self.index = self.page("index.html")

    @property
    def names(self):
        return sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*.html"))

    def models(self):
        return [self.page(name) for name in self.names if name.startswith("models/")]

    def run(self, store):
        return self.page(f"runs/{store.manifest()['key']}.html")


def site_of(folder, out):
    return Site(build([folder], out).parent)


def wilson(count, total, z=1.959963984540054):
    """The textbook formula, written again."""
    share, spread = count / total, z * z / total
    centre = (share + spread / 2) / (1 + spread)
    reach = z / (1 + spread) * math.sqrt(share * (1 - share) / total + spread / (4 * total))
    return max(0.0, centre - reach), min(1.0, centre + reach)


# ---------------------------------------------------------------- the numbers are those of the records


def test_every_run_has_its_row_of_numbers(runs, site):
    listed = site.page("runs.html")
    for manifest in runs.rglob("manifest.json"):
        store = Store.at(manifest.parent)
        rows = store.records().to_pylist()
        correct = [row for row in rows if row["clean_ok"]]
        broken = [row for row in correct if row["success"]]
        robust = len(correct) - len(broken)
        low, high = wilson(robust, len(rows))
        attack, model, _, samples, clean, robust_cell, success, distance, forward, backward, _, _ = listed.row(
            f"runs/{store.manifest()['key']}.html"
        )
        assert attack.startswith(store.manifest()["spec"]["attack"]["name"])
        assert model == "toy"
        assert samples == "40"
        assert clean == f"{100 * len(correct) / 40:.1f}" == "90.0"
        assert robust_cell == f"{100 * robust / 40:.1f} {100 * low:.1f}–{100 * high:.1f}"
        assert success == f"{100 * len(broken) / len(correct):.1f}"
        assert distance == (f"{statistics.median(row['distance'] for row in broken):.3g}" if broken else "–")
        assert forward == f"{statistics.mean(row['forwards'] for row in rows):.2f}"
        assert backward == f"{statistics.mean(row['backwards'] for row in rows):.2f}"
        own = site.run(store)
        assert f"{robust} of 40; 95 % interval {100 * low:.1f}–{100 * high:.1f} %" in own.told["Robust"]
        assert own.told["Key"] == store.manifest()["key"][:8]
        assert store.manifest()["key"] in {code.get("data-copy") for code in own.all("code")}


def fallen(stores):
    return {row["sample_id"] for store in stores for row in store.records().to_pylist() if row["success"]}


def test_the_headline_is_the_worst_case_over_attacks(runs, site):
    stores = [Store.at(path) for path in (runs / "a").iterdir()]
    robust = 40 - len(fallen(stores))
    low, high = wilson(robust, 40)
    assert 0 < robust < 36
    pages = {f"runs/{store.manifest()['key']}.html" for store in stores}
    (row,) = [row for row in site.index.rows if pages <= set(row.links)]
    _, clean, linf, l2, _ = (" ".join(cell.split()) for cell in row.cells)
    assert clean == "90.0 %"
    assert linf.startswith(f"{100 * robust / 40:.1f} % {100 * low:.1f}–{100 * high:.1f} upper bound (several attacks)")
    assert f"{robust} of 40" in linf
    assert l2.split()[0] == f"{100 * (40 - len(fallen([Store.at(runs / 'b' / 'deep')]))) / 40:.1f}"
    (bar,) = [bar for bar in site.index.all("span") if bar.get("class") == "bar-robust"][:1]
    assert bar["style"] == f"width: {100 * robust / 40:.2f}%"
    assert (
        f"toy keeps at most {100 * robust / 40:.1f} % ({100 * low:.1f}–{100 * high:.1f}) under L∞ 0.02"
        in site.index.text
    )


def test_the_table_can_be_taken_along(runs, site):
    with (site.folder / "results.csv").open(newline="") as file:
        linf, l2 = csv.DictReader(file)
    robust = 40 - len(fallen([Store.at(path) for path in (runs / "a").iterdir()]))
    assert (linf["model"], linf["threat"], linf["samples"]) == ("toy", "L∞ 0.02", "40")
    assert float(linf["robust"]) == pytest.approx(robust / 40)
    assert float(linf["robust_low"]) == pytest.approx(wilson(robust, 40)[0], abs=1e-6)
    assert l2["attacks"] == "pgd"
    entries = (site.folder / "references.bib").read_text()
    assert "eprint = {1706.06083}" in entries
    assert "Explaining and Harnessing" in entries  # FGSM
    assert "{Robustness of toy}" in entries
    assert entries.count("{") == entries.count("}")


def test_every_paper_of_an_attack_has_its_reference():
    numbers = {number for name in attacks.attack_names() for number in lookup("attack", name).info.papers}
    assert numbers <= set(papers())
    for entry in papers().values():
        assert all(f"  {field} = {{" in entry for field in ("author", "title", "year", "eprint"))


def test_a_name_that_begins_like_a_formula_is_no_formula(toy, tmp_path):
    ra.evaluate(toy.model, toy.data, ra.LInf(0.02), "fgsm", out=tmp_path / "run", name="=1+1", limit=4)
    site = site_of(tmp_path, tmp_path / "site")
    assert "\n'=1+1," in (site.folder / "results.csv").read_text()


def test_the_model_page_says_which_attack_broke_how_many(runs, site):
    stores = {path.name: Store.at(path) for path in (runs / "a").iterdir()}
    broke = {
        name: {row["sample_id"] for row in store.records().to_pylist() if row["success"] and row["clean_ok"]}
        for name, store in stores.items()
    }
    (page,) = site.models()
    for name, store in stores.items():
        others = set().union(*(found for other, found in broke.items() if other != name))
        attack, many, alone, *_ = page.row(f"../runs/{store.manifest()['key']}.html")
        assert (attack, many, alone) == (name, f"{len(broke[name])} of 36", str(len(broke[name] - others)))
    assert len(broke["pgd"]) > len(broke["uniform-noise"])


def test_the_model_page_shows_each_class(runs, site):
    lost = fallen([Store.at(path) for path in (runs / "a").iterdir()])
    rows = Store.at(runs / "a" / "fgsm").records().to_pylist()
    (page,) = site.models()
    found = [[" ".join(cell.split()) for cell in row.cells] for row in page.rows if len(row.cells) == 5][:4]
    assert [row[0] for row in found[1:]] == ["0", "1", "2"]
    for label, images, clean, robust, _ in found[1:]:
        own = [row for row in rows if row["label"] == int(label)]
        stands = sum(row["clean_ok"] and row["sample_id"] not in lost for row in own)
        assert images == str(len(own))
        assert clean == f"{100 * sum(row['clean_ok'] for row in own) / len(own):.1f}"
        assert robust.split()[0] == f"{100 * stands / len(own):.1f}"


def test_the_summary_counts(site):
    says = "1 model evaluated with 3 attacks under 2 threats (L∞ 0.02 and L2 0.1) on 40 samples of toys, measured 20"
    assert says in site.index.text


def test_a_study_without_warnings_says_so(site):
    assert "No warnings." in site.index.text
    assert "No attack broke fewer samples than a weaker one on the same samples (3 pairs compared)." in site.index.text
    assert "Every run covers 40 samples." in site.index.text


def test_costs_add_up(runs, site):
    stores = [Store.at(path.parent) for path in runs.rglob("manifest.json")]
    forwards = sum(row["forwards"] for store in stores for row in store.records().to_pylist())
    (row,) = [row.cells for row in site.index.rows if len(row.cells) == 6][1:]
    assert row[1:4] == ["4", "160", f"{forwards:,}"]


# ---------------------------------------------------------------- what to trust


def test_claims_that_did_not_verify_are_named(toy, tmp_path):
    ra.evaluate(toy.model, toy.data, ra.LInf(0.02), "pgd:steps=20", out=tmp_path / "run")
    store = Store.at(tmp_path / "run")
    claims = sum(row["claimed"] and row["clean_ok"] for row in store.records().to_pylist())
    won = [row["sample_id"] for row in store.records().to_pylist() if row["success"] and row["clean_ok"]][:2]
    lie = {"valid": False, "problem": "farther than eps", "success": False, "uint8_ok": None}
    rewrite(store, lambda row: lie if row["sample_id"] in won else None)
    site = site_of(tmp_path, tmp_path / "site")
    assert f"2 of {claims} claimed successes were not verified. They count as failed attacks." in site.index.text
    assert "2 × farther than eps" in site.index.text
    assert site.page("runs.html").row(f"runs/{store.manifest()['key']}.html")[11] == "2"
    assert "2 not verified: 2 × farther than eps" in site.run(store).told["Claims"]
    assert "checks found warnings" in site.index.text
    assert "2 claims not verified" in site.index.text
    assert "Do not rely on it yet: 2 claims not verified" in site.models()[0].text
    sent = samples_of(site, store)
    assert [sample for sample, letter in zip(sent["id"], sent["outcome"], strict=True) if letter == "n"] == won


def test_a_stronger_attack_that_lost_is_flagged(toy, tmp_path):
    ra.evaluate(toy.model, toy.data, ra.LInf(0.02), ["fgsm", WEAK_PGD], out=tmp_path / "run", name="toy")
    page = site_of(tmp_path, tmp_path / "site").index
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
    upsets = trust.check_order({"weak": weak, "strong": strong}).violations
    assert [(upset.stronger, upset.weaker) for upset in upsets] == ([("strong", "weak")] if flagged else [])


def test_noise_must_lose_to_everything():
    parts = {"noise": frame("0123", 0, 10), "fgsm": frame("0", 1, 1), "square": frame("4", 0, 1000)}
    ranking = trust.check_order(parts, noise=["noise"])
    assert ranking.pairs == 2
    assert {(upset.stronger, upset.only_weaker, upset.only_stronger) for upset in ranking.violations} == {
        ("fgsm", 3, 0),
        ("square", 4, 1),
    }
    assert ranking.violations[0].p_value == pytest.approx(1 / 8)


def test_partial_runs_are_named_and_left_out_of_the_headline(toy, tmp_path):
    ra.evaluate(toy.model, toy.data, ra.LInf(0.02), "fgsm", out=tmp_path / "fgsm", name="toy", limit=30)
    ra.evaluate(toy.model, toy.data, ra.LInf(0.02), "pgd:steps=5", out=tmp_path / "pgd", name="toy", limit=10)
    site = site_of(tmp_path, tmp_path / "site")
    assert "toy, L∞ 0.02, pgd: 10 of 30; not in the worst case" in site.index.text
    partial = Store.at(tmp_path / "pgd")
    (headline,) = [row for row in site.index.rows if len(row.cells) == 4 and row.links]
    assert "upper bound (single attack)" in headline.cells[2]
    assert headline.cells[2].split()[0] == f"{100 * (30 - len(fallen([Store.at(tmp_path / 'fgsm')]))) / 30:.1f}"
    assert "No attack followed the gradient for many steps" in site.index.text
    assert "not in the worst case" in site.run(partial).text


def test_a_run_without_records_is_shown_as_such(runs, tmp_path):
    manifest = json.loads((runs / "b" / "deep" / "manifest.json").read_text())
    Store.open(tmp_path / "started", manifest)
    site = site_of(tmp_path / "started", tmp_path / "site")
    assert "No run has a record yet." in site.index.text
    row = site.page("runs.html").row(f"runs/{manifest['key']}.html")
    assert row[3:8] == ["0", "–", "– 0.0–100.0", "–", "–"]
    assert not (site.folder / "results.csv").exists()


def test_one_specification_in_two_folders_is_one_run(toy, tmp_path):
    for part in (1, 2):
        ra.evaluate(
            toy.model,
            toy.data,
            ra.LInf(0.02),
            "fgsm",
            out=tmp_path / str(part),
            execution=ra.Execution(shard=(part, 2)),
        )
    site = Site(build([tmp_path, tmp_path / "1"], tmp_path / "site").parent)
    key = Store.at(tmp_path / "1").manifest()["key"]
    assert [name for name in site.names if name.startswith("runs/")] == [f"runs/{key}.html"]
    assert site.page("runs.html").row(f"runs/{key}.html")[3] == "40"


def test_models_of_one_name_are_told_apart(toy, tmp_path):
    other = nn.Sequential(nn.Flatten(), nn.Linear(48, 3)).eval()
    for folder, model in (("a", toy.model), ("b", other)):
        ra.evaluate(model, toy.data, ra.LInf(0.02), "fgsm", out=tmp_path / folder, name="same", limit=5)
    site = site_of(tmp_path, tmp_path / "site")
    assert all(f"same ({hash_state(model)[:8]})" in site.index.text for model in (toy.model, other))
    assert len(site.models()) == 2


def test_rank_groups_say_who_cannot_be_told_apart(toy, tmp_path):
    weak = copy.deepcopy(toy.model)
    weak[1].bias.data[0] += 100.0  # says class 0 whatever it sees
    for name, model in (("strong", toy.model), ("surrogate", toy.model), ("weak", weak)):
        ra.evaluate(model, toy.data, ra.LInf(0.002), "fgsm", out=tmp_path / name, name=name)
    index = site_of(tmp_path, tmp_path / "site").index
    rows = [row.cells for row in index.rows if len(row.cells) == 4][1:]
    assert {row[0].split()[0]: re.findall(r"rank (\S+) \(group (\S+)\)", row[2]) for row in rows} == {
        "strong": [("1–2", "a")],
        "surrogate": [("1–2", "a")],
        "weak": [("3", "b")],
    }
    assert re.search(r"(strong|surrogate) is the most robust of 3 models", index.text)
    assert "it does not differ significantly from" in index.text


# ---------------------------------------------------------------- the page as a page


def test_pages_load_nothing_from_elsewhere(site):
    for name in site.names:
        page = site.page(name)
        loads = [attributes.get("src", "") for _, attributes in page.elements if "src" in attributes]
        loads += [attributes["href"] for attributes in page.all("link")]
        for address in loads:
            assert address.startswith("data:") or (page.path.parent / address).is_file(), (name, address)
        assert not re.search(r"url\(|@import", page.html)
    css = (site.folder / "assets" / "style.css").read_text()
    assert not re.search(r"url\(|@import|https?://", css)


def test_pages_are_sound_html_and_no_link_is_dead(site):
    for name in site.names:
        page = site.page(name)
        ids = Counter(attributes["id"] for _, attributes in page.elements if "id" in attributes)
        assert max(ids.values()) == 1
        for attributes in page.all("a"):
            file, _, place = attributes["href"].partition("#")
            target = (page.path.parent / file).resolve() if file else page.path
            assert target.is_file(), (name, attributes["href"])
            found = place.startswith("sample=") or f'id="{place}"' in target.read_text(encoding="utf-8")
            assert not place or found, (name, attributes["href"])
        assert len(page.all("caption")) == len(page.all("table"))
        assert all("scope" in attributes for attributes in page.all("th"))
        assert len(page.all("h1")) == 1
        assert '<meta name="viewport"' in page.html


def test_the_style_suits_the_dark_the_phone_and_the_printer(site):
    css = (site.folder / "assets" / "style.css").read_text()
    for media in ("(prefers-color-scheme: dark)", "(max-width:", "print", "(prefers-reduced-motion: reduce)"):
        assert f"@media {media}" in css


def test_names_are_shown_and_never_run(toy, tmp_path):
    name = """</script><script>alert(1)</script> "quoted' &amp; <b>"""
    ra.evaluate(toy.model, toy.data, ra.LInf(0.02), "fgsm", out=tmp_path / "run", name=name, limit=5)
    site = site_of(tmp_path / "run", tmp_path / "site")
    for page in map(site.page, site.names):
        assert "alert(1)" not in "".join(re.findall(r"<script>.*?</script>", page.html, re.DOTALL))
        assert all("src" in script or script.get("type") == "application/json" for script in page.all("script"))
        assert [script.get("src") for script in page.all("script")].count(None) == len(page.all("figure"))
    assert " ".join(name.split()) in site.index.text
    assert not site.index.all("b")[5:]  # the five ticks of the scale are the only ones
    for sheet in (site.folder / "data").rglob("*.js"):
        assert "<" not in sheet.read_text()


def test_building_twice_gives_the_same_files_and_clears_its_own_old_ones_only(runs, toy, tmp_path):
    out = tmp_path / "site"
    build([runs], out)
    files = {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    ra.evaluate(toy.model, toy.data, ra.LInf(0.3), "fgsm", out=tmp_path / "more", name="other", limit=5)
    build([runs, tmp_path / "more"], out)
    assert len(list(out.rglob("*.html"))) > sum(name.endswith(".html") for name in files)
    (out / "mine.txt").write_text("keep")
    (out / "index.html").write_text("old")
    assert build([runs], out) == out / "index.html"
    again = {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert again == files | {"mine.txt": b"keep"}


def test_a_list_of_files_that_points_elsewhere_removes_nothing(runs, tmp_path):
    (tmp_path / "precious.txt").write_text("keep")
    (tmp_path / "site").mkdir()
    listed = ["../precious.txt", str(tmp_path / "precious.txt")]
    (tmp_path / "site" / LIST).write_text(json.dumps({"files": listed}))
    build([runs], tmp_path / "site")
    assert (tmp_path / "precious.txt").exists()


def weight(folder, attacks, samples):
    write_runs(folder / "runs", 2, attacks, samples)
    out = build([folder / "runs"], folder / "site").parent
    return sum(path.stat().st_size for path in out.rglob("*") if path.is_file())


def test_the_weight_is_bounded(tmp_path, monkeypatch):
    """A curve has so many points at most, and a large site lists the samples nearest to the boundary only."""
    monkeypatch.setattr(samples, "ALL_ROWS", 600)
    few, many = weight(tmp_path / "few", 3, 100), weight(tmp_path / "many", 3, 400)
    assert many < 1.03 * few
    a_run = (weight(tmp_path / "more", 6, 400) - many) / 6
    assert 2000 * a_run < 26_000_000  # each lists 50 samples


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
    code = "import sys, robustassay.report; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---------------------------------------------------------------- repeating a run


def repeated(command, dataset):
    """Run a command's evaluation through the library and return its key."""
    option = dict(zip(command[3::2], command[4::2], strict=True))
    norm = lookup("norm", option.get("--norm", DEFAULT_NORM))(option["--eps"])
    rule = ra.RandomTarget() if option.get("--targeted") == "random" else None
    budget = int(option["--query-budget"]) if "--query-budget" in option else None
    result = ra.evaluate(
        command[2],
        dataset,
        ra.ThreatModel(norm, rule),
        option["--attack"],
        seed=int(option["--seed"]),
        limit=int(option["--limit"]),
        search=ra.Search(query_budget=budget),
    )
    return result.manifest["key"], option["--out"]


def test_the_command_repeats_the_run(toy, tmp_path):
    (tmp_path / "my models.py").write_text(FACTORY)
    model = f"{tmp_path / 'my models.py'}:make"
    third = ra.ThreatModel(ra.L2(1 / 3 + 1e-9), ra.RandomTarget())
    ra.evaluate(model, toy.data, ra.LInf(8 / 255), "pgd:steps=3,rel_step=0.3", out=tmp_path / "1", limit=4, seed=7)
    ra.evaluate(model, toy.data, third, "mim:decay=0.3", out=tmp_path / "2", limit=4, search=ra.Search(query_budget=9))
    site = site_of(tmp_path, tmp_path / "site")
    stores = [Store.at(tmp_path / run) for run in "12"]
    keys = {store.manifest()["key"] for store in stores}
    commands = [shlex.split(command) for store in stores for command in site.run(store).commands]
    assert {repeated(command, toy.data) for command in commands} == {(key, f"runs/{key}") for key in keys}
    assert all(command[:2] == ["assay", "eval"] for command in commands)
    says = f"your copy of toys after --data; its SHA-256 begins with {toy.data.sha256[:8]}"
    assert says in site.run(stores[0]).text


def test_a_model_passed_in_python_has_no_command(runs, site):
    page = site.run(Store.at(runs / "a" / "fgsm"))
    assert not page.commands
    assert "The model was passed in Python" in page.text


def card(name):
    facts: dict[str, Any] = dict.fromkeys((field.name for field in dataclasses.fields(ModelCard)), "")
    facts |= (
        {
            "title": "Linear, natural",
            "parameters": 147,
            "recipe": "natural",
            "recipe_fields": {"rate": 0.1},
            "epochs": 3,
        }
        | dict.fromkeys(("clean_accuracy", "robust_accuracy"), 0.5)
        | dict.fromkeys(("clean_images", "robust_images"), 9)
    )
    return ModelCard(**facts | {"architecture": {"name": "linear", "width": 48}})


def test_an_embedded_model_shows_its_card_and_its_namesake_does_not(toy, tmp_path, monkeypatch):
    other = nn.Sequential(nn.Flatten(), nn.Linear(48, 3)).eval()
    monkeypatch.setattr(models, "names", lambda: ("toy",))
    monkeypatch.setattr(models, "card", card)
    ra.evaluate(toy.model, toy.data, ra.LInf(0.02), "fgsm", out=tmp_path / "run", name="toy", limit=5)
    facts = "Linear, natural · linear (width 48) · 147 parameters · recipe natural, 3 epochs"
    for loaded, shown in ((toy.model, True), (other, False)):
        monkeypatch.setattr(models, "load", lambda name, loaded=loaded: loaded)
        site = site_of(tmp_path / "run", tmp_path / "site")
        assert (facts in site.models()[0].text) == shown
        assert bool(site.run(Store.at(tmp_path / "run")).commands) == shown


# ---------------------------------------------------------------- samples, attacks, confusions


def samples_of(site, store):
    """The samples that the page of a run sends to the browser."""
    text = (site.folder / "data" / f"samples-{store.manifest()['key']}.js").read_text()
    return json.loads(text.removeprefix("assay.receive(").removesuffix(");\n"))


def test_the_page_of_a_run_has_its_samples(runs, site):
    store, others = Store.at(runs / "a" / "fgsm"), fallen([Store.at(runs / "a" / "pgd")])
    sent, records = samples_of(site, store), {row["sample_id"]: row for row in store.records().to_pylist()}
    assert sorted(sent["id"]) == sorted(records)
    assert set(sent["outcome"]) <= set(samples.OUTCOMES)
    for at, sample in enumerate(sent["id"]):
        row = records[sample]
        letter = "w" if not row["clean_ok"] else "b" if row["success"] else "sd"
        assert sent["outcome"][at] in letter
        assert sent["margin"][at] == pytest.approx(row["margin"], rel=1e-3)
        assert sent["label"][at] == row["label"]
        if row["success"]:
            assert sent["distance"][at] == pytest.approx(row["distance"], rel=1e-3)
        if letter == "sd" and sample in others:
            assert sent["others"][sent["other"][at]] == "pgd"


def details_of(site, store):
    """Margins and logits that the page of a run loads when a sample is opened, by the number of its row."""
    files = (site.folder / "data" / f"samples-{store.manifest()['key']}").glob("*.js")
    sent = (path.read_text().removeprefix("assay.receiveDetails(").removesuffix(");\n") for path in files)
    return {int(row): found for text in sent for row, found in json.loads(text).items()}


def test_margins_and_logits_of_each_sample_are_in_files_of_their_own(runs, site):
    store = Store.at(runs / "a" / "pgd")
    sent, details = samples_of(site, store), details_of(site, store)
    records = {row["sample_id"]: row for row in store.records().to_pylist()}
    assert sent["detail"] == "k" * len(records)
    assert sorted(details) == list(range(len(records)))
    for row, sample in enumerate(sent["id"]):
        for found, column in zip(details[row], sample_details.COLUMNS, strict=True):
            assert found == pytest.approx(records[sample][column], rel=1e-3)
        assert set(map(str, details[row][2])) <= set(sent["classes"])


def test_the_page_says_why_margins_are_missing(runs, tmp_path, monkeypatch):
    shutil.copytree(runs / "a" / "fgsm", tmp_path / "run")
    store = Store.at(tmp_path / "run")
    many = len(store.records())

    def change(row):
        number = int(row["sample_id"])
        if number == 0:  # of a version that kept none
            return dict.fromkeys(sample_details.COLUMNS)
        if number == 1:  # of a service that gives labels only
            return {name: [] for name in sample_details.COLUMNS}
        if number == 2:  # a file of somebody else
            return {"trace_queries": [0, 1, 2], "trace_margins": [1.5, math.inf], "adv_top_labels": list(range(999))}
        return None

    rewrite(store, change)
    site = site_of(tmp_path / "run", tmp_path / "site")
    sent, details = samples_of(site, store), details_of(site, store)
    letters = dict(zip(sent["id"], sent["detail"], strict=True))
    assert [letters.pop(str(number)) for number in range(3)] == ["o", "l", "k"]
    assert set(letters.values()) == {"k"}
    assert len(details) == many - 2
    strange = details[sent["id"].index("2")]
    assert strange[:2] == [[0], [1.5]]
    assert max(map(len, strange)) <= 5
    monkeypatch.setattr(samples, "ALL_ROWS", 25)
    few = site_of(tmp_path / "run", tmp_path / "few")
    assert samples_of(few, store)["detail"].count("x") > 0
    assert len(details_of(few, store)) <= samples.DETAILED * samples.FEWEST_ROWS


def test_large_sites_list_the_samples_nearest_to_the_boundary():
    frame = pd.DataFrame({"margin": [3.0, -0.1, 0.2, -2.0, 0.0], "distance": [9, 1, 2, 3, 4], "outcome": list("sbsbw")})
    assert list(samples.nearest(frame, 2, None).index) == [0, 1]
    assert list(samples.nearest(frame, 2, None)["margin"]) == [-0.1, 0.2]
    assert list(samples.nearest(frame, 2, eps=2.9)["distance"]) == [2, 3]
    assert samples.rows_each(1) == samples.ALL_ROWS
    assert samples.rows_each(10**9) == samples.FEWEST_ROWS


def test_what_each_attack_added_sums_up(runs, site):
    stores = {path.name: Store.at(path) for path in (runs / "a").iterdir()}
    broke = {
        name: {row["sample_id"] for row in store.records().to_pylist() if row["success"] and row["clean_ok"]}
        for name, store in stores.items()
    }
    (page,) = site.models()
    seen: set[str] = set()
    added = page.text[page.text.index("What each attack added") :]
    for name in sorted(broke, key=lambda name: added.index(f" {name} ")):
        new = len(broke[name] - seen)
        assert f" {name} {f'−{new}' if new else '0'} " in added, name
        seen |= broke[name]
    assert f"robust {100 * (36 - len(seen)) / 40:.1f} %" in added


def test_confusions_count_broken_samples():
    frames = [
        pd.DataFrame({"label": [0, 0, 1], "adv_label": [1, 2, pd.NA]}),
        pd.DataFrame({"label": [0], "adv_label": 1}),
    ]
    found = [(one.truth, one.predicted, one.count, one.of) for one in breakdown.confusions(frames)]
    assert found == [(0, 1, 2, 3), (0, 2, 1, 3)]


def test_the_samples_of_a_run_have_pictures(photos, tmp_path):
    site = site_of(photos, tmp_path)
    store = Store.at(photos / "fgsm")
    sent = samples_of(site, store)
    with Image.open(site.folder / sent["sheets"] / "0.jpg") as sheet:
        assert sheet.size == (320, 320)
        original = data.load("cifar10-1k").images([5])[0]
        small = torch.tensor(np.asarray(sheet.crop((160, 0, 192, 32)))).permute(2, 0, 1) / 255
    assert sent["place"][sent["id"].index(data.load("cifar10-1k").ids[5])] == 5
    assert (small - original).abs().mean() < 0.06  # as far as JPEG goes
    broken = [at for at, letter in enumerate(sent["outcome"]) if letter == "b"]
    assert broken
    for at, factor in enumerate(sent["factor"]):
        assert bool(factor) == (at in broken) == (site.folder / sent["triplets"] / f"{at}.png").exists()
    with Image.open(site.folder / sent["triplets"] / f"{broken[0]}.png") as strip:
        assert strip.size == (96, 32)
        levels = torch.tensor(np.asarray(strip)).permute(2, 0, 1) / 255
    change = levels[:, :, 64:] - levels[:, :, :32]
    assert torch.allclose(levels[:, :, 32:64] - 0.5, sent["factor"][broken[0]] * change, atol=0.05)


def test_pictures_of_samples_have_a_limit(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(sample_pictures, "TRIPLET_BYTES", 20_000)
    monkeypatch.setattr(sample_pictures, "SHEET_BYTES", 10)
    site = site_of(photos, tmp_path)
    files = list((site.folder / "images").rglob("*.*"))
    assert 0 < sum(path.stat().st_size for path in files) < 20_000
    assert {path.suffix for path in files} == {".png"}


def test_a_showcase_stands_at_the_top(runs, tmp_path):
    shutil.copytree(runs, tmp_path / "runs")
    row = showcase.ShowcaseRow(
        "toy <b>", "toy", 0.9, None, 0.5, 0.4, 0.6, "AutoAttack-grade", "because", "c", ("a/pgd",)
    )
    bars = (showcase.CorruptionBar("toy", 0.9, 0.7, 0.6, 0.8),)
    found = showcase.Showcase(
        "toys", 40, "Linf 0.02", 0, (row,) * 2, showcase.Corruptions(("fog",), 3, 40, bars), "assay eval mine"
    )
    showcase.write_showcase(found, tmp_path / "runs")
    page = site_of(tmp_path / "runs", tmp_path / "site").index
    key = Store.at(runs / "a" / "pgd").manifest()["key"]
    (cells, _) = [row.cells for row in page.rows if row.links[:1] == [f"runs/{key}.html"] and len(row.cells) == 5]
    told = [" ".join(cell.split()) for cell in cells]
    assert told == ["toy <b>", "90.0 %", "–", "50.0 % (40.0–60.0)", "because AutoAttack-grade"]
    assert page.text.index("assay says") < page.text.index("toy <b> keeps at most")
    assert "assay eval mine" in page.commands


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
    ra.evaluate(model, few, ra.LInf(24 / 255), ["fgsm", "pgd:steps=5"], out=folder, name="fitted")
    return folder


def test_the_gallery_shows_the_easiest_and_the_hardest(photos, tmp_path):
    site = site_of(photos, tmp_path)
    (page,) = site.models()
    rows = [row for name in ("fgsm", "pgd") for row in Store.at(photos / name).records().to_pylist()]
    fell = sorted((row for row in rows if row["success"] and row["clean_ok"]), key=lambda row: row["margin"])
    alts = [image["alt"] for image in page.all("img")]
    assert len(page.all("figure")) == 6
    assert len(alts) == 5 * 3 + 1
    assert all(alts)
    assert "The change, magnified 5 times around grey" in alts
    assert "not broken, smallest margin left" in page.text
    assert page.path.stat().st_size < 200_000
    classes = data.load("cifar10-1k").classes
    first = fell[0]
    before, after = (f"({100 * first[name]:.0f} %)" for name in ("clean_confidence", "adv_confidence"))
    told = f"{classes[first['label']]} {before} → {classes[first['adv_label']]} {after} broken, most negative margin"
    assert told in page.text
    assert page.text.index("Easiest to break") < page.text.index("Hardest to break")


@pytest.mark.parametrize(("fallen", "stood", "shown"), [(9, 9, "eeehhs"), (4, 0, "eeeh"), (2, 5, "eesss"), (0, 1, "s")])
def test_the_rule_of_the_gallery(fallen, stood, shown):
    rows = [
        {"sample_id": str(at), "clean_ok": True, "success": at < fallen, "margin": at - fallen + 0.5, "distance": 1.0}
        for at in range(fallen + stood)
    ]
    picks = gallery.choose(pd.DataFrame([*rows, {**rows[0], "sample_id": "wrong", "clean_ok": False}]))
    letters = "".join("s" if pick.why.startswith("not broken") else pick.kind[0] for pick in picks)
    assert letters == shown
    samples = [int(pick.record["sample_id"]) for pick in picks]
    assert samples[: letters.count("e")] == list(range(letters.count("e")))
    narrow = samples[letters.count("e") : letters.count("e") + letters.count("h")]
    assert narrow == [fallen - 1 - at for at in range(letters.count("h"))]
    assert len(set(samples)) == len(samples)


def test_data_that_is_not_the_same_is_not_shown(photos, tmp_path, monkeypatch):
    other = data.from_arrays(torch.rand(16, 3, 32, 32), torch.zeros(16, dtype=torch.int64))
    monkeypatch.setattr(data, "load", lambda name: other)
    (page,) = site_of(photos, tmp_path).models()
    assert "The cifar10-1k found here differs from the dataset of the run" in page.text
    assert not page.all("img")


def test_data_that_cannot_be_loaded_is_not_shown(site):
    (page,) = site.models()
    assert "The images of toys cannot be loaded by that name" in page.text
    assert not page.all("img")


def test_the_gallery_stays_small(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(gallery, "BUDGET_BYTES", 100)
    (page,) = site_of(photos, tmp_path).models()
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
    assert [formatting.listed(list(names)) for names in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]
    assert formatting.count(1, "sample") == "1 sample"
    assert formatting.count(1000, "sample") == "1,000 samples"
