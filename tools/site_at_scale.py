"""Builds the report of many made-up runs and says what it weighs and how fast its pages open in Chromium.

    python -m tools.site_at_scale [--models 100] [--attacks 20] [--samples 10000] [--folder runs/at-scale]

The records are those of a real run, repeated, with successes drawn anew for each model and attack.
"""

import argparse
import json
import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from playwright.sync_api import sync_playwright

import assay
from assay.report import build
from assay.store import Store

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


def main() -> None:
    """Write the runs that are missing, build the site and open its pages."""
    options = argparse.ArgumentParser()
    options.add_argument("--models", type=int, default=100)
    options.add_argument("--attacks", type=int, default=20)
    options.add_argument("--samples", type=int, default=10_000)
    options.add_argument("--folder", type=Path, default=Path("runs/at-scale"))
    chosen = options.parse_args()
    write_runs(chosen.folder / "runs", chosen.models, chosen.attacks, chosen.samples)
    site = chosen.folder / "site"
    shutil.rmtree(site, ignore_errors=True)
    started = time.perf_counter()
    build([chosen.folder / "runs"], site)
    figures = {
        "models": chosen.models,
        "attacks": chosen.attacks,
        "samples": chosen.samples,
        "seconds to build": round(time.perf_counter() - started, 1),
        "megabytes": round(sum(file.stat().st_size for file in site.rglob("*") if file.is_file()) / 1e6, 2),
        "seconds to open": opening_times(site),
    }
    print(json.dumps(figures, indent=2))


def write_runs(folder: Path, models: int, attacks: int, samples: int) -> None:
    """Write a run for every model and attack."""
    steps = [5 * (1 + number) for number in range(attacks)]
    first = assay.evaluate("resnet20-pgd", "cifar10-1k", assay.LInf(8 / 255), "fgsm", limit=200)
    table = pa.Table.from_pandas(first.records, preserve_index=False)
    rows = np.arange(samples) % len(table)
    base = table.take(pa.array(rows))
    base = base.set_column(base.schema.get_field_index("sample_id"), "sample_id", pa.array(map(str, range(samples))))
    draw = np.random.default_rng(0)
    clean = np.array(base["clean_ok"])
    for model in range(models):
        strength = draw.uniform(0.2, 0.95)
        for attack, count in enumerate(steps):
            store = Store(folder / f"model-{model}" / f"pgd-{count}")
            if not store.exists():
                won = ~clean | (draw.uniform(size=samples) < strength * (1 - 0.5 ** (1 + attack)))
                _write(store.path, base, won, f"model-{model}", count, first.manifest)


def _write(path: Path, base: pa.Table, won: np.ndarray, model: str, steps: int, manifest: dict[str, object]) -> None:
    spec = json.loads(json.dumps(manifest["spec"]))
    spec["model"] |= {"name": model, "sha256": f"{hash(model):x}"}
    spec["attack"] = {"name": "pgd", "steps": steps}
    columns = {"claimed": won, "success": won, "valid": [True if one else None for one in won]}
    for name, values in columns.items():
        base = base.set_column(base.schema.get_field_index(name), base.schema.field(name), pa.array(values))
    title = f"{model} on cifar10-1k, pgd, Linf 8/255"
    Store.open(path, manifest | {"spec": spec, "key": f"{model}-{steps}", "title": title}).append(base)


def opening_times(site: Path) -> dict[str, float]:
    """Open each kind of page from the disk; the time until it has loaded and its scripts have run."""
    pages = sorted(site.glob("*.html"))
    pages += [next(folder.glob("*.html")) for folder in sorted(site.iterdir()) if any(folder.glob("*.html"))]
    found = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for page in pages:
            tab = browser.new_page()
            started = time.perf_counter()
            tab.goto(page.resolve().as_uri(), wait_until="load")
            tab.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
            found[str(page.relative_to(site))] = round(time.perf_counter() - started, 2)
            tab.close()
        browser.close()
    return found


if __name__ == "__main__":
    main()
