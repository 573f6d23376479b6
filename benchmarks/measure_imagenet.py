"""Measures top-1 and top-5 accuracy of every ImageNet network with available weights, and writes docs/imagenet.md.

    ASSAY_WEIGHTS=WEIGHTS python -m benchmarks.measure_imagenet nips2017:FOLDER [NETWORK...] [--limit 100]

The figures go into src/robustassay/models/architectures/imagenet/measured.json; the page is written from there.
A network that was measured on the same photographs with the same weights is left alone.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from robustassay import data, models
from robustassay.analysis.intervals import wilson
from robustassay.data import Dataset
from robustassay.files import write_atomically
from robustassay.models.architectures.imagenet.catalogue import ENTRIES, MEASURED, PublishedNetwork
from robustassay.models.input_frame import as_model_input
from robustassay.models.sources.imagenet import available

PAGE: Final = Path("docs/imagenet.md")
START, END = "<!-- measured: start -->", "<!-- measured: end -->"
BATCH: Final = 50


def main(words: Sequence[str]) -> int:
    """Measure the missing networks, then write the page."""
    options = parse(words)
    photographs = data.load(options.data).take(options.limit)
    known: dict[str, Any] = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    for name in options.networks or available():
        entry = next(entry for entry in ENTRIES if entry.name == name)
        told = {"weights": entry.sha256, "data": photographs.sha256, "images": len(photographs)}
        if {key: known.get(name, {}).get(key) for key in told} == told:
            continue
        started = time.monotonic()
        known[name] = told | {"photographs": photographs.name, **measure(name, photographs)}
        write_atomically(MEASURED, (json.dumps(known, indent=2, sort_keys=True) + "\n").encode())
        print(f"{name}: {known[name]['top1']:.1%} / {known[name]['top5']:.1%}, {time.monotonic() - started:.0f} s")
    write(known)
    return 0


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="photographs, such as imagenet:FOLDER or nips2017:FOLDER")
    parser.add_argument("networks", nargs="*", help="names; default: all with available weights")
    parser.add_argument("--limit", type=int, help="number of photographs; default: all")
    return parser.parse_args(words)


@torch.no_grad()
def measure(name: str, photographs: Dataset) -> dict[str, float]:
    """Return the top-1 and top-5 accuracy."""
    module = models.load(f"imagenet:{name}")
    seen, first, among = as_model_input(module, photographs), 0, 0
    for start in range(0, len(seen), BATCH):
        rows = range(start, min(start + BATCH, len(seen)))
        best = module(seen.images(rows)).topk(5, dim=1).indices == seen.labels[rows.start : rows.stop, None]
        first, among = first + int(best[:, 0].sum()), among + int(best.any(1).sum())
    return {"top1": first / len(seen), "top5": among / len(seen)}


def write(known: dict[str, Any]) -> None:
    """Write the table into the page, between its markers."""
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(START, 1)
    tail = rest.split(END, 1)[1]
    PAGE.write_text(f"{head}{START}\n{table(known)}\n{END}{tail}", encoding="utf-8")


def table(known: dict[str, Any]) -> str:
    """Return the table: one row per network, with measured and published accuracies."""
    heading = (
        "network",
        "input",
        "parameters",
        "top-1 here (95 %)",
        "top-5 here",
        "published top-1 / top-5",
        "said by",
    )
    lines = [heading, ("---",) * len(heading)]
    lines += [row(entry, known[entry.name]) for entry in ENTRIES if entry.name in known]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def row(entry: PublishedNetwork, found: dict[str, Any]) -> tuple[str, ...]:
    """Return the row of one network."""
    low, high = (float(end) for end in wilson(round(found["top1"] * found["images"]), found["images"]))
    five = "–" if entry.top5 is None else f"{entry.top5:.1%}"
    return (
        f"`imagenet:{entry.name}`",
        str(entry.side),
        f"{entry.parameters:,}",
        f"{found['top1']:.1%} ({low:.1%} to {high:.1%})",
        f"{found['top5']:.1%}",
        f"{entry.top1:.1%} / {five}",
        entry.said_by,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
