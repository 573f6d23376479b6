"""Times AutoAttack and express beside the reference on a GPU: the second part of docs/speed.md (see speed.py)."""

import datetime
import statistics
from pathlib import Path
from typing import Any

import torch

import robustassay as ra
from benchmarks import networks
from benchmarks.compare_autoattack import reference_verdicts
from benchmarks.timed import timed
from robustassay import data
from robustassay.eps import format_norm
from robustassay.evaluation.model_ref import ModelRef
from robustassay.results.cross_check import CrossCheck
from robustassay.results.self_test import SelfTest

EPS = 8 / 255
THREATS: dict[str, ra.LInf | ra.L2] = {"linf": ra.LInf(EPS), "l2": ra.L2(0.5)}


def on_gpu(name: str, images: int, repeat: int) -> dict[str, Any]:
    """Time ours several times, the first time in a fresh process, and the reference once.

    A name is one of the zoo, under L∞, or the path of a network that `benchmarks/train_networks.py` wrote, under
    the norm in its name.
    """
    samples, trained = data.load("cifar10-1k").take(images), Path(name).suffix == ".safetensors"
    model = (networks.load(Path(name)) if trained else ModelRef.of(name).module).eval().to("cuda")
    norm = next((norm for key, norm in THREATS.items() if trained and f"-{key}" in Path(name).stem), ra.LInf(EPS))
    row: dict[str, Any] = {"model": Path(name).stem, "threat": str(norm), "images": len(samples)}
    timed(model, samples.images(slice(0, 500)).to("cuda"))  # the first pass of a process loads libraries
    found = {}
    for attack, times in (("express", max(repeat, 3) + 1), ("autoattack", repeat)):
        runs = [
            timed(ra.evaluate, model, samples, norm, attack, device="cuda", keep_images=False) for _ in range(times)
        ]
        seconds, found[attack] = [seconds for seconds, _ in runs], runs[-1][1]
        row[f"{attack} first"], row[attack] = seconds[0], statistics.median(seconds[1:] or seconds)
        row[f"{attack} checks"] = statistics.median([seconds_of_checks(result) for _, result in runs[1:] or runs])
        print(row, flush=True)
    row["reference"], standing = timed(reference_verdicts, model, samples, torch.device("cuda"), norm, 500)
    row["reference accuracy"] = float(standing.double().mean())
    for attack, result in found.items():
        row[f"{attack} accuracy"] = result.robust_accuracy
        unbroken = torch.tensor((result.records["clean_ok"] & ~result.records["success"]).to_numpy(bool))
        row[f"{attack} equal"] = float((unbroken == standing).double().mean())
        missed = [result.records["sample_id"][at] for at in (unbroken & ~standing).nonzero().flatten().tolist()]
        row[f"{attack} missed"], row[f"{attack} not in doubt"] = len(missed), len({*missed} - {*result.doubtful})
        row["search"] = result.manifest["spec"]["model"].get("search", "the model itself")
    row["date"] = datetime.date.today().isoformat()
    print(row, flush=True)
    return row


def seconds_of_checks(result: ra.Result) -> float:
    """Return what the self-test and the cross-check took: the reference has neither."""
    return SelfTest.of(result.manifest).seconds + CrossCheck.of(result.manifest).seconds


def lines_of_page(known: dict[str, Any]) -> list[str]:
    """Return the part of the page on GPUs."""
    lines = [f"\n## AutoAttack and express compared with pyautoattack on {known['machine']}\n"]
    lines += [
        "One process per row, on networks trained for this (`benchmarks/train_networks.py`). Medians without the "
        "first run of the process, which stands in brackets: it also loads kernels; where both are equal, the attack "
        "ran once. "
        "Our seconds hold the inspection of the model, the self-test and the cross-check, which the reference has not; "
        '"alone" is the ratio without self-test and cross-check. '
        '"Equal" is the part of the samples with the reference\'s verdict; "missed" counts the samples that only '
        "the reference broke, and of these the ones that are not in doubt.\n"
    ]
    lines += [
        "| model | threat | images | reference | autoattack (first) | times | alone | equal | express (first) | times "
        "| alone | equal | missed (not in doubt) | search | date |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for row in known["rows"]:
        cells = [row["model"], format_norm(row["threat"]), f"{row['images']:,}", f"{row['reference']:.1f} s"]
        for attack in ("autoattack", "express"):
            alone = row[attack] - row.get(f"{attack} checks", row[attack])
            cells += [f"{row[attack]:.2f} s ({row[f'{attack} first']:.2f})", f"{row['reference'] / row[attack]:.1f}"]
            cells += [f"{row['reference'] / alone:.1f}" if alone else "–"]
            cells += [f"{row[f'{attack} equal']:.1%}" if f"{attack} equal" in row else "–"]
        cells += [f"{row['express missed']} ({row['express not in doubt']})" if "express missed" in row else "–"]
        lines.append(f"| {' | '.join([*cells, row['search'], row['date']])} |")
    return lines
