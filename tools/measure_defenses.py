"""Attacks defended models as one who does not know of the defense and as one who does; writes docs/defenses.md.

    nice -n 10 python -m tools.measure_defenses [DEFENSE...] [--limit 100]

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

from tools import defenses_page, measure_zoo
from tools.measure_zoo import DATA, SEED

import assay
from assay import models
from assay.analysis.compare import standing
from assay.defenses import Blind, create
from assay.target.network import LANES

ATTACK, DRAWS, LIMIT = "pgd", 10, 100


@dataclass(frozen=True)
class Case:
    """A defended model and a radius, in 255ths; without a defense, the model draws random numbers of its own."""

    defense: str
    model: str
    eps: int
    attackers: tuple[str, ...]


ROUNDS = ("own_gradient", "unaware", "adaptive")
DRAWS_ANEW = ("unaware", "one_draw", "adaptive")
CASES = (
    Case("jpeg:quality=75", "resnet56-natural", 8, ROUNDS),
    Case("bit-depth:bits=3", "resnet56-natural", 8, ROUNDS),
    Case("bit-depth:bits=3", "resnet56-natural", 3, ("unaware", "adaptive")),
    Case("bit-depth:bits=3", "resnet56-natural", 2, ROUNDS),
    Case("resize-pad", "resnet20-natural", 2, DRAWS_ANEW),
    Case("", "vgg16-rse", 2, ("one_draw", "adaptive")),
    # One copy instead of ten: ten would hand ten draws to who asks for one.
    Case("randmix:copies=1", "vgg16-natural", 4, DRAWS_ANEW),
)


def main(words: Sequence[str]) -> int:
    """Measure what is not known yet, case by case, and write the page after each."""
    options = parse(words)
    cases = [case for case in CASES if not options.defenses or {name_of(case)} & {*options.defenses}]
    for case in cases:
        for attacker in case.attackers:
            started = time.monotonic()
            if known(case, attacker).get("images", 0) >= options.limit:
                continue
            found = measure(case, attacker, options.limit, options.out, options.device)
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
    """Name a case by its defense, the model's own noise by its recipe."""
    return case.defense or models.card(case.model).recipe


def measure(case: Case, attacker: str, images: int, out: Path, device: str | None) -> dict[str, Any]:
    """Attack one defended model and return what the card shall say."""
    spec = f"{case.defense}|{case.model}" if case.defense else case.model
    blind = attacker == "own_gradient"
    named = f"naive|{spec}" if attacker == "unaware" else spec
    draws = DRAWS if attacker == "adaptive" else 1
    folder = f"{name_of(case)}-{case.model}-{models.card(case.model).sha256[:8]}-{case.eps}-{attacker}".replace(
        "_", "-"
    )
    result = assay.evaluate(
        Blind(create(case.defense) | case.model) if blind else named,
        DATA,
        assay.LInf(case.eps / 255),
        ATTACK,
        limit=images,
        seed=SEED,
        device=device,
        out=out / folder,
        keep_images=False,
        eot=draws,
        batch_size=LANES * max(draws, 4),  # a call holds that many images a draw, or pads to it
        despite_flags=blind,  # that the gradient is zero is what this attacker does not see
    )
    random = "eot" in result.manifest["spec"]["model"]
    return {
        "robust": int(standing(result.records).sum()),
        "clean": int(result.records["clean_ok"].sum()),
        "images": images,
        "attack": ATTACK,
        **({"draws": draws} if random else {}),
        "command": f'assay eval "{named}" --attack {ATTACK} --eps {case.eps}/255 --limit {images}'
        + (f" --eot {draws}" if random else "")
        if not blind
        else f'assay.evaluate(Blind(create("{case.defense}") | "{case.model}"), "{DATA}", '
        f'assay.LInf({case.eps} / 255), "{ATTACK}", limit={images}, despite_flags=True)',
        "sha256": models.card(case.model).sha256,
    }


def known(case: Case, attacker: str) -> dict[str, Any]:
    """Return what a card holds of a case, if it is of these weights."""
    card = models.card(case.model)
    told = card.measurements.get("defended", {}).get(name_of(case), {}).get(f"Linf {case.eps}/255", {})
    found: dict[str, Any] = told.get(attacker, {})
    return found if found.get("sha256") == card.sha256 else {}


def write(case: Case, attacker: str, found: dict[str, Any]) -> None:
    """Put a number into the card, beside the others."""
    held = models.card(case.model).measurements.get("defended", {})
    of_defense = held.get(name_of(case), {})
    radius = f"Linf {case.eps}/255"
    of_defense = {**of_defense, radius: {**of_defense.get(radius, {}), attacker: found}}
    measure_zoo.add(case.model, {"defended": {**held, name_of(case): of_defense}})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
