"""Measures the robust accuracy of every embedded model and writes it into the cards and the README.

    nice -n 10 python -m benchmarks.measure_zoo [MODEL...] [--limit 100] [--device cuda] [--attack autoattack]
    python -m benchmarks.measure_zoo --study runs/robustbench2021

Resumable: a card that already says so for these weights and as many images is left alone, and a run that was
interrupted goes on from its folder. With `--study`, nothing is attacked: finished runs of `assay study robustbench2021`
give the numbers of both attacks, where they have more images than a card, or with `--again` as many: an attack may be
stronger since. AutoAttack on a random model is its version for these.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tools import zoo_table

import robustassay as ra
from robustassay import attacks, models
from robustassay.evaluation import Result
from robustassay.evaluation.model_ref import choose_device
from robustassay.files import write_atomically
from robustassay.models.card import ModelCard
from robustassay.models.weights import hash_state
from robustassay.models.zoo import EMBEDDED
from robustassay.registry import describe
from robustassay.store import Store
from robustassay.target.batching import LANES

DATA, EPS, EPS_TEXT, SEED = "cifar10-1k", 8 / 255, "8/255", 0
THREAT = {"norm": "Linf", "eps": EPS, "target": None, "query_budget": None}
KEYS, DRAWS = ("express", "autoattack"), 20
# What PGD leaves nothing of falls at once, so more images cost little; on what stands an attack takes its full length.
MANY, FEW, FALLS = 500, 100, 0.02


def main(words: Sequence[str]) -> int:
    """Measure the missing models, the fast ones first, so that an interrupt costs little."""
    options = parse(words)
    if options.study is not None:
        return take_over(options.study, options.models or models.names(), options.again)
    cards = sorted((models.card(name) for name in options.models or models.names()), key=expected_cost)
    wanted = [(card, options.limit or images_for(card)) for card in cards]
    missing = [(card, images) for card, images in wanted if not is_known(card, images, options.attack)]
    print(f"{len(cards) - len(missing)} of {len(cards)} cards know it already", flush=True)
    for done, (card, images) in enumerate(missing):
        started = time.monotonic()
        found = measure(card.name, images, options.out, options.device, options.attack)
        add(card.name, {options.attack: found})
        zoo_table.main()
        counts = f"{found['robust']} of {images} stand, {found['doubtful']} of them in doubt"
        print(f"[{done + 1}/{len(missing)}] {card.name}: {counts}, {time.monotonic() - started:.0f} s", flush=True)
    return 0


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="names of the zoo; all by default")
    parser.add_argument("--limit", type=int, help=f"images a model; by default {FEW}, {MANY} where PGD leaves none")
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--attack", choices=KEYS, default=KEYS[0])
    parser.add_argument("--study", type=Path, help="folder of the study robustbench2021, to take its runs from")
    parser.add_argument("--again", action="store_true", help="with --study: also where a card has as many images")
    parser.add_argument("--out", type=Path, default=Path("runs/measure-zoo"), help="folder of the runs")
    return parser.parse_args(words)


def take_over(study: Path, names: Sequence[str], again: bool = False) -> int:
    """Write the finished runs of a study into the cards that have fewer images, or as many."""
    for name in names:
        runs = study / "runs" / name / "run"
        for folder in sorted(folder for kind in ("test", *KEYS) for folder in runs.glob(f"{kind}-*")):
            result = Result.of_store(Store(folder))
            images, spec = len(result.records), result.manifest["spec"]
            attack = spec["attack"]["name"]
            is_default = attack in KEYS and spec["attack"] == describe("attack", attacks.create(attack))
            is_usual = spec["threat"] == THREAT and spec["data"]["name"] == DATA
            own = is_default and is_usual and spec["model"].get("weights") == hash_state(models.load(name))
            if own and not is_known(models.card(name), images + again, attack):
                add(name, {attack: measurement(name, result, images, attack)})
                print(f"{name}: {result.robust_accuracy:.1%} of {images} under {attack}", flush=True)
    zoo_table.main()
    return 0


def images_for(card: ModelCard) -> int:
    """Return the number of images for a model."""
    return MANY if falls_at_once(card) else FEW


def falls_at_once(card: ModelCard) -> bool:
    """Return whether the model is expected to have no robust accuracy, from PGD; never for random models."""
    return card.robust_accuracy < FALLS and card.recipe != "rse"


def expected_cost(card: ModelCard) -> tuple[bool, int]:
    """Return a rough estimate of the duration, to sort by."""
    return not falls_at_once(card), card.parameters


def is_known(card: ModelCard, images: int, attack: str = KEYS[0]) -> bool:
    """Return whether a card has this measurement of these weights, on at least so many images."""
    known = card.measurements.get(attack, {})
    return bool(known.get("sha256") == card.sha256 and known.get("images", 0) >= images)


def measure(name: str, images: int, out: Path, device: str | None, attack: str = KEYS[0]) -> dict[str, Any]:
    """Attack one model and return the measurement for its card."""
    # The weights are part of the folder's name: a model that was trained again is another run.
    folder = out / f"{name}-{models.card(name).sha256[:8]}{f'-{attack}' * (attack != KEYS[0])}"
    full = words_of(name, attack)
    result = ra.evaluate(
        name,
        DATA,
        ra.LInf(EPS),
        full,
        limit=images,
        seed=SEED,
        device=device,
        out=folder,
        keep_images=False,
        search=ra.Search(eot=DRAWS),
        # On a CPU a call holds that many images a draw, or pads to it.
        execution=ra.Execution(batch_size=None if choose_device(device).type == "cuda" else LANES * DRAWS),
    )
    return measurement(name, result, images, full)


def words_of(name: str, attack: str) -> str:
    """Return an attack as the command line takes it for a model; that of random models has its own version."""
    return f"{attack}:version=rand" if attack == "autoattack" and models.card(name).recipe == "rse" else attack


def measurement(name: str, result: Result, images: int, attack: str) -> dict[str, Any]:
    """Return the entry of a card for a finished run."""
    stands = result.records["clean_ok"] & ~result.records["success"]
    draws = result.manifest["spec"]["model"].get("eot")
    return {
        "robust_accuracy": result.robust_accuracy,
        "robust": int(stands.sum()),
        "clean": int(result.records["clean_ok"].sum()),
        "images": images,
        "doubtful": len(result.doubtful),
        "flags": sorted(result.flags),
        "data": f"{DATA}, its first {images} images",
        "threat": f"Linf {EPS_TEXT}",
        "command": f"assay eval {name} --data {DATA} --attack {attack} --norm Linf --eps {EPS_TEXT} --limit {images}"
        + (f" --eot {draws}" if draws else ""),
        "sha256": models.card(name).sha256,
    }


def add(name: str, found: dict[str, Any], folder: Path = EMBEDDED) -> None:
    """Write measurements into a card; the card is read again first, because another tool may have changed it."""
    card = models.card(name, folder)
    card = replace(card, measurements={**card.measurements, **found})
    write_atomically(folder / f"{name}.json", card.to_json().encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
