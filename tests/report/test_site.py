"""Clicks through a site in a real browser: what people do with it works, asks no network for anything, and runs
nothing that a name or a label smuggled in."""

import contextlib
import csv
import importlib
import io
import re
import shutil
import struct
from urllib.parse import unquote

import pytest
import torch
from PIL import Image
from tools import chromium
from torch import nn

import robustassay as ra
from robustassay import data
from robustassay.report import build
from robustassay.store import Store
from tests.support.synthetic_runs import write_runs

if chromium.required():
    playwright = importlib.import_module("playwright.sync_api")
else:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = chromium.find()
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None and not chromium.required(), reason=chromium.MISSING),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

TALL = {"width": 1100, "height": 1200}

EVIL = "</script><script>alert(1)</script>"
CLASSES = ("cat \"tabby\" 'x'", "<script>alert(2)<script>")
SOURCES = ("resnet20-pgd", "vgg11-natural")
STUDY = f"# A study of {EVIL}\n\n| finding | |\n|---|---|\n| 1. One | does not hold |\n\n![a figure](figures/one.png)\n"

# ---------------------------------------------------------------- a site with everything on it


def linear(values, classes, seed):
    """A linear model with weights of its own."""
    draw = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(values, classes)).eval()
    model[1].weight.data = torch.randn(classes, values, generator=draw)
    model[1].bias.data = -model[1].weight.data.sum(1) / 2
    return model


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Runs of an embedded model, of two plain ones and of one with an evil name, a study and an analysis."""
    folder = tmp_path_factory.mktemp("places")
    attacks = ["fgsm", "pgd:steps=3"]
    attacks += [f"transfer:source={source},attack=fgsm" for source in SOURCES]
    for at, attack in enumerate(attacks):
        ra.evaluate("resnet20-natural", "cifar10-1k", ra.LInf(1 / 255), attack, out=folder / f"zoo{at}", limit=8)
    photos = folder / "photos"
    for at, name in enumerate(CLASSES):
        (photos / name).mkdir(parents=True)
        for picture in range(4):
            colour = tuple(
                int(level) for level in torch.randint(40, 215, (3,), generator=torch.manual_seed(9 * at + picture))
            )
            Image.new("RGB", (8, 8), colour).save(photos / name / f"{picture}.png")
    for at, name in enumerate((EVIL, "plain", "third")):
        own = linear(192, 2, at)
        for attack in ("fgsm", "fmn:steps=20"):
            ra.evaluate(own, str(photos), ra.LInf(1 / 255), attack, out=folder / f"{at}-{attack[:3]}", name=name)
    (folder / "study" / "figures").mkdir(parents=True)
    (folder / "study" / "study.md").write_text(STUDY)
    Image.new("RGB", (20, 20), "white").save(folder / "study" / "figures" / "one.png")
    (folder / "analysis").mkdir()
    (folder / "analysis" / "calibration.csv").write_text(
        "model,ece,ece_low,ece_high,temperature\nresnet20-natural,0.05,0.04,0.06,1.4\n"
    )
    (folder / "analysis" / "reliability.csv").write_text(
        "low,high,images,confidence,accuracy,model\n0.4,0.5,0,,,resnet20-natural\n0.5,0.6,3,0.55,0.33,resnet20-natural\n"
        "0.9,1.0,5,0.97,1.0,resnet20-natural\n"
    )
    return folder


@pytest.fixture(scope="module")
def site(places, tmp_path_factory):
    with contextlib.chdir(places):  # where a dataset called photos is found by that name
        return build([places], tmp_path_factory.mktemp("site")).parent


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.fail(f"{chromium.MISSING} With CI=true its tests are not skipped.", pytrace=False)
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=list(chromium.FLAGS))
        yield found
        found.close()


class Visit:
    """A tab that remembers everything that must not happen."""

    def __init__(self, browser, site, **options):
        self.site = site
        self.trouble: list[str] = []
        # Without the policy, whatever got in would run, and be seen; the driver needs it off too, to wait for things.
        self.context = browser.new_context(**{"bypass_csp": True, "viewport": TALL, **options})
        self.context.set_default_timeout(8000)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.trouble.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.trouble.append(f"error: {error}"))
        self.page.on("dialog", self._dialog)
        self.page.on("request", lambda request: self._asked(request.url))

    def _asked(self, address):
        if not address.startswith((self.site.as_uri(), "data:", "blob:")):
            self.trouble.append(f"asked for {address}")

    def _dialog(self, dialog):
        self.trouble.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, name):
        self.page.goto((self.site / name).as_uri())
        return self.page

    def close(self):
        self.context.close()


@pytest.fixture
def visit(browser, site):
    found = Visit(browser, site)
    yield found
    found.close()
    assert not found.trouble


def chart(page, at=0):
    """Wait for a chart and return a handle on what the library holds of it."""
    page.wait_for_function(f"document.querySelectorAll('figure.chart')[{at}]?.chart")
    return page.evaluate_handle(f"document.querySelectorAll('figure.chart')[{at}].chart")


def shown_names(page):
    return page.eval_on_selector_all(
        ".board tbody tr:not([hidden])", "rows => rows.map(row => row.cells[0].innerText.trim())"
    )


# ---------------------------------------------------------------- all of it


def test_every_page_opens_and_links_to_all_others(visit, site):
    seen, todo = set(), ["index.html"]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        page = visit.open(name)
        assert page.locator("h1").count() == 1
        links = page.eval_on_selector_all("a[href]", "links => links.map(link => link.href.split('#')[0])")
        todo += [link.removeprefix(site.as_uri() + "/") for link in links if link.endswith(".html")]
        if page.locator("figure.chart").count():
            chart(page)
    assert seen == {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert len(seen) > 15


def test_evil_names_are_shown(visit, site):
    page = visit.open("index.html")
    assert page.get_by_role("link", name=EVIL).first.is_visible()
    page.get_by_role("link", name=EVIL).first.click()
    assert page.locator("h1").inner_text() == EVIL
    assert {name for name in CLASSES if page.get_by_role("rowheader", name=name, exact=True).count()} == set(CLASSES)
    page = visit.open("studies.html")
    page.get_by_role("link", name="A study of").last.click()
    assert EVIL in page.locator("h1").inner_text()
    assert page.locator("td.verdict.warning").inner_text() == "does not hold"
    assert page.evaluate("document.querySelector('article img').naturalWidth") == 20


def test_a_script_that_got_in_would_not_run(browser, site, tmp_path):
    shutil.copytree(site, tmp_path / "site")
    index = tmp_path / "site" / "index.html"
    index.write_text(index.read_text().replace("</main>", "<script>document.title = 'caught'</script></main>"))
    other = Visit(browser, tmp_path / "site", bypass_csp=False)
    assert other.open("index.html").title() != "caught"
    assert any("Content Security Policy" in said for said in other.trouble)
    other.close()


# ---------------------------------------------------------------- tables


def test_the_table_sorts_by_mouse_and_by_keyboard(visit):
    page = visit.open("index.html")
    table = page.locator(".board").filter(has_text="photos")
    column = table.get_by_role("columnheader", name="L∞ 1/255")
    values = lambda: table.locator("tbody tr").evaluate_all("rows => rows.map(row => +row.cells[2].dataset.v)")  # noqa: E731
    column.get_by_role("button").click()
    assert column.get_attribute("aria-sort") == "descending"
    first = values()
    assert first == sorted(first, reverse=True)
    assert len(set(first)) > 1
    column.get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert column.get_attribute("aria-sort") == "ascending"
    assert values() == sorted(first)


def test_the_table_searches_filters_and_breaks_down(visit):
    page = visit.open("index.html")
    rows = page.locator(".board tbody tr").count()
    page.get_by_label("Search").fill("script alert")
    assert [name.splitlines()[0] for name in shown_names(page)] == [EVIL]
    assert page.locator("output").inner_text() == f"1 of {rows} rows"
    page.get_by_label("Search").fill("")
    page.get_by_label("Hide flagged").check()
    assert 0 < len(page.locator(".board tbody tr:visible").all()) < rows  # a transfer attack alone is a weak one
    assert not page.locator(".each").first.is_visible()
    page.get_by_label("Show each attack").check()
    item = page.locator(".board tbody tr:visible .each li").first
    robust = item.inner_text().split()[-1]
    item.get_by_role("link").click()
    assert f"{robust}\u202f% robust" in page.locator("p.lead").inner_text()
    assert page.locator("dt", has_text="Key").count() == 1


def test_hashes_and_commands_can_be_copied(browser, site, places):
    visit = Visit(browser, site, permissions=["clipboard-read", "clipboard-write"])
    key = Store.at(places / "zoo1").manifest()["key"]
    page = visit.open(f"runs/{key}.html")
    command = page.locator(".command pre").inner_text()
    for place, text in ((".command .copy", command), ("dd code.hash[title='" + key + "'] + .copy", key)):
        page.locator(place).first.click()
        page.wait_for_function("place => document.querySelector(place).textContent === 'Copied'", arg=place)
        assert " ".join(page.evaluate("navigator.clipboard.readText()").split()) == " ".join(text.split())
    visit.close()
    assert not visit.trouble


# ---------------------------------------------------------------- samples


def test_samples_are_filtered_and_opened(visit, places):
    store = Store.at(places / "zoo1")
    records = {row["sample_id"]: row for row in store.records().to_pylist()}
    page = visit.open(f"runs/{store.manifest()['key']}.html")
    rows = page.locator("table.samples tbody tr")
    assert rows.count() == len(records)
    broken = {sample for sample, row in records.items() if row["success"] and row["clean_ok"]}
    page.get_by_role("radio", name="Broken").check(force=True)
    assert set(rows.locator("th").all_inner_texts()) == broken
    page.get_by_label("Sort").select_option("order")
    rows.first.click()
    dialog = page.get_by_role("dialog")
    sample = page.locator("#sample-title").inner_text().split()[1].rstrip(":")
    row = records[sample]
    told = dialog.inner_text()
    assert "verified on a fresh forward pass" in told
    assert f"{100 * row['adv_confidence']:.1f} %" in told.replace("\u202f", " ")
    assert dialog.locator("img").evaluate("image => image.naturalWidth") == 96
    way = dialog.locator("svg.way")
    assert re.fullmatch(rf"margin from \+.* to −.* at query {row['claimed_at_query']}", way.get_attribute("aria-label"))
    assert way.locator("circle").count() == len(row["trace_queries"]) > 2
    names = data.load("cifar10-1k").classes
    for at, which in enumerate(("clean", "adv")):
        shown = dialog.locator(".logits").nth(at).locator(".name").all_inner_texts()
        assert [name.removesuffix(" (true)") for name in shown] == [names[one] for one in row[f"{which}_top_labels"]]
    assert dialog.locator(".logits .n").first.inner_text() == f"+{row['clean_top_logits'][0]:.2f}"
    page.keyboard.press("ArrowRight")
    assert page.locator("#sample-title").inner_text().split()[1].rstrip(":") != sample
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    page.get_by_label("Search").fill("no such class")
    assert rows.count() == 0


def test_an_address_opens_a_sample_and_the_gallery_leads_to_it(visit):
    page = visit.open("index.html")
    page.get_by_role("link", name="sample ").first.click()
    page.get_by_role("dialog").wait_for()
    assert "#sample=" in page.url
    sample = unquote(page.url.rpartition("=")[2])
    assert page.locator("#sample-title").inner_text().startswith(f"Sample {sample}: ")


def test_ten_thousand_samples_open_and_filter_quickly(browser, tmp_path):
    write_runs(tmp_path / "runs", 1, 1, 10_000)
    index = build([tmp_path / "runs"], tmp_path / "site")
    visit = Visit(browser, index.parent)
    (run,) = (index.parent / "runs").iterdir()
    page = visit.open(f"runs/{run.name}")
    page.locator("table.samples tbody tr").first.wait_for()
    assert page.locator("table.samples tbody tr").count() < 200
    assert page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") < 4000
    took = page.evaluate(
        """() => { const start = performance.now(); const form = document.getElementById('sample-controls');
        form.elements.outcome.value = 'b'; form.elements.sort.value = 'distance';
        form.dispatchEvent(new Event('input')); return performance.now() - start; }"""
    )
    assert took < 1000
    page.mouse.wheel(0, 20_000)
    page.wait_for_function("document.querySelectorAll('table.samples tbody tr').length > 60")
    parts = """document.querySelectorAll('script[src*="data/samples-"][src$="/0.js"]').length"""
    assert page.evaluate(parts) == 0, "margins and logits are loaded when a sample is opened"
    page.evaluate("assay.open(0)")
    page.locator("svg.way").wait_for()
    assert page.locator("svg.way circle").count() > 5
    assert page.evaluate(parts) == 1
    visit.close()
    assert not visit.trouble


# ---------------------------------------------------------------- charts


def test_curves_answer_to_the_mouse_and_the_boxes(visit):
    page = visit.open("curves.html")
    held = chart(page)
    page.get_by_label("Versus").select_option("eps")
    page.get_by_label("Threat").select_option(label="L∞ on photos")
    page.wait_for_function("document.querySelector('#pick-attacks').innerText.includes('fmn')")
    page.locator("#pick-attacks").get_by_label("worst case of all attacks").uncheck()
    page.locator("#pick-attacks").get_by_label("fmn").check()
    assert page.locator("#curve-note").inner_text() == "3 curves."
    series = "chart => chart.getOption().series.filter(one => one.data[0].rate).map(one => one.name)"
    assert held.evaluate(series) == [EVIL, "plain", "third"]

    spot = held.evaluate(
        """chart => { const one = chart.getOption().series.find(one => one.data[0]?.rate);
        const at = one.data.findIndex(point => point.value[1] < 0.9);
        const [x, y] = chart.convertToPixel('grid', one.data[at].value);
        const box = chart.getDom().getBoundingClientRect();
        return [box.x + x, box.y + y, one.data[at].rate[0]]; }"""
    )
    page.mouse.move(spot[0] - 3, spot[1])
    page.mouse.move(spot[0], spot[1])
    page.wait_for_function("document.querySelector('.canvas').innerText.includes('radius')")
    told = page.locator(".canvas").inner_text()
    assert f"{EVIL} at " in told
    assert f": {100 * spot[2]:.1f} % (" in told

    assert held.evaluate("chart => chart.getOption().series.at(-1).data[0].value[0]") == 0
    page.get_by_label("log axis").check()
    assert held.evaluate("chart => chart.getOption().xAxis[0].type") == "log"
    page.get_by_label("Show").select_option("s")
    assert held.evaluate("chart => chart.getOption().yAxis[0].name") == "attack success rate"
    with_bands = held.evaluate("chart => chart.getOption().series.length")
    page.get_by_label("95 % bands").uncheck()
    assert held.evaluate("chart => chart.getOption().series.length") == with_bands // 3


def saved(page, name):
    with page.expect_download() as waiting:
        page.locator(".tools").first.get_by_role("button", name=name).click()
    return waiting.value


def test_curves_can_be_taken_home(visit, places):
    page = visit.open("curves.html")
    chart(page)
    page.get_by_label("Versus").select_option("eps")
    page.get_by_label("Threat").select_option(label="L∞ on photos")
    page.wait_for_function("document.querySelector('#pick-attacks').innerText.includes('fmn')")
    for name in ("worst case of all attacks", "fmn"):
        page.locator("#pick-attacks").get_by_label(name).set_checked(name == "fmn")
    rows = list(csv.DictReader(io.StringIO(saved(page, "CSV").path().read_text())))
    for at, name in enumerate((EVIL, "plain", "third")):
        records = [row for row in Store.at(places / f"{at}-fmn").records().to_pylist() if row["clean_ok"]]
        own = [row for row in rows if row["model"] == name]
        assert float(own[0]["L∞ radius (1/255)"]) == 0
        for row in own:
            radius = float(row["L∞ radius (1/255)"]) + 1e-4
            stands = sum(not record["valid"] or 255 * record["distance"] > radius for record in records)
            assert (float(row["accuracy"]), row["samples"]) == (round(stands / 8, 4), "8")
    png = saved(page, "PNG").path().read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert min(struct.unpack(">II", png[16:24])) > 600
    svg = saved(page, "SVG").path().read_text()
    assert svg.startswith("<svg")
    assert "<script" not in svg
    assert "plain" in svg


def test_the_other_charts_hold_the_numbers(visit, places):
    page = visit.open("transfer.html")
    held = chart(page)
    cells = "chart => chart.getOption().series[0].data.map(cell => cell.value[2])"
    found = held.evaluate(cells)
    for at, value in enumerate(found):
        records = [row for row in Store.at(places / f"zoo{at + 2}").records().to_pylist() if row["clean_ok"]]
        assert value == round(sum(row["success"] for row in records) / len(records), 4)
    assert held.evaluate("chart => chart.getOption().yAxis[0].data") == list(SOURCES)
    page.get_by_label("Order").select_option("family")
    assert sorted(held.evaluate(cells)) == sorted(found)
    page = visit.open("tradeoff.html")
    points = chart(page).evaluate("chart => chart.getOption().series.flatMap(one => one.data).filter(one => one.rate)")
    assert {point["name"] for point in points} == {EVIL, "plain", "third"}
    page = visit.open("index.html")
    page.get_by_role("link", name="resnet20-natural").first.click()
    bins = chart(page).evaluate("chart => chart.getOption().series[1].data.map(point => point.images)")
    assert bins == [3, 5]


# ---------------------------------------------------------------- dark, small, by keyboard, on paper


def test_the_dark_can_be_asked_for_and_is_remembered(visit):
    page = visit.open("tradeoff.html")
    held = chart(page)
    paper = "getComputedStyle(document.body).backgroundColor"
    light, ink = page.evaluate(paper), held.evaluate("chart => chart.getOption().textStyle.color")
    page.get_by_role("button", name="Switch to dark").click()
    assert page.evaluate(paper) != light
    assert held.evaluate("chart => chart.getOption().textStyle.color") != ink
    page.reload()
    assert page.evaluate(paper) != light
    page.get_by_role("button", name="Switch to light").click()
    assert page.evaluate(paper) == light


def test_the_dark_of_the_system_is_followed(browser, site):
    found = []
    for scheme in ("light", "dark"):
        visit = Visit(browser, site, color_scheme=scheme)
        found.append(visit.open("index.html").evaluate("getComputedStyle(document.body).backgroundColor"))
        visit.close()
    assert found[0] == "rgb(252, 252, 250)" != found[1]


def test_the_keyboard_goes_everywhere(visit):
    page = visit.open("index.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page = visit.open("runs.html")
    for _ in range(4):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Curves"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url("**/curves.html")


OVERLAPS = """() => {
  const root = document.querySelector('dialog[open]') ?? document.querySelector('main');
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const boxes = [];
  while (walker.nextNode()) {
    const text = walker.currentNode;
    const parent = text.parentElement;
    if (!text.data.trim() || !parent.checkVisibility()) continue;
    if (parent.closest('.unseen, script, style, option, .canvas, .chips')) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    for (const box of range.getClientRects()) if (box.width > 1) boxes.push([box, text.data.trim()]);
  }
  boxes.sort(([one], [other]) => one.top - other.top);
  const found = [];
  boxes.forEach(([one, text], at) => {
    for (let next = at + 1; next < boxes.length && boxes[next][0].top < one.bottom - 5; next += 1) {
      const [other, also] = boxes[next];
      if (one.left < other.right - 2 && other.left < one.right - 2) found.push(`${text} / ${also}`);
    }
    if (one.left < -1 || one.right > innerWidth + 1) found.push(`${text} leaves the page`);
  });
  return found; }"""

CHART_OVERLAPS = """chart => {
  const boxes = chart.getZr().storage.getDisplayList(true).filter(item =>
    item.style?.text?.trim && item.style.text.trim() && !item.ignore && !item.invisible).flatMap(item => {
      const turn = item.getComputedTransform();
      if (turn && Math.abs(turn[0] * turn[1]) > 1e-6) return [];
      const box = item.getBoundingRect().clone();
      if (turn) box.applyTransform(turn);
      return [[box, item.style.text]]; });
  const found = [];
  boxes.forEach(([one, text], at) => {
    const [right, bottom] = [one.x + one.width, one.y + one.height];
    if (one.x < -1 || one.y < -1 || right > chart.getWidth() + 1 || bottom > chart.getHeight() + 1)
      found.push(`${text} leaves the chart`);
    for (const [other, also] of boxes.slice(at + 1))
      if (one.x < other.x + other.width - 1 && other.x < one.x + one.width - 1
        && one.y < other.y + other.height - 2 && other.y < one.y + one.height - 2) found.push(`${text} / ${also}`);
  });
  return boxes.length ? found : ['no labels']; }"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_no_labels_overlap_and_nothing_is_wider_than_the_screen(browser, places, site, width, scheme):
    visit = Visit(browser, site, viewport={"width": width, "height": 900}, color_scheme=scheme)
    pages = [path for path in site.glob("*.html") if scheme == "light" or path.name in ("index.html", "curves.html")]
    for path in [*pages, next((site / "models").glob("resnet20-natural*")), next((site / "runs").iterdir())]:
        page = visit.open(path.relative_to(site).as_posix())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path.name
        cut = (
            "boxes => boxes.filter(box => box.scrollWidth > box.clientWidth + 1).map(box => box.innerText.slice(0, 60))"
        )
        assert page.eval_on_selector_all(".wide", cut) == [], path.name
        assert page.evaluate(OVERLAPS) == [], path.name
        for at in range(page.locator("figure.chart").count()):
            assert chart(page, at).evaluate(CHART_OVERLAPS) == [], path.name
    for run in ("zoo1", "1-fmn") if scheme == "light" else ():
        page = visit.open(f"runs/{Store.at(places / run).manifest()['key']}.html")
        for row in range(4):
            page.evaluate(f"assay.open({row})")
            page.locator(".logits").first.wait_for()
            assert page.evaluate(OVERLAPS) == [], f"sample {row} of {run}"
            assert page.locator("dialog").evaluate("one => one.scrollWidth - one.clientWidth") == 0
    visit.close()
    assert not visit.trouble


def test_crowded_charts_keep_their_labels_apart(browser, tmp_path):
    write_runs(tmp_path / "runs", 9, 2, 20)
    index = build([tmp_path / "runs"], tmp_path / "site")
    for width in (1440, 390):
        visit = Visit(browser, index.parent, viewport={"width": width, "height": 900})
        page = visit.open("curves.html")
        held = chart(page)
        tick = "boxes => { boxes.forEach(box => box.checked = true); boxes[0].dispatchEvent(new Event('change')); }"
        page.eval_on_selector_all(".pickers input", tick)
        assert page.locator("#curve-note").inner_text().startswith("The first 16 of ")
        assert held.evaluate(CHART_OVERLAPS) == []
        page = visit.open("tradeoff.html")
        assert chart(page).evaluate(CHART_OVERLAPS) == []
        assert "law of Su et al." in page.locator("main").inner_text()  # nine models are enough for it
        visit.close()


def test_paper_gets_no_buttons_and_no_dark(visit):
    page = visit.open("index.html")
    page.get_by_role("button", name="Switch to dark").click()
    page.emulate_media(media="print")
    assert not page.locator("#theme").is_visible()
    assert not page.locator("form.controls").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_without_scripts_the_numbers_are_still_there(browser, site):
    visit = Visit(browser, site, java_script_enabled=False)
    page = visit.open("index.html")
    assert page.locator(".board tbody tr").count() == 4
    assert not page.locator("form.controls").first.is_visible()
    visit.close()


@pytest.mark.long
def test_a_hundred_models_and_twenty_attacks_open_at_once(browser, tmp_path):
    write_runs(tmp_path / "runs", 100, 20, 100)
    index = build([tmp_path / "runs"], tmp_path / "site")
    assert sum(path.stat().st_size for path in index.parent.rglob("*") if path.is_file()) < 26_000_000
    visit = Visit(browser, index.parent)
    for name in ("index.html", "curves.html", "tradeoff.html", "runs.html"):
        page = visit.open(name)
        if page.locator("figure.chart").count():
            chart(page)
        took = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
        assert took < 2000, name
    visit.close()
    assert not visit.trouble


def test_the_embedded_sample_was_really_used(site):
    """The pictures in the gallery are the images of the dataset, not something drawn."""
    page = next(path for path in (site / "models").iterdir() if "resnet20-natural" in path.name)
    assert page.read_text().count("data:image/png") > 3
    assert data.load("cifar10-1k").classes[0] in page.read_text()
