"""Checks that a model answers one image always the same, whatever it saw before and whatever is in the batch."""

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor, nn

from robustassay.doctor.indicator import IndicatorResult
from robustassay.doctor.probe_set import SEED, ProbeSet
from robustassay.evaluation.repeatability import TOLERANCE, compare_with_unused
from robustassay.evaluation.verify import BATCH
from robustassay.rng import Streams
from robustassay.target import relative_difference
from robustassay.target.batching import LANES

KIND: Final = "repeatability"


def memory(probes: ProbeSet, unused: nn.Module | None, flags: Mapping[str, str]) -> IndicatorResult:
    """Compare the model, after all other checks, with a copy that has seen none of them."""
    name = "depends on earlier images"
    history = compare_with_unused(probes.target.module, unused, probes.x0[:LANES])
    if history.changed is None and "stateful" not in flags:
        return IndicatorResult.not_examined(name, 0.0, "no unused copy of the model gives the same output twice")
    changed = bool(history.changed) or "stateful" in flags
    evidence = "gives other outputs than" if changed else "agrees with"
    return IndicatorResult(
        name,
        float(changed),
        0.0,
        f"the model {evidence} a copy of it that has seen no image before",
        ("square", "transfer"),
        kind=KIND,
    )


def batch_mates(probes: ProbeSet) -> IndicatorResult:
    """Compare the outputs for the images in small batches with those in large batches of perturbed images."""
    name = "depends on the batch"
    if probes.target.random:
        return IndicatorResult.not_examined(name, 0.0, "the model draws random numbers")
    noise = Streams.of(SEED, probes.ids, probes.x0.device)
    others = torch.cat([probes.ball(probes.norm.eps).sample(noise) for _ in range(-(-BATCH // len(probes)))])
    size = max(BATCH, probes.target.images_per_call(probes.x0))
    few = probes.x0[:LANES]
    with torch.no_grad():
        apart = probes.target.call(few)
    together = _behind(probes, others, few, size)
    changed = relative_difference(apart, together, probes.target.dtype) > TOLERANCE
    return IndicatorResult(
        name,
        float(changed.float().mean()),
        0.0,
        f"in batches of {size}, behind other images, {int(changed.sum())} of {len(few)} images get other outputs than "
        f"in batches of {len(few)}",
        kind=KIND,
    )


@torch.no_grad()
def _behind(probes: ProbeSet, others: Tensor, few: Tensor, size: int) -> Tensor:
    """Return the outputs for images at the end of a batch of this size."""
    missing = size - len(few)
    front = others.repeat(-(-missing // len(others)), *(1,) * (few.dim() - 1))[:missing]
    return probes.target.call(torch.cat((front, few)))[missing:]
