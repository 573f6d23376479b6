"""Compares express with AutoAttack, sample by sample, under L∞, L2 and L1; the same call resumes.

    python -m benchmarks.express_agreement --networks resnet18-linf,wrn28-10-l1,resnet20-pgd --images 200 \
        --device cuda --out DIR [--train train.npz]

A network is a name of the zoo, `file.py:factory`, or a name of `benchmarks/train_networks.py`, whose weights lie in
`DIR/networks` and are trained first where they are missing and `--train` is given. Every pair of network and threat is
one JSON line on the terminal and in `DIR/rows.jsonl`; the table follows. The runs stay in `DIR/runs`, from which
`benchmarks/doubt_calibration.py` fits the probability that a sample in doubt falls, and `benchmarks/express_page.py`
writes the page. Several processes may share a GPU:
ASSAY_GPU_SHARE is the part of its memory that this one may take.
"""

import argparse
import importlib
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd
import torch
from torch import nn

import robustassay as ra
from benchmarks import networks, train_networks
from benchmarks.express_table import table
from robustassay.eps import parse_eps
from robustassay.errors import EvaluationFailed
from robustassay.evaluation.model_ref import ModelRef

NORMS: Final[dict[str, type[ra.LInf] | type[ra.L2] | type[ra.L1]]] = {"linf": ra.LInf, "l2": ra.L2, "l1": ra.L1}
THREATS: Final = "linf:2/255,linf:4/255,linf:8/255,linf:16/255,l2:0.25,l2:0.5,l2:1,l1:6,l1:12,l1:24"
AGAIN: Final = "autoattack-again"
"""The folder of AutoAttack with another seed."""

POINTS: Final = 0.002
EQUAL: Final = 0.995


@dataclass(frozen=True)
class Threat:
    """A norm and a radius, as written on the command line."""

    text: str

    @property
    def norm(self) -> ra.LInf | ra.L2 | ra.L1:
        """The norm with its radius."""
        name, _, eps = self.text.partition(":")
        return NORMS[name](parse_eps(eps))

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return re.sub(r"[^\w.]", "-", self.text)


def compare(first: pd.DataFrame, second: pd.DataFrame, doubtful: Sequence[str]) -> dict[str, Any]:
    """Compare the records of AutoAttack with those of express; a miss is a sample that only AutoAttack broke."""
    reference, ours = (table.set_index("sample_id") for table in (first, second))
    stands_reference, stands = (
        table["clean_ok"] & ~table["success"] for table in (reference, ours.loc[first.sample_id])
    )
    missed = stands.index[(stands & ~stands_reference).to_numpy(bool)]
    cost = [float((table["forwards"] + 2 * table["backwards"]).mean()) for table in (first, second)]
    row = {
        "images": len(first),
        "clean": float(reference["clean_ok"].mean()),
        "autoattack": float(stands_reference.mean()),
        "express": float(stands.mean()),
        "equal": float((stands == stands_reference).mean()),
        "misses": len(missed),
        "not in doubt": len(set(missed) - set(doubtful)),
        "in doubt": len(doubtful),
        "cost autoattack": cost[0],
        "cost express": cost[1],
        "cost ratio": cost[0] / cost[1] if cost[1] else 1.0,  # no sample was attacked
    }
    close = row["express"] <= row["autoattack"] + POINTS and row["equal"] >= EQUAL
    return row | {"holds": bool(close and not row["not in doubt"])}


def load(name: str, options: argparse.Namespace) -> nn.Module:
    """Return a network in eval mode; train it first where it is missing."""
    if not any(name.startswith(f"{architecture}-") for architecture in networks.SHAPES):
        return ModelRef.of(name).module
    path = options.out / "networks" / f"{name}.safetensors"
    if not path.exists():
        if options.train is None:
            raise SystemExit(f"There is no {path}: give the training images with --train.")
        words = ["--train", options.train, "--out", path.parent, "--networks", name, "--device", options.device]
        train_networks.main([str(word) for word in words])
    return networks.load(path)


def measure(name: str, model: nn.Module, threat: Threat, options: argparse.Namespace) -> dict[str, Any]:
    """Run the attacks on one network under one threat, or go on with the runs in the folder."""
    folder = options.out / "runs" / name.replace("/", "-") / f"{threat.folder}-{options.images}"

    def run(attack: str, place: str = "", seed: int = 0) -> tuple[ra.Result, float]:
        start = time.perf_counter()
        result = ra.evaluate(
            model,
            options.data,
            threat.norm,
            attack,
            limit=options.images,
            seed=seed,
            device=options.device,
            out=folder / (place or re.sub(r"[^\w.-]", "-", attack)),
            keep_images=False,
            search=ra.Search(self_test=0),
        )
        return result, round(time.perf_counter() - start, 1)

    judge = "autoattack" if options.reference.startswith("autoattack") else ""
    (reference, slow), (ours, fast) = run(options.reference, judge), run("express")
    for attack in filter(None, options.also.split("+")):
        run(attack)
    if options.again:
        run(options.reference, AGAIN, seed=1)
    found = compare(reference.records, ours.records, ours.doubtful)
    seconds = {"autoattack": slow, "express": fast}
    return {"network": name, "threat": threat.text, **found, "reference": options.reference, "seconds": seconds}


def threats_of(name: str, options: argparse.Namespace) -> list[Threat]:
    """Return the threats of a network: all, or those under the norm that its name says it was trained with."""
    threats = [Threat(text) for text in options.threats.split(",")]
    return [one for one in threats if not options.own_norm or f"-{one.text.partition(':')[0]}" in name]


def main(words: Sequence[str] | None = None) -> None:
    """Measure every pair of network and threat that has no row yet, then print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--networks", required=True, help="names, separated by commas")
    options.add_argument("--threats", default=THREATS, help="such as linf:8/255,l1:12")
    options.add_argument("--images", type=int, default=200)
    options.add_argument("--data", default="cifar10-1k", help="test images, as `assay eval` takes them")
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--train", type=Path, help="training images of benchmarks/train_networks.py")
    options.add_argument("--reference", default="autoattack", help="autoattack, or express-wide where that is too slow")
    options.add_argument("--own-norm", action="store_true", help="only threats of the norm in the network's name")
    options.add_argument("--also", default="", help="further attacks for the calibration, such as pgd+square:steps=500")
    options.add_argument("--again", action="store_true", help="run AutoAttack with another seed, for the calibration")
    options.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no row is begun")
    chosen = options.parse_args(words)
    if "express-wide" in (*chosen.also.split("+"), chosen.reference):
        importlib.import_module("benchmarks.express_wide")  # registers it
    if chosen.device == "cuda" and "ASSAY_GPU_SHARE" in os.environ:
        torch.cuda.set_per_process_memory_fraction(float(os.environ["ASSAY_GPU_SHARE"]))
    chosen.out.mkdir(parents=True, exist_ok=True)
    path, start = chosen.out / "rows.jsonl", time.monotonic()
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    known = {(row["network"], row["threat"], row["images"], row["reference"]) for row in rows}
    for spec in chosen.networks.split(","):
        name = spec.rpartition(":")[2]
        settings = chosen.images, chosen.reference
        missing = [one for one in threats_of(name, chosen) if (name, one.text, *settings) not in known]
        model = load(spec, chosen) if missing and time.monotonic() - start < chosen.limit else None
        for threat in missing:
            if model is None or time.monotonic() - start > chosen.limit:
                continue
            try:
                row = measure(name, model, threat, chosen)
            except (RuntimeError, EvaluationFailed) as error:  # the same call measures the row again
                print(f"{name} {threat.text} failed: {error}", flush=True)
                continue
            rows.append(row)
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
