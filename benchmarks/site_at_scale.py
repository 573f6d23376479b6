"""Builds the report of many synthetic runs; prints its size and how fast its pages open and filter in Chromium.

python -m benchmarks.site_at_scale [--models 100] [--attacks 20] [--samples 10000] [--folder runs/at-scale]
"""

import argparse
import json
import shutil
import time
from pathlib import Path

from playwright.sync_api import sync_playwright
from tests.support.synthetic_runs import write_runs
from tools import chromium

from robustassay.report import build

FILTER = """() => { const start = performance.now(), form = document.getElementById('sample-controls');
  form.elements.outcome.value = 'b'; form.elements.sort.value = 'distance'; form.dispatchEvent(new Event('input'));
  document.body.offsetHeight; return performance.now() - start; }"""
"""Selects the broken samples, sorts them by distance and lays the page out."""


def main() -> None:
    """Write the runs that are missing, build the site and open its pages."""
    options = argparse.ArgumentParser()
    options.add_argument("--models", type=int, default=100)
    options.add_argument("--attacks", type=int, default=20)
    options.add_argument("--samples", type=int, default=10_000)
    options.add_argument("--folder", type=Path, default=Path("runs/at-scale"))
    chosen = options.parse_args()
    runs = chosen.folder / f"{chosen.models}x{chosen.attacks}x{chosen.samples}"
    if not runs.exists():
        write_runs(runs, chosen.models, chosen.attacks, chosen.samples)
    site = chosen.folder / "site"
    shutil.rmtree(site, ignore_errors=True)
    started = time.perf_counter()
    build([runs], site)
    figures = {
        "models": chosen.models,
        "attacks": chosen.attacks,
        "samples": chosen.samples,
        "seconds to build": round(time.perf_counter() - started, 1),
        "megabytes": round(sum(file.stat().st_size for file in site.rglob("*") if file.is_file()) / 1e6, 2),
        "seconds to open": opening_times(site),
    }
    print(json.dumps(figures, indent=2))


def opening_times(site: Path) -> dict[str, float]:
    """Return the time to load each kind of page from the disk and to run its scripts."""
    pages = sorted(site.glob("*.html"))
    pages += [next(folder.glob("*.html")) for folder in sorted(site.iterdir()) if any(folder.glob("*.html"))]
    found = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.find(), args=list(chromium.FLAGS))
        for page in pages:
            tab = browser.new_page()
            started = time.perf_counter()
            tab.goto(page.resolve().as_uri(), wait_until="load")
            tab.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
            found[str(page.relative_to(site))] = round(time.perf_counter() - started, 2)
            if page.parent.name == "runs":
                found["a filter of its samples"] = round(float(tab.evaluate(FILTER)) / 1000, 3)
            tab.close()
        browser.close()
    return found


if __name__ == "__main__":
    main()
