"""Compares the speed of assay with other libraries, of workers and of sample counts; writes docs/speed.md and .json.

    python -m benchmarks.speed cpu          # against foolbox, torchattacks, ART and pyautoattack; workers; scaling
    python -m benchmarks.speed cpu --only cw-fast,ead-fast   # these alone; what is known of the others stays
    python -m benchmarks.speed gpu MODEL... --images 1000   # AutoAttack and express against pyautoattack on a GPU

Every ratio is of two times taken in turn in one run, medians of `--repeat`; seconds alone would not carry over. Every
library runs with the memory settings that its users have: assay sets its own for the time of an evaluation.
"""

import argparse
import datetime
import json
import platform
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

import robustassay as ra
from benchmarks import gpu_speed
from benchmarks.compare_autoattack import reference_verdicts
from benchmarks.timed import timed
from robustassay import data
from robustassay.evaluation.model_ref import ModelRef

EPS = 8 / 255
SCALED = "pgd:steps=20"
FEWER = "search_steps=3,steps=50"
"""Settings with which C&W and EAD come about as near as other libraries with five searches of 100 steps."""
FILE = Path("docs/speed.json")
PAGE = Path("docs/speed.md")


def main() -> None:
    """Measure one part, merge it into the file, and write the page."""
    options = argparse.ArgumentParser()
    options.add_argument("part", choices=("cpu", "gpu", "page"))
    options.add_argument("models", nargs="*", default=["resnet20-pgd", "resnet20-natural"])
    options.add_argument("--images", type=int, default=64)
    options.add_argument("--repeat", type=int, default=3)
    options.add_argument("--only", default="pgd,cw-fast,ead-fast,autoattack,workers,scaling")
    options.add_argument("--out", type=Path, default=FILE)
    chosen = options.parse_args()
    known = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    if chosen.part == "cpu":
        found = on_cpu(chosen.models, chosen.images, chosen.repeat, chosen.only.split(","))
        known["cpu"] = merged(known.get("cpu", {}), {"machine": machine("cpu"), **found})
    if chosen.part == "gpu":
        rows = {row["model"]: row for row in known.get("gpu", {}).get("rows", [])}
        rows |= {
            row["model"]: row
            for row in (gpu_speed.on_gpu(name, chosen.images, chosen.repeat) for name in chosen.models)
        }
        known["gpu"] = {"machine": machine("cuda"), "rows": list(rows.values())}
    chosen.out.write_text(json.dumps(known, indent=1) + "\n")
    if chosen.out == FILE:
        PAGE.write_text(page(known))


def machine(device: str) -> str:
    """Return the machine and the version of torch."""
    name = (
        torch.cuda.get_device_name()
        if device == "cuda"
        else f"{torch.get_num_threads()} cores of a {platform.machine()} CPU"
    )
    return f"{name}, torch {torch.__version__.split('+')[0]}"


# ------------------------------------------------------------------------------------------------ CPU


def on_cpu(models: list[str], images: int, repeat: int, only: list[str]) -> dict[str, Any]:
    """Compare with the other libraries, then workers with one process, then many samples with few."""
    rows = [row for name in models for row in against_peers(name, images, repeat, only)]
    found: dict[str, Any] = {"peers": rows}
    for name, measure in (("workers", workers), ("scaling", scaling)):
        if name in only:
            found[name] = measure()
    return found


def merged(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Put new rows, with their date, in the place of old ones of the same model, attack and library."""
    today = datetime.date.today().isoformat()
    dated = [*before.get("peers", []), *({**row, "date": today} for row in now["peers"])]
    rows = {tuple(row[key] for key in ("model", "attack", "library")): row for row in dated}
    return before | now | {"peers": list(rows.values())}


def against_peers(name: str, images: int, repeat: int, only: list[str]) -> list[dict[str, Any]]:
    """Time attacks that all libraries have, at equal steps, in turn; ours certifies what it finds as well."""
    samples = data.load("cifar10-1k").take(images)
    model = ModelRef.of(name).module.eval()
    rows = []
    for label, spec, norm, others in _contests(only):
        for peer, attack in others.items():
            shown = samples if label == "pgd" or peer != "ART" else samples.take(8)  # minutes an image
            x, y = shown.images(slice(None)), shown.labels
            specs = {label: spec} if label == "pgd" else {label: spec, f"{label}, fewer steps": f"{label}:{FEWER}"}
            times: dict[str, list[float]] = defaultdict(list)
            for _ in range(repeat if label == "pgd" else 1):
                found = {}
                for named, own in specs.items():
                    seconds, found[named] = timed(ra.evaluate, model, shown, norm, own, device="cpu")
                    times[named].append(seconds)
                seconds, x_adv = timed(attack, model, x, y)
                times["theirs"].append(seconds)
            for named in specs:
                rows.append(
                    {
                        "model": name,
                        "attack": named,
                        "library": peer,
                        "images": len(shown),
                        "ours": statistics.median(times[named]),
                        "theirs": statistics.median(times["theirs"]),
                        "assay found": of_ours(found[named], label),
                        "library found": of_peer(model, x, x_adv.detach(), y, norm, label),
                    }
                )
                print(rows[-1], flush=True)
    if "autoattack" in only:
        rows.append(autoattack_row(name, model, samples.take(32)))
    return rows


def _contests(only: list[str]) -> list[tuple[str, str, Any, dict[str, Any]]]:
    """Return the attacks asked for, with the same attack of every other library."""
    if not {"pgd", "cw-fast", "ead-fast"} & {*only}:
        return []  # the libraries need not be installed
    from benchmarks import peers

    fixed = peers.fixed_budget(EPS, 40, 9, 100)["pgd"]
    by_l2, by_l1 = (peers.minimum_norm(norm, 100, 5, 1e-2, 3) for norm in ("L2", "L1"))
    contests = [
        ("pgd", "pgd:steps=40,restarts=1", ra.LInf(EPS), fixed),
        ("cw-fast", "cw-fast:search_steps=5,steps=100", ra.L2(1.0), by_l2["cw"]),
        ("ead-fast", "ead-fast:search_steps=5,steps=100", ra.L1(12.0), by_l1["ead"]),
    ]
    return [contest for contest in contests if contest[0] in only]


def of_ours(result: ra.Result, label: str) -> float:
    """Return the robust accuracy of an attack within a radius, else the median distance."""
    return result.robust_accuracy if label == "pgd" else float(result.records["distance"].fillna(torch.inf).median())


def of_peer(model: nn.Module, x: torch.Tensor, x_adv: torch.Tensor, y: torch.Tensor, norm: Any, label: str) -> float:
    """Return the same quality for the images of another library, verified by us."""
    with torch.no_grad():
        wrong = model(x_adv.float()).argmax(1) != y
    if label == "pgd":
        return float((~wrong).double().mean())
    distance = norm.size((x_adv - x).flatten(1).double())
    return float(statistics.median(torch.where(wrong, distance, torch.inf).tolist()))


def autoattack_row(name: str, model: nn.Module, samples: data.Dataset) -> dict[str, Any]:
    """Time our AutoAttack and its authors' once."""
    ours, result = timed(ra.evaluate, model, samples, ra.LInf(EPS), "autoattack", device="cpu")
    theirs, standing = timed(reference, model, samples, "cpu")
    row = {"model": name, "attack": "autoattack", "library": "authors", "images": len(samples), "ours": ours}
    row |= {"theirs": theirs, "assay found": result.robust_accuracy, "library found": standing}
    print(row, flush=True)
    return row


def reference(model: nn.Module, samples: data.Dataset, device: str) -> float:
    """Run pyautoattack and return the robust accuracy that our own forward pass confirms."""
    return float(reference_verdicts(model, samples, torch.device(device)).double().mean())


def workers() -> dict[str, float]:
    """Throughput of two processes on two cores beside one with both, on work long enough to pay for their start."""
    request: dict[str, Any] = {"limit": 256, "device": "cpu", "keep_images": False}
    asked = ("resnet20x2-pgd", "cifar10-1k", ra.LInf(EPS), "apgd")
    one, _ = timed(ra.evaluate, *asked, execution=ra.Execution(wave_size=32), **request)
    two, _ = timed(ra.evaluate, *asked, execution=ra.Execution(wave_size=32, workers=2), **request)
    torch.set_num_threads(1)
    alone, _ = timed(ra.evaluate, *asked, execution=ra.Execution(wave_size=32), **request)
    torch.set_num_threads(2)
    found = {"one process, both cores": one, "one process, one core": alone, "two workers": two}
    print(found, flush=True)
    return found


def scaling() -> list[dict[str, float]]:
    """Seconds a sample for more and more samples; a process that has evaluated before has loaded what it needs."""
    images, labels = data.load("cifar10-1k").images(slice(None)), data.load("cifar10-1k").labels
    rows = []
    for count in (8, 100, 1000, 10_000):
        times = -(-count // 1000)
        shown = images.repeat(times, 1, 1, 1)[:count], labels.repeat(times)[:count]
        seconds, _ = timed(ra.evaluate, "resnet20-pgd", shown, ra.LInf(EPS), SCALED, device="cpu", keep_images=False)
        rows.append({"samples": count, "milliseconds a sample": 1000 * seconds / count})
        print(rows[-1], flush=True)
    return rows[1:]


# ------------------------------------------------------------------------------------------------ page


def page(known: dict[str, Any]) -> str:
    """Return the page."""
    lines = [
        "# Speed\n",
        "Written by `python -m benchmarks.speed cpu` and `gpu`. Times of a row were taken in turn in one process. "
        "[Gradients per second](throughput.md) compares architectures on a GPU.\n",
    ]
    if "cpu" in known:
        cpu = known["cpu"]
        lines += [f"## Comparison with other libraries on {cpu['machine']}\n"]
        lines += [
            '"Found" is the robust accuracy for attacks within a radius, and the median distance for C&W and EAD. All '
            f"libraries run C&W and EAD with up to five searches of 100 steps; assay also with fewer (`{FEWER}`).\n"
        ]
        lines += [
            "| model | attack | library | images | assay, s | library, s | times faster | assay found | library found "
            "| date |"
        ]
        lines += ["|---|---|---|---|---|---|---|---|---|---|"]
        for row in cpu["peers"]:
            lines.append(
                f"| {row['model']} | {row['attack']} | {row['library']} | {row['images']} | {row['ours']:.1f} | "
                f"{row['theirs']:.1f} | {row['theirs'] / row['ours']:.1f} | {row['assay found']:.4g} | "
                f"{row['library found']:.4g} | {row['date']} |"
            )
        if "workers" in cpu:
            lines += ["\n## Workers\n", "| APGD-100 on 256 images of resnet20x2-pgd | s |", "|---|---|"]
            lines += [f"| {name} | {seconds:.1f} |" for name, seconds in cpu["workers"].items()]
        if "scaling" in cpu:
            lines += ["\n## Many samples\n", f"| samples, `{SCALED}` on resnet20-pgd | ms per sample |", "|---|---|"]
            lines += [f"| {row['samples']:,} | {row['milliseconds a sample']:.2f} |" for row in cpu["scaling"]]
    if "gpu" in known:
        lines += gpu_speed.lines_of_page(known["gpu"])
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
