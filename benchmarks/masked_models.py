"""Examines the zoo and a gallery of broken models, attacks the latter with every library; writes docs/masked.md.

    python -m benchmarks.masked_models [--base resnet20-natural] [--images 24] [--rows FILE] [--only NAME...]

Every finished row is kept in the file of rows, so the command can be stopped and called again. The other libraries
are test-only dependencies (tests/oracles.txt).
"""

import argparse
import importlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from tests.support.masked import GALLERY
from torch import Tensor, nn

import robustassay as ra
from robustassay import data, models
from robustassay.doctor import REMEDIES, diagnose
from robustassay.doctor.output_checks import MAX_GRADIENT_DISAGREEMENT

EPS = 8 / 255
STEPS = 40

HEAD = """# Masked models

Attacks that fail unseen are what this project fears most. Here is what `assay doctor` says of models that are honest,
and of models broken on purpose (`tests/support/masked.py`), and what `assay eval --adaptive auto` makes of the latter.
Made by `python -m benchmarks.masked_models`, on one core of a CPU.

## Broken models

All are made of natural models, so nothing in them is robust: at L-inf 8/255 an honest measurement of the first images
of cifar10-1k ends at or near zero. "PGD" is assay's own plain PGD-{steps}, "adaptive" the same with `--adaptive auto`.
foolbox and torchattacks run PGD-{steps} too; AutoAttack is pyautoattack with all four attacks of its standard version,
Square first, which changes its cost and not its verdict; what each library returns is judged by a forward pass, of a
model that draws random numbers by most of {redraws}. "Best" is the lowest of the three; remedies are those that broke
what plain PGD and the remedies before left standing. Where plain PGD already leaves nothing, the alarm costs an
examination and changes no number. On a closed graph, or flipped signs, it does so because assay searches on a traced
surrogate of the model, in which neither survives; `--precision exact` shows what other libraries see.

So few images tell a broken measurement from an honest one, and no two strong attacks from each other. k winners take
all is made of a ResNet-20 because in a shallow VGG-11 they hide nothing: no alarm, and nothing stands against any PGD.

| model | made of | images | clean | foolbox | torchattacks | AutoAttack | best | PGD | adaptive | remedies | alarms |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""
REDRAWS = 16

LIMITS = """
## Limits

Each indicator is a number with a limit. The third column is the largest value among {honest} models of the zoo, each
examined on the first 32 images; {alarmed}. The last column counts the broken models
that each indicator finds, of {broken}. The limits were chosen with these same models in view, so the table shows that
they fit, not how often they would err on others. An indicator that finds none of them has been seen to work on made-up
searches only, in tests. Of a model that draws random numbers, unstable predictions are gradients that disagree, with a
limit of their own ({fickle:g}).

| indicator | limit | honest, at most | broken models found |
|---|---|---|---|
"""

Row = dict[str, Any]


def main() -> None:
    """Make the rows that are missing, then the page."""
    options = argparse.ArgumentParser()
    options.add_argument("--base", default="resnet20-natural")
    options.add_argument("--images", type=int, default=24)
    options.add_argument("--rows", type=Path, default=Path("runs/masked.jsonl"))
    options.add_argument("--out", type=Path, default=Path("docs/masked.md"))
    options.add_argument("--only", nargs="*", help="names of broken models or of the zoo; all by default")
    chosen = options.parse_args()
    chosen.rows.parent.mkdir(parents=True, exist_ok=True)
    rows = read(chosen.rows)
    wanted = chosen.only or [*GALLERY, *models.names()]
    for name in wanted:
        if name in rows:
            continue
        started = time.perf_counter()
        rows[name] = broken(name, chosen.base, chosen.images) if name in GALLERY else honest(name)
        with chosen.rows.open("a") as file:
            file.write(json.dumps(rows[name]) + "\n")
        print(f"{name}: {', '.join(rows[name]['alarms']) or 'no alarm'} ({time.perf_counter() - started:.0f} s)")
        chosen.out.write_text(page(rows))
    chosen.out.write_text(page(rows))


def read(path: Path) -> dict[str, Row]:
    """Read the rows that are finished."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {row["name"]: row for row in map(json.loads, lines)}


def honest(name: str) -> Row:
    """Examine a model of the zoo."""
    return told(name, diagnose(name, data.load("cifar10-1k")).to_json()) | {"kind": "honest"}


def told(name: str, diagnosis: Mapping[str, Any]) -> Row:
    """Return what the page says of a diagnosis."""
    results = diagnosis["indicators"]
    return {
        "name": name,
        "alarms": [one["indicator"] for one in results if one["verdict"] == "alarm"],
        "values": {one["indicator"]: [one["value"], one["limit"]] for one in results},
        "seconds": diagnosis["seconds"],
    }


def broken(name: str, base: str, images: int) -> Row:
    """Examine a broken model, and attack it with everything."""
    model = GALLERY[name](ra.load_model(base))
    samples = data.load("cifar10-1k").take(images)
    x, y = samples.images(slice(None)), samples.labels
    peers = {peer: accuracy(model, attack(model, x, y), y) for peer, attack in PEERS.items()}
    result = ra.evaluate(
        model,
        samples,
        ra.LInf(EPS),
        f"pgd:steps={STEPS}",
        search=ra.Search(adaptive="auto"),
        keep_images=False,
        name=name,
    )
    helped = {
        part.manifest["adaptive"]["remedy"]
        for label, part in result.parts.items()
        if label != "pgd" and part.attack_success_rate > 0
    }
    return told(name, result.parts["pgd"].manifest["adaptive"]) | {
        "kind": "broken",
        "base": base,
        "images": images,
        "clean": result.clean_accuracy,
        "peers": peers,
        "plain": result.parts["pgd"].robust_accuracy,
        "adaptive": result.robust_accuracy,
        "remedies": [remedy for remedy in REMEDIES if remedy in helped],
    }


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return how often the model is right, by what it says most often."""
    said = torch.stack([model(x).argmax(1) for _ in range(REDRAWS if is_random(model, x) else 1)])
    return float((said.mode(0).values == y).double().mean())


def is_random(model: nn.Module, x: Tensor) -> bool:
    """Say whether two passes differ."""
    return not torch.equal(model(x[:4]), model(x[:4]))


def by_foolbox(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Run foolbox's PGD."""
    foolbox = _oracles().foolbox
    bounded = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
    attack = foolbox.attacks.LinfPGD(rel_stepsize=0.1, steps=STEPS)
    try:
        found: Tensor = attack.run(bounded, x, foolbox.criteria.Misclassification(y), epsilon=EPS)
    except (AssertionError, RuntimeError):  # no gradient at all: it raises, and its user is left with clean images
        return x
    return found


def by_torchattacks(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Run torchattacks' PGD."""
    try:
        found: Tensor = _oracles().torchattacks.PGD(model, eps=EPS, alpha=0.1 * EPS, steps=STEPS)(x.clone(), y)
    except RuntimeError:  # likewise
        return x
    return found


def by_autoattack(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Run the authors' AutoAttack; where its gradient attacks raise, its Square alone."""
    for plan in (["square", "apgd-ce", "apgd-t", "fab-t"], ["square"]):
        auto = importlib.import_module("pyautoattack").AutoAttack(model, norm="Linf", eps=EPS, device="cpu", seed=0)
        auto.attacks_to_run, auto.verbose = plan, False
        try:
            found = auto.run_standard_evaluation(x, y, batch_size=64)
        except (RuntimeError, TypeError):
            continue
        x_adv: Tensor = found[0] if isinstance(found, tuple) else found
        return x_adv
    return x


PEERS: Mapping[str, Callable[[nn.Module, Tensor, Tensor], Tensor]] = {
    "foolbox": by_foolbox,
    "torchattacks": by_torchattacks,
    "AutoAttack": by_autoattack,
}


def _oracles() -> Any:
    return importlib.import_module("tests.attacks.test_oracles")  # it knows how to import what asks for too much


def page(rows: Mapping[str, Row]) -> str:
    """Write both tables."""
    kinds = {kind: [row for row in rows.values() if row["kind"] == kind] for kind in ("broken", "honest")}
    head = HEAD.format(steps=STEPS, redraws=REDRAWS)
    lines = [broken_line(row) for name in GALLERY for row in kinds["broken"] if row["name"] == name]
    alarmed = [row["name"] for row in kinds["honest"] if row["alarms"]]
    verdict = f"alarms were raised on {', '.join(alarmed)}" if alarmed else "no alarm was raised on any"
    limits = LIMITS.format(
        honest=len(kinds["honest"]),
        fickle=MAX_GRADIENT_DISAGREEMENT,
        alarmed=verdict,
        broken=len(kinds["broken"]),
    )
    indicators = next(iter(rows.values()))["values"] if rows else {}
    return head + "\n".join(lines) + "\n" + limits + "".join(limit_line(name, kinds) for name in indicators)


def broken_line(row: Row) -> str:
    """Write one line of the first table."""
    peers = [row["peers"][peer] for peer in PEERS]
    shares = [row["clean"], *peers, min(peers), row["plain"], row["adaptive"]]
    words = [
        row["name"],
        row["base"],
        f"{row['images']}",
        *(f"{share:.0%}" for share in shares),
        ", ".join(row["remedies"]),
        ", ".join(row["alarms"]),
    ]
    return "| " + " | ".join(words) + " |"


def limit_line(indicator: str, kinds: Mapping[str, list[Row]]) -> str:
    """Write one line of the second table."""
    limit = min(row["values"][indicator][1] for row in [*kinds["broken"], *kinds["honest"]])
    seen = [row["values"][indicator] for row in kinds["honest"]]
    most = max((value for value, of in seen if of == limit), default=float("nan"))
    found = sum(indicator in row["alarms"] for row in kinds["broken"])
    return f"| {indicator} | {limit:g} | {most:.2g} | {found} |\n"


if __name__ == "__main__":
    main()
