"""Takes the screenshots of the README: `python -m tools.screenshots SITE [FOLDER]`, of a site by `assay report`.

Needs chromium and Python's playwright (`pip install playwright`; its own browser is not needed).
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from playwright.sync_api import Browser, sync_playwright

from robustassay.report.charts.few_colours import shrink
from tools import chromium


@dataclass(frozen=True)
class Shot:
    """One screenshot: a page, its width and height, and the colour scheme."""

    name: str
    page: str  # the first that matches
    width: int = 1200
    height: int = 900
    scheme: str = "light"
    click: str = ""  # what is clicked before


RUN: Final = "runs/*.html"
SHOTS: Final = (
    Shot("overview", "index.html"),
    Shot("overview-dark", "index.html", scheme="dark"),
    Shot("overview-phone", "index.html", width=390, height=800),
    Shot("curves", "curves.html"),
    Shot("tradeoff", "tradeoff.html", height=820),
    Shot("model", "models/*pgd*.html"),
    Shot("run", RUN),
    Shot("sample", RUN, click="table.samples tbody tr:has(.outcome.b)"),
)


def main(site: Path, out: Path = Path("docs/pictures")) -> None:
    """Take all screenshots whose pages the site has."""
    if (found := chromium.find()) is None:
        sys.exit(chromium.MISSING)
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=[*chromium.FLAGS, "--hide-scrollbars"])
        for shot in SHOTS:
            pages = sorted(site.glob(shot.page))
            if shot.page == RUN:
                pages = sorted(pages, key=mixed_outcomes, reverse=True)
            if pages:
                take(browser, pages[0].resolve().as_uri(), shot, out / f"{shot.name}.png")
        browser.close()


def mixed_outcomes(run: Path) -> int:
    """Count the rarer of broken and standing samples of a run: a picture should show both."""
    data = run.parent.parent / "data" / f"samples-{run.stem}.js"
    found = re.search(r'"outcome":"(\w+)"', data.read_text(encoding="utf-8")) if data.is_file() else None
    return min(found[1].count("b"), found[1].count("s")) if found else 0


def take(browser: Browser, address: str, shot: Shot, path: Path) -> None:
    """Open a page, wait for its chart, and save a small screenshot."""
    scheme: Literal["dark", "light"] = "dark" if shot.scheme == "dark" else "light"
    context = browser.new_context(viewport={"width": shot.width, "height": shot.height}, color_scheme=scheme)
    page = context.new_page()
    page.goto(address)
    if page.locator("figure.chart").count():
        page.locator("figure.chart canvas").first.wait_for()
        page.wait_for_timeout(300)
    if shot.click:
        page.locator(shot.click).first.click()
        page.wait_for_timeout(300)
    page.screenshot(path=path)
    context.close()
    shrink(path, path)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
