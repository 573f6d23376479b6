"""Measures what express and AutoAttack cost per surviving image with few and with many classes.

    python -m benchmarks.many_classes FEW.safetensors MANY.safetensors --few FEW.npz --many MANY.npz [--eps 4/255]

Both networks are of one architecture, written by `benchmarks.train_networks` on data with few and with many classes;
the `.npz` files hold test images (uint8, [n, 32, 32, 3]) and labels. Costs are forward-equivalents (a backward pass
counts as two), seconds and, on a GPU, the most memory that was held at once, each per image that survives.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import robustassay as ra
from benchmarks import networks
from benchmarks.timed import timed
from benchmarks.train_networks import read_arrays
from robustassay import data
from robustassay.eps import parse_eps


def main(words: Sequence[str] | None = None) -> None:
    """Measure both networks and print one JSON line per network and attack, then the ratios."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("networks", type=Path, nargs=2, metavar="NETWORK")
    options.add_argument("--few", type=Path, required=True)
    options.add_argument("--many", type=Path, required=True)
    options.add_argument("--attacks", default="express,autoattack")
    options.add_argument("--eps", default="4/255")
    options.add_argument("--images", type=int, default=500)
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = options.parse_args(words)
    threat = ra.LInf(parse_eps(chosen.eps))
    for attack in chosen.attacks.split(","):
        few, many = (
            measure(network, images, attack, threat, chosen.images, chosen.device)
            for network, images in zip(chosen.networks, (chosen.few, chosen.many), strict=True)
        )
        for row in (few, many):
            print(json.dumps(row), flush=True)
        print(json.dumps({"attack": attack, "cost ratio": many["cost"] / few["cost"]}), flush=True)


def measure(network: Path, images: Path, attack: str, threat: ra.LInf, count: int, device: str) -> dict[str, Any]:
    """Attack the first images; return the costs per surviving image."""
    x, y = read_arrays(images)
    samples = data.from_arrays(x[:count].float() / 255, y[:count])
    classes = int(y.max()) + 1
    module = networks.load(network).to(device)
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    seconds, result = timed(ra.evaluate, module, samples, threat, attack, device=device, keep_images=False)
    records = result.records
    unbroken = records[records["clean_ok"] & ~records["success"]]
    survivors = max(1, len(unbroken))
    return {
        "network": network.stem,
        "classes": classes,
        "attack": attack,
        "clean": result.clean_accuracy,
        "robust": result.robust_accuracy,
        "survivors": len(unbroken),
        "cost": float((unbroken["forwards"] + 2 * unbroken["backwards"]).sum() / survivors),
        "seconds": seconds / survivors,
        "bytes": torch.cuda.max_memory_allocated() if device != "cpu" else None,
    }


if __name__ == "__main__":
    main()
