"""Compares express with AutoAttack on the honest models of the collection; the same call resumes.

    python -m benchmarks.express_collection [--minutes M]

The models are those on drawn images: small networks of unusual designs. The attacks get each model's own images and
radius under L∞. Every model is one JSON line in docs/express-collection.jsonl; the table of all of them is a section of
docs/express.md.
"""

import argparse
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import torch

import robustassay as ra
from benchmarks.express_agreement import compare
from benchmarks.express_table import summary
from benchmarks.model_collection import COLLECTION, Entry
from benchmarks.page_section import replace_section
from robustassay.malloc_settings import keep_freed_memory
from robustassay.studies.provenance import commit

HEADING: Final = "Unusual honest networks"
COLUMNS: Final = (
    "network",
    "part",
    "images",
    "autoattack",
    "express",
    "misses",
    "not in doubt",
    "in doubt",
    "flags",
    "cost ratio",
)
SECTION: Final = """Honest models of the [collection](doctor-rates.md) with unusual designs, each with images and a
radius of its own under L∞: those on drawn images, {count} of {total} so far. Two stages of express were added after a
look at the fourth part (a network whose logits grow along the way, and one with a hundred classes), and the attacks
of other kinds of the cross-check after a look at the tuning part (a network with attention): these parts do not count
as unseen, nor does "tiny images", whose accuracy was known. Columns as above. As in any evaluation, express ends in its
self-test and cross-check; a flag puts all samples that stand in doubt. Measured on {dates} with commit {commits}; made
by `python -m benchmarks.express_collection`.

{parts}

{table}
"""
CHOSEN_ON: Final = ("fourth", "tuning")
KNOWN: Final = ("tiny images, bars",)
ROWS: Final = Path("docs/express-collection.jsonl")


def measure(entry: Entry, images: int) -> dict[str, Any]:
    """Run both attacks on one model."""
    model, dataset, results = entry.build().eval(), entry.dataset(images), {}
    for attack, checks in (("autoattack", 0), ("express", ra.Search().self_test)):
        start, search = time.perf_counter(), ra.Search(self_test=checks, despite_flags=True)
        result = ra.evaluate(model, dataset, ra.LInf(entry.eps), attack, keep_images=False, search=search)
        results[attack] = result, round(time.perf_counter() - start, 1)
    (reference, slow), (ours, fast) = results["autoattack"], results["express"]
    found = compare(reference.records, ours.records, ours.doubtful)
    seconds, flags = {"autoattack": slow, "express": fast}, ", ".join(ours.flags)
    return {"network": entry.name, "part": entry.part, **found, "flags": flags, "seconds": seconds}


def candidates() -> list[Entry]:
    """Return the honest models on drawn images, those on small images first."""
    honest = [one for one in COLLECTION if one.kind == "honest" and one.asked == "together"]
    drawn = [one for one in honest if "cifar10" not in one.images]
    return sorted(drawn, key=lambda one: one.shape[1] * one.shape[2])


def section(rows: Sequence[dict[str, Any]]) -> str:
    """Write the section of the page: unseen networks first."""
    seen = [row for row in rows if row["part"] in CHOSEN_ON or row["network"] in KNOWN]
    unseen = [row for row in rows if row not in seen]
    texts = [(f"{len(unseen)} unseen networks", unseen), (f"{len(seen)} networks that were looked at", seen)]
    parts = "\n".join(f"- {text}: {summary(part)}".replace("\n", " ") for text, part in texts if part)
    dates, commits = (", ".join(sorted({row[key] for row in rows})) for key in ("date", "commit"))
    counts = {"count": len(rows), "total": len(candidates())}
    return SECTION.format(**counts, dates=dates, commits=commits, parts=parts, table=table([*unseen, *seen]))


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Write the rows as a Markdown table."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in rows:
        shares = {key: f"{row[key]:.1%}" for key in ("autoattack", "express")}
        cells = {**row, **shares, "cost ratio": f"{row['cost ratio']:.0f}x"}
        lines.append("| " + " | ".join(str(cells[column]) for column in COLUMNS) + " |")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    """Measure every model that has no row yet, then write the section."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--images", type=int, default=32)
    options.add_argument("--minutes", type=float, default=float("inf"), help="time after which no model is begun")
    chosen = options.parse_args(words)
    keep_freed_memory()
    torch.set_num_threads(1)
    start = time.monotonic()
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []
    known = {row["network"] for row in rows}
    for entry in candidates():
        if entry.name in known or time.monotonic() - start > 60 * chosen.minutes:
            continue
        rows.append(measure(entry, chosen.images) | {"date": str(datetime.now(UTC).date()), "commit": commit()})
        with ROWS.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(json.dumps(rows[-1]), flush=True)
    replace_section(Path("docs/express.md"), HEADING, section(rows))


if __name__ == "__main__":
    main()
