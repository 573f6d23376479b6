"""Attacks defended models with adaptive and non-adaptive attacks; writes docs/defenses.md.

    nice -n 10 python -m benchmarks.measure_defenses [DEFENSE...] [--limit 100]

Both numbers go into the card of the model behind the defense, and the page is written from the cards. Resumable: what
a card holds for these weights and as many images is left alone.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools import defenses_page

import robustassay as ra
from benchmarks import measure_zoo
from benchmarks.measure_zoo import DATA, SEED
from robustassay import models
from robustassay.analysis.compare import compare, robust_samples
from robustassay.defenses import OwnGradient, create
from robustassay.target.batching import LANES

ADAPTIVE, ATTACK, LIMIT = "adaptive", "pgd", 100


@dataclass(frozen=True)
class Case:
    """A defended model and a radius, in 255ths; without a defense, the model itself is random."""

    defense: str
    model: str
    eps: int
    attackers: tuple[str, ...]
    draws: int = 10


ROUNDS = (ADAPTIVE, "own_gradient", "unaware")
DRAWS_ANEW = (ADAPTIVE, "unaware", "one_draw")
CASES = (
    Case("jpeg:quality=75", "resnet56-natural", 8, ROUNDS),
    Case("bit-depth:bits=3", "resnet56-natural", 8, ROUNDS),
    Case("bit-depth:bits=3", "resnet56-natural", 3, (ADAPTIVE, "unaware")),
    Case("bit-depth:bits=3", "resnet56-natural", 2, ROUNDS),
    Case("resize-pad", "resnet20-natural", 2, DRAWS_ANEW),
    # Each draw is a mean over five passes already.
    Case("", "vgg16-rse", 6, (ADAPTIVE, "one_draw"), draws=5),
    Case("", "vgg16-rse", 4, (ADAPTIVE, "one_draw"), draws=5),
    # One copy instead of ten: ten would hand ten draws to who asks for one.
    Case("randmix:copies=1", "vgg16-natural", 12, (ADAPTIVE, "unaware")),
    Case("randmix:copies=1", "vgg16-natural", 8, DRAWS_ANEW),
    Case("randmix:copies=1", "vgg16-natural", 4, (ADAPTIVE, "unaware")),
)


def main(words: Sequence[str]) -> int:
    """Measure the missing cases, and write the page after each."""
    options = parse(words)
    cases = [case for case in CASES if not options.defenses or {name_of(case)} & {*options.defenses}]
    for case in cases:
        missing = [one for one in case.attackers if known(case, one).get("images", 0) < options.limit]
        if not missing:
            continue
        adaptive = attack(case, ADAPTIVE, options.limit, options.out, options.device)
        for attacker in (ADAPTIVE, *(one for one in missing if one != ADAPTIVE)):
            started = time.monotonic()
            result = attack(case, attacker, options.limit, options.out, options.device)
            found = cell(case, attacker, result, adaptive)
            write(case, attacker, found)
            defenses_page.main()
            told = f"{found['robust']} of {found['images']} stand, {time.monotonic() - started:.0f} s"
            print(f"{name_of(case)} on {case.model}, {case.eps}/255, {attacker}: {told}", flush=True)
    return 0


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("defenses", nargs="*", help=f"among {', '.join(dict.fromkeys(map(name_of, CASES)))}")
    parser.add_argument("--limit", type=int, default=LIMIT, help="images a case")
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path, default=Path("runs/measure-defenses"), help="folder of the runs")
    return parser.parse_args(words)


def name_of(case: Case) -> str:
    """Return the name of a case: its defense, or the recipe of a random model."""
    return case.defense or models.card(case.model).recipe


def attack(case: Case, attacker: str, images: int, out: Path, device: str | None) -> ra.Result:
    """Attack one defended model, or read the stored run."""
    weights = models.card(case.model).sha256[:8]
    folder = f"{name_of(case)}-{case.model}-{weights}-{case.eps}-{attacker}".replace("_", "-")
    blind, draws = attacker == "own_gradient", draws_of(case, attacker)
    return ra.evaluate(
        OwnGradient(create(case.defense) | case.model) if blind else spelled(case, attacker),
        DATA,
        ra.LInf(case.eps / 255),
        ATTACK,
        limit=images,
        seed=SEED,
        device=device,
        out=out / folder,
        keep_images=False,
        search=ra.Search(eot=draws, despite_flags=blind),  # that the gradient is zero is what this attacker ignores
        execution=ra.Execution(batch_size=LANES * max(draws, 4)),  # a call holds that many images a draw, or pads to it
    )


def spelled(case: Case, attacker: str) -> str:
    """Return the name of the defended model on the command line."""
    return "|".join(["naive"] * (attacker == "unaware") + [case.defense] * bool(case.defense) + [case.model])


def draws_of(case: Case, attacker: str) -> int:
    """Return the number of draws per gradient of a random model."""
    return case.draws if attacker == ADAPTIVE else 1


def cell(case: Case, attacker: str, result: ra.Result, adaptive: ra.Result) -> dict[str, Any]:
    """Return the measurement of one attack for the card, compared with the adaptive one on the same images."""
    images = len(result.records)
    draws = {"draws": draws_of(case, attacker)} if "eot" in result.manifest["spec"]["model"] else {}
    command = f'assay eval "{spelled(case, attacker)}" --attack {ATTACK} --eps {case.eps}/255 --limit {images}'
    if attacker == "own_gradient":
        command = (
            f'robustassay.evaluate(OwnGradient(create("{case.defense}") | "{case.model}"), "{DATA}", '
            f'robustassay.LInf({case.eps} / 255), "{ATTACK}", limit={images}, '
            "search=robustassay.Search(despite_flags=True))"
        )
    beside = compare(result.records, adaptive.records)
    return {
        "robust": int(robust_samples(result.records).sum()),
        "clean": int(result.records["clean_ok"].sum()),
        "images": images,
        "only_adaptive_breaks": beside.only_first,
        "only_this_breaks": beside.only_second,
        "attack": ATTACK,
        **draws,
        "command": command + (f" --eot {draws['draws']}" if draws else ""),
        "sha256": models.card(case.model).sha256,
    }


def known(case: Case, attacker: str) -> dict[str, Any]:
    """Return the stored measurements of a case, if they are of these weights."""
    card = models.card(case.model)
    told = card.measurements.get("defended", {}).get(name_of(case), {}).get(f"Linf {case.eps}/255", {})
    found: dict[str, Any] = told.get(attacker, {})
    return found if found.get("sha256") == card.sha256 and "only_this_breaks" in found else {}


def write(case: Case, attacker: str, found: dict[str, Any]) -> None:
    """Add a measurement to the card."""
    held = models.card(case.model).measurements.get("defended", {})
    of_defense = held.get(name_of(case), {})
    radius = f"Linf {case.eps}/255"
    of_defense = {**of_defense, radius: {**of_defense.get(radius, {}), attacker: found}}
    measure_zoo.add(case.model, {"defended": {**held, name_of(case): of_defense}})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
