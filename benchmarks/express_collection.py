"""Compares express with AutoAttack on the honest models of the collection; the same call resumes.

    python -m benchmarks.express_collection --out DIR --section docs/express.md

The models are those whose forward pass on all images takes no longer than `--forward-seconds`: small networks of
unusual designs. The attacks get each model's own images and radius under L∞. Every model is one JSON line in
`DIR/rows.jsonl`.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

import robustassay as ra
from benchmarks.express_agreement import compare, summary
from benchmarks.model_collection import COLLECTION, Entry
from benchmarks.page_section import replace_section
from robustassay.malloc_settings import keep_freed_memory

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
radius of its own under L∞; left out are models whose forward pass on these images takes more than {limit:g} ms on one
core. Two stages of express were added after a look at the part "latest" (a network whose logits grow along the way,
and one with a hundred classes), and the attacks of other kinds of the cross-check after a look at the tuning part (a
network with attention): these parts do not count as unseen. Columns as above. As in any evaluation, express ends in its
self-test and cross-check; a flag puts all samples that stand in doubt. Measured on {date}; made by
`python -m benchmarks.express_collection`.

{parts}

{table}
"""
CHOSEN_ON: Final = ("latest", "tuning")


def measure(entry: Entry, model: nn.Module, images: int) -> dict[str, Any]:
    """Run both attacks on one model."""
    dataset, results = entry.dataset(images), {}
    for attack, checks in (("autoattack", 0), ("express", ra.Search().self_test)):
        start, search = time.perf_counter(), ra.Search(self_test=checks, despite_flags=True)
        result = ra.evaluate(model, dataset, ra.LInf(entry.eps), attack, keep_images=False, search=search)
        results[attack] = result, round(time.perf_counter() - start, 1)
    (reference, slow), (ours, fast) = results["autoattack"], results["express"]
    found = compare(reference.records, ours.records, ours.doubtful)
    seconds, flags = {"autoattack": slow, "express": fast}, ", ".join(ours.flags)
    return {"network": entry.name, "part": entry.part, **found, "flags": flags, "seconds": seconds}


def candidates(images: int, seconds: float) -> Iterator[tuple[Entry, nn.Module]]:
    """Yield the honest models that are quick enough on their images."""
    for entry in sorted(COLLECTION, key=lambda one: one.shape[1] * one.shape[2]):
        if entry.kind == "honest" and entry.asked == "together":
            model = entry.build().eval()
            if forward_seconds(entry, model, images) <= seconds:
                yield entry, model


@torch.no_grad()
def forward_seconds(entry: Entry, model: nn.Module, images: int) -> float:
    """Return the time of a forward pass on drawn images; the best of three."""
    kind = next((values.dtype for values in model.parameters()), torch.float32)
    x, taken = torch.rand(images, *entry.shape).to(kind), []
    for _ in range(3):
        start = time.perf_counter()
        model(x)
        taken.append(time.perf_counter() - start)
    return min(taken)


def section(rows: Sequence[dict[str, Any]], limit: float) -> str:
    """Write the section of the page: unseen parts first."""
    seen = [row for row in rows if row["part"] in CHOSEN_ON]
    unseen = [row for row in rows if row["part"] not in CHOSEN_ON]
    texts = [(f"{len(unseen)} unseen networks", unseen), (f"{len(seen)} networks of the parts looked at", seen)]
    parts = "\n".join(f"- {text}: {summary(part)}".replace("\n", " ") for text, part in texts if part)
    return SECTION.format(limit=1000 * limit, date=datetime.now(UTC).date(), parts=parts, table=table([*unseen, *seen]))


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Write the rows as a Markdown table."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in rows:
        shares = {key: f"{row[key]:.1%}" for key in ("autoattack", "express")}
        cells = {**row, **shares, "cost ratio": f"{row['cost ratio']:.0f}x"}
        lines.append("| " + " | ".join(str(cells[column]) for column in COLUMNS) + " |")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    """Measure every model that has no row yet, then print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--images", type=int, default=32)
    options.add_argument("--forward-seconds", type=float, default=0.02)
    options.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no model is begun")
    options.add_argument("--section", type=Path, help="page whose section these rows become")
    chosen = options.parse_args(words)
    chosen.out.mkdir(parents=True, exist_ok=True)
    keep_freed_memory()
    path, start = chosen.out / "rows.jsonl", time.monotonic()
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    known = {row["network"] for row in rows}
    for entry, model in candidates(chosen.images, chosen.forward_seconds) if chosen.limit else ():
        if entry.name in known:
            continue
        if time.monotonic() - start > chosen.limit:
            break
        rows.append(measure(entry, model, chosen.images))
        with path.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(json.dumps(rows[-1]), flush=True)
    print(table(rows))
    if chosen.section:
        replace_section(chosen.section, HEADING, section(rows, chosen.forward_seconds))


if __name__ == "__main__":
    main()
