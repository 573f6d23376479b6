"""Diagnoses the zoo and models with masked gradients, attacks the latter with every library; writes docs/masked.md.

    python -m benchmarks.masked_models [--base resnet20-natural] [--images 24] [--rows FILE] [--only NAME...]

Every finished row is saved in the file of rows, so the command can be stopped and called again. The other libraries
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
from benchmarks import measured
from robustassay import data, models
from robustassay.doctor import REMEDIES, diagnose
from robustassay.doctor.output_checks import MAX_GRADIENT_DISAGREEMENT

EPS = 8 / 255
STEPS = 40

HEAD = """# Masked models

Gradient masking makes attacks fail without notice. This page shows what `assay doctor` reports for models with
masked gradients (`tests/support/masked.py`) and for the models of the zoo, and what `assay eval --adaptive auto`
measures on the former. `python -m benchmarks.masked_models` writes this page, on one core of a CPU.
{measured}

An indicator counts images (or is 0 or 1). Above its limit it is a strong sign, an alarm by itself. Some indicators have
a lower limit, above which they are a weak sign; two weak signs of different kinds are an alarm too. What could not be
examined is listed with the reason. The limits were set on the tuning half of a collection of other models;
[Rates of the doctor](doctor-rates.md) shows how often they are wrong on the held-out half.

## Models with masked gradients

All are built on natural models, so none of them is robust: at L∞ 8/255 their true robust accuracy on the first
images of cifar10-1k is zero or close to it. The columns:

- **foolbox, torchattacks**: their PGD-{steps}.
- **AutoAttack**: pyautoattack with the four attacks of its standard version. Square runs first, which changes the
  cost and not the result.
- **best**: the lowest accuracy of these three. A forward pass verifies what each library returns; for a model that
  draws random numbers, the majority of {redraws} passes.
- **PGD**: plain PGD-{steps} of robustassay. **adaptive**: the same with `--adaptive auto`.
- **remedies**: those that broke samples which plain PGD and the earlier remedies had not broken.

Some of the names need an explanation:

- **closed graph**: the model runs under `torch.no_grad`, so it has no gradient.
- **detached graph**: the model detaches its input, so it has no gradient.
- **dead ReLU**: ReLUs round the input; for almost all pixel values they are inactive or saturated and pass no gradient.
- **label leak**: the model stores the first clean images with their labels, and returns the stored label with extreme
  logits for any image closer than 0.001.

If plain PGD already breaks every image, a false alarm only costs time. PGD of robustassay also breaks the models with a
closed graph or with changed gradient signs, because it searches on a traced copy of the model (the surrogate). The copy
repeats the forward operations only: it lacks `torch.no_grad` and the changed backward pass. With `--precision exact`
it searches on the model itself, as the other libraries do.

With so few images the table separates failed measurements from sound ones; it does not rank strong attacks. "k
winners take all" is built on a ResNet-20, because it masks nothing in a shallow VGG-11: there is no alarm, and PGD
breaks every sample.

| model | built on | images | clean | foolbox | torchattacks | AutoAttack | best | PGD | adaptive | remedies | alarms |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""
REDRAWS = 16

LIMITS = """
## Limits

Every indicator has a value and a limit, in the unit of the second column. The fourth column is the largest value among
{honest} models of the zoo without masking, each diagnosed on the first 32 images; {alarmed}.
The last column counts the masked models that the indicator detects, of {broken}. The limits were chosen on these same
models. The table therefore shows that they fit these models; it does not show how often they are wrong on others. An
indicator that detects none of them is tested on constructed attacks only. For a model that draws random numbers, the
value of "unstable predictions" is one minus the cosine between the gradients of two draws, and its limit is
{spread:g}.

| indicator | unit | limit | largest value without masking | masked models detected |
|---|---|---|---|---|
"""

UNITS = {
    "unavailable gradients": "fraction of images",
    "misleading gradients": "fraction of images",
    "unstable predictions": "fraction of images",
    "vanishing loss": "fraction of images",
    "unresponsive logits": "fraction of images",
    "test-time optimisation": "1 if found, else 0",
    "depends on the batch": "fraction of images",
    "inner layers beat white-box": "fraction of the unbroken images tried",
    "fixed gradients beat white-box": "fraction of the unbroken images",
    "smoothed gradients beat white-box": "fraction of the unbroken images tried",
    "unreachable class": "1 if found, else 0",
    "depends on earlier images": "1 if found, else 0",
    "silent success": "fraction of images",
    "incomplete optimisation": "fraction of the unbroken images",
    "unbounded attack fails": "fraction of images",
    "accuracy not falling with eps": "fraction of images",
    "black-box beats white-box": "fraction of the unbroken images tried",
    "transfer beats white-box": "fraction of the unbroken images",
}
"""What the value and the limit of each indicator measure."""

Row = dict[str, Any]


def main() -> None:
    """Compute the missing rows, then write the page."""
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
        found = broken(name, chosen.base, chosen.images) if name in GALLERY else honest(name)
        rows[name] = found | measured.stamp()
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
    """Diagnose a zoo model."""
    return told(name, diagnose(name, data.load("cifar10-1k")).to_json()) | {"kind": "honest"}


def told(name: str, diagnosis: Mapping[str, Any]) -> Row:
    """Return the part of a row that describes a diagnosis."""
    results = diagnosis["indicators"]
    return {
        "name": name,
        "alarms": [one["indicator"] for one in results if one["verdict"] == "alarm"],
        "values": {one["indicator"]: [one["value"], one["limit"]] for one in results},
        "seconds": diagnosis["seconds"],
    }


def broken(name: str, base: str, images: int) -> Row:
    """Diagnose a masked model, and attack it with all libraries."""
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
        part.manifest["adaptive"]["remedy"].partition("-")[0]
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
    """Return the accuracy by the majority label over draws."""
    said = torch.stack([model(x).argmax(1) for _ in range(REDRAWS if is_random(model, x) else 1)])
    return float((said.mode(0).values == y).double().mean())


def is_random(model: nn.Module, x: Tensor) -> bool:
    """Return whether two passes differ."""
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
    """Run the authors' AutoAttack; if its gradient attacks raise an error, only its Square."""
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
    """Return the page."""
    kinds = {kind: [row for row in rows.values() if row["kind"] == kind] for kind in ("broken", "honest")}
    head = HEAD.format(steps=STEPS, redraws=REDRAWS, measured=measured.sentence(rows.values()))
    lines = [broken_line(row) for name in GALLERY for row in kinds["broken"] if row["name"] == name]
    alarmed = [row["name"] for row in kinds["honest"] if row["alarms"]]
    verdict = f"alarms were raised on {', '.join(alarmed)}" if alarmed else "no alarm was raised on any"
    limits = LIMITS.format(
        honest=len(kinds["honest"]),
        spread=MAX_GRADIENT_DISAGREEMENT,
        alarmed=verdict,
        broken=len(kinds["broken"]),
    )
    indicators = next(iter(rows.values()))["values"] if rows else {}
    return head + "\n".join(lines) + "\n" + limits + "".join(limit_line(name, kinds) for name in indicators)


def broken_line(row: Row) -> str:
    """Return one line of the first table."""
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
    """Return one line of the second table."""
    limit = min(row["values"][indicator][1] for row in [*kinds["broken"], *kinds["honest"]])
    seen = [row["values"][indicator] for row in kinds["honest"]]
    most = max((value for value, of in seen if of == limit), default=float("nan"))
    found = sum(indicator in row["alarms"] for row in kinds["broken"])
    return f"| {indicator} | {UNITS[indicator]} | {limit:g} | {most:.2g} | {found} |\n"


if __name__ == "__main__":
    main()
