"""Tests on a GPU that results do not depend on the sizes of batches and waves; exits with 1 if a verdict does.

    python -m benchmarks.cuda_invariance resnet20-pgd [--attack apgd] [--images 256] [--device cuda]

Verdicts, clean accuracy and the order of records must be equal for all sizes. Adversarial images may differ in last
digits on a GPU, which selects its kernels by batch size (docs/promises.md): their number is printed.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch

import robustassay as ra
from robustassay import data
from robustassay.evaluation.model_ref import ModelRef
from robustassay.evaluation.options import Precision

SIZES: Final = ((None, None), (64, None), (200, 96), (None, 50))
"""Images per call and per wave; the first are the defaults, with which the others are compared."""

VERDICT: Final = ["sample_id", "clean_ok", "success"]


def main(words: Sequence[str] | None = None) -> None:
    """Compare all sizes, in both precisions of the search."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("model")
    options.add_argument("--attack", default="apgd:steps=20")
    options.add_argument("--images", type=int, default=256)
    options.add_argument("--device", default="cuda")
    chosen = options.parse_args(words)
    rows = list(compare(chosen.model, chosen.attack, chosen.images, chosen.device))
    for row in rows:
        print(row, flush=True)
    if any(row["verdicts that differ"] for row in rows):
        raise SystemExit(1)


def compare(model: str, attack: str, images: int, device: str) -> Iterator[dict[str, Any]]:
    """Yield, for each size, how many verdicts and images differ from those of the default sizes."""
    module, samples = ModelRef.of(model).module.to(device), data.load("cifar10-1k").take(images)
    precisions: tuple[Precision, ...] = ("exact", "fast")
    for precision in precisions:
        results = [
            ra.evaluate(
                module,
                samples,
                ra.LInf(8 / 255),
                attack,
                device=device,
                search=ra.Search(precision=precision, self_test=0),
                execution=ra.Execution(batch_size=batch_size, wave_size=wave_size),
            )
            for batch_size, wave_size in SIZES
        ]
        first = results[0]
        for (batch_size, wave_size), result in zip(SIZES[1:], results[1:], strict=True):
            differ = (
                result.records[["sample_id", "clean_ok", "success"]]
                != first.records[["sample_id", "clean_ok", "success"]]
            )
            moved = (torch.as_tensor(result.x_adv) != torch.as_tensor(first.x_adv)).flatten(1).any(1)
            yield {
                "precision": precision,
                "batch size": batch_size,
                "wave size": wave_size,
                "verdicts that differ": int(differ.any(axis=1).sum()),
                "images that differ": int(moved.sum()),
            }


if __name__ == "__main__":
    main()
