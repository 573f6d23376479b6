"""Compares our AutoAttack and express with the authors' package, sample by sample; writes docs/autoattack.md.

    python benchmarks/compare_autoattack.py MODEL... [--limit 200] [--device cuda] [--out docs/autoattack.md]

A model is a name of the zoo or `file.py:factory`. The reference, pyautoattack, is a test-only dependency.
"""

import argparse
import datetime
import importlib.metadata
from pathlib import Path

import torch
from torch import Tensor, nn

import robustassay as ra
from robustassay import data
from robustassay.evaluation.model_ref import ModelRef

EPS = 8 / 255
DEFAULT = ra.LInf(EPS)
HEAD = """# AutoAttack and express against the reference

Robust accuracy under L∞ 8/255 on the first {limit} images of cifar10-1k. The reference is pyautoattack {version},
version standard, seed 0. "Agree" is the percentage of samples with the same result as the reference; "doubt" counts
the samples in doubt, which a stronger attack may still break; "cost" is the mean number of forward-equivalents per
image (a backward pass counts as two). Measured on {hardware}, {date}.
Made by `python benchmarks/compare_autoattack.py`; published networks are those of the development data.

| model | reference | autoattack | agree | express | agree | doubt | cost autoattack | cost express | ratio |
|---|---|---|---|---|---|---|---|---|---|
"""


def main() -> None:
    """Run all models and write the table."""
    options = argparse.ArgumentParser()
    options.add_argument("models", nargs="+")
    options.add_argument("--limit", type=int, default=200)
    options.add_argument("--device", default="cpu")
    options.add_argument("--out", type=Path, default=Path("docs/autoattack.md"))
    chosen = options.parse_args()
    device = torch.device(chosen.device)
    samples = data.load("cifar10-1k").take(chosen.limit)
    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU"
    lines = [
        HEAD.format(
            limit=chosen.limit,
            version=importlib.metadata.version("pyautoattack"),
            hardware=hardware,
            date=datetime.date.today().isoformat(),
        )
    ]
    for name in chosen.models:
        model_ref = ModelRef.of(name)
        line = compare(name.rpartition(":")[2], model_ref.module.to(device), samples, device)
        print(line, flush=True)
        lines.append(line + "\n")
        chosen.out.write_text("".join(lines))


def compare(name: str, model: nn.Module, samples: data.Dataset, device: torch.device) -> str:
    """Return one row of the table."""
    reference = reference_verdicts(model, samples, device)
    ours, quick = (_evaluate(model, samples, attack, device) for attack in ("autoattack", "express"))
    stands = [torch.tensor((run.records["clean_ok"] & ~run.records["success"]).to_numpy(bool)) for run in (ours, quick)]
    agree = [(stand == reference).double().mean() for stand in stands]
    cost = [float((run.records["forwards"] + 2 * run.records["backwards"]).mean()) for run in (ours, quick)]
    cells = [
        name,
        f"{reference.double().mean():.1%}",
        f"{ours.robust_accuracy:.1%}",
        f"{agree[0]:.1%}",
        f"{quick.robust_accuracy:.1%}",
        f"{agree[1]:.1%}",
        f"{len(quick.doubtful)}",
        f"{cost[0]:,.0f}",
        f"{cost[1]:,.0f}",
        f"{cost[0] / cost[1]:.0f}x",
    ]
    return "| " + " | ".join(cells) + " |"


def reference_verdicts(
    model: nn.Module,
    samples: data.Dataset,
    device: torch.device,
    norm: ra.LInf | ra.L2 | ra.L1 = DEFAULT,
    batch: int = 250,
) -> Tensor:
    """Return which samples resist the authors' package, by a forward pass of ours."""
    from pyautoattack import AutoAttack

    x, y = samples.images(slice(None)).to(device), samples.labels.to(device)
    attack = AutoAttack(model, norm=norm.name, eps=norm.eps, device=str(device), seed=0, version="standard")
    found = attack.run_standard_evaluation(x, y, batch_size=batch)
    x_adv = found[0] if isinstance(found, tuple) else found
    with torch.no_grad():
        correct: Tensor = model(x_adv).argmax(1) == y
    return correct.cpu()


def _evaluate(model: nn.Module, samples: data.Dataset, attack: str, device: torch.device) -> ra.Result:
    return ra.evaluate(
        model, samples, ra.LInf(EPS), attack, device=device, keep_images=False, search=ra.Search(self_test=0)
    )


if __name__ == "__main__":
    main()
