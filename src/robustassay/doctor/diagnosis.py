"""Diagnoses a model: evaluates every indicator of gradient masking or attack failure on a few images.

The indicators are those of Pintor et al. 2022 (arXiv:2106.09947) and the checklist of Carlini et al. 2019
(arXiv:1902.06705), and comparisons of gradients, logits and earlier outputs with the model itself. One strong sign, or
two weak signs of different kinds, raise an alarm.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import torch
from torch import nn

from robustassay.data import Dataset
from robustassay.doctor import attack_checks, cross_checks, gradient_checks, output_checks, repeat_checks
from robustassay.doctor.attack_checks import PlainAttack
from robustassay.doctor.closed_branches import closed_branch
from robustassay.doctor.cross_checks import WhiteBox
from robustassay.doctor.indicator import Diagnosis, IndicatorResult
from robustassay.doctor.probe_set import ProbeSet
from robustassay.errors import BadRequest
from robustassay.evaluation.constant_outputs import is_constant
from robustassay.evaluation.flags import Flag
from robustassay.evaluation.inspection import inspect_model
from robustassay.evaluation.model_ref import ModelRef, choose_device
from robustassay.evaluation.repeatability import unused_copy
from robustassay.rng import seeded
from robustassay.target import TargetModel
from robustassay.threat import L0, LInf, Norm

SAMPLES: Final = 32
BACKGROUND: Final = 256
"""Further images of the selection, without labels, on which a substitute may be trained."""

DRAWS: Final = 4
"""Draws per gradient of a random model during the diagnosis."""

CONSTANT: Final = "the model gives equal outputs for all images and for noisy copies of them, so no attack can move it"

KINDS_THAT_NEED_CHANGES: Final = (gradient_checks.KIND, output_checks.KIND, attack_checks.KIND)
"""Kinds of signs that compare changes of the model; one that is constant around the data has none."""

OnIndicator = Callable[[str], None]
"""Called with the name of each indicator once it is evaluated."""


def diagnose(
    model: nn.Module | str,
    data: Dataset,
    norm: Norm | None = None,
    samples: int = SAMPLES,
    device: str | torch.device | None = None,
    name: str | None = None,
    on_indicator: OnIndicator = lambda indicator: None,
) -> Diagnosis:
    """Diagnose a model on those of the first `samples` images that it classifies correctly."""
    if isinstance(norm, L0):
        raise BadRequest("The doctor works under Linf, L2 or L1: choose one of these norms.")
    model_ref = ModelRef.of(model, name)
    if model_ref.is_remote:
        raise BadRequest("A service gives no gradients: the doctor needs the model itself.")
    where = choose_device(device)
    inspected = inspect_model(model_ref.module, data, where, None, DRAWS, despite_flags=True)
    started = time.perf_counter()
    probes = make_probe_set(inspected.target, data, norm or LInf(8 / 255), samples)
    found = check_all(probes, inspected.flags, model_ref.name, on_indicator)
    return replace(found, seconds=time.perf_counter() - started)


def make_probe_set(target: TargetModel, data: Dataset, norm: Norm, samples: int = SAMPLES) -> ProbeSet:
    """Take those of the first `samples` images that the model classifies correctly."""
    rows = slice(0, min(samples, len(data)))
    x, labels = data.images(rows).to(target.device), data.labels[rows].to(target.device)
    background = data.images(slice(rows.stop, min(rows.stop + BACKGROUND, len(data))))
    with seeded("doctor", target.device):
        probes = ProbeSet.of(target, data.ids[rows], x, labels, norm, background)
    if not len(probes):
        raise BadRequest(
            f"The model classifies none of the {len(x)} images tried correctly, so there is nothing to diagnose: "
            "choose more images, or data of its classes."
        )
    return probes


def check_all(
    probes: ProbeSet, flags: Sequence[Flag], name: str = "", on_indicator: OnIndicator = lambda indicator: None
) -> Diagnosis:
    """Evaluate every indicator in turn."""
    started, results = time.perf_counter(), []
    texts = {flag.name: flag.text for flag in flags}
    with seeded("doctor", probes.target.device):
        constant = is_constant(probes.target, probes.x0)
        for result in _results(probes, texts):
            explained = constant and result.kind in KINDS_THAT_NEED_CHANGES
            results.append(
                IndicatorResult.not_examined(result.indicator, result.limit, CONSTANT) if explained else result
            )
            on_indicator(result.indicator)
    return Diagnosis(name, str(probes.norm), len(probes), tuple(results), texts, time.perf_counter() - started)


def _results(probes: ProbeSet, flags: dict[str, str]) -> Iterator[IndicatorResult]:
    unused = unused_copy(probes.target.module, probes.target.device)
    errors = gradient_checks.compare_gradients(probes)
    yield gradient_checks.unavailable_gradients(errors)
    yield gradient_checks.misleading_gradients(errors)
    yield output_checks.unstable_predictions(probes)
    yield output_checks.vanishing_loss(probes, flags)
    yield output_checks.unresponsive_logits(probes)
    yield output_checks.unreachable_class(flags)
    yield output_checks.optimises_at_test_time(flags)
    yield closed_branch(probes)
    yield repeat_checks.batch_mates(probes)
    plain = PlainAttack.run(probes)
    yield plain.silent_success()
    yield plain.incomplete()
    yield plain.fails_unbounded()
    yield plain.not_falling()
    white = WhiteBox.run(probes, plain.unbroken, plain.main.lowest[-1])
    yield cross_checks.black_box(white)
    yield cross_checks.transfer(white)
    yield cross_checks.inner_layers(white)
    yield cross_checks.inactive_values(white)
    yield cross_checks.fixed_gradients(white)
    yield cross_checks.smoothed_gradients(white)
    yield repeat_checks.memory(probes, unused, flags)
