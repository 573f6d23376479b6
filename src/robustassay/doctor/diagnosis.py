"""Examines a model: every indicator of an attack that would fail unseen, on a few images.

The indicators are those of Pintor et al. 2022 (arXiv:2106.09947) and the checklist of Carlini et al. 2019
(arXiv:1902.06705). Each compares a number with a limit that every honest model of the zoo keeps; docs/masked.md shows
by how much.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import torch
from torch import nn

from robustassay.data import Dataset
from robustassay.doctor import cross_checks, gradient_checks, output_checks
from robustassay.doctor.attack_checks import Search
from robustassay.doctor.indicator import Diagnosis, Finding
from robustassay.doctor.probe_set import Patient
from robustassay.errors import BadRequest
from robustassay.evaluation.flags import Flag
from robustassay.evaluation.model_ref import ModelRef, choose_device
from robustassay.evaluation.open_target import open_network
from robustassay.remote import Service
from robustassay.rng import seeded
from robustassay.target import TargetModel
from robustassay.threat import L0, LInf, Norm

SAMPLES: Final = 32
DRAWS: Final = 4
"""Passes that the gradients of a random model are averaged over while it is examined."""

Watch = Callable[[str], None]
"""Is told what is looked at next."""


def diagnose(
    model: nn.Module | str,
    data: Dataset,
    norm: Norm | None = None,
    samples: int = SAMPLES,
    device: str | torch.device | None = None,
    name: str | None = None,
    watch: Watch = lambda indicator: None,
) -> Diagnosis:
    """Examine a model on the first images of a dataset that it classifies correctly."""
    if isinstance(norm, L0):
        raise BadRequest("The doctor follows gradients under Linf, L2 or L1: name one of these.")
    model_ref = ModelRef.of(model, name)
    if isinstance(model_ref.module, Service):
        raise BadRequest("A service shows no gradients to examine: the doctor needs the model itself.")
    where = choose_device(device)
    network, flags = open_network(model_ref.module, data, where, None, DRAWS, despite_flags=True)
    started = time.perf_counter()
    patient = admit(network, data, norm or LInf(8 / 255), samples)
    found = examine(patient, flags, model_ref.name, watch)
    return replace(found, seconds=time.perf_counter() - started)


def admit(network: TargetModel, data: Dataset, norm: Norm, samples: int = SAMPLES) -> Patient:
    """Show a model the first images of a dataset, and keep those that it classifies correctly."""
    rows = slice(0, min(samples, len(data)))
    x, labels = data.images(rows).to(network.device), data.labels[rows].to(network.device)
    with seeded("doctor", network.device):
        patient = Patient.of(network, data.ids[rows], x, labels, norm)
    if not len(patient):
        raise BadRequest(
            f"The model classifies none of the {len(x)} images tried correctly: examine it on data it knows."
        )
    return patient


def examine(
    patient: Patient, flags: Sequence[Flag], name: str = "", watch: Watch = lambda indicator: None
) -> Diagnosis:
    """Look at every indicator in turn."""
    started, findings = time.perf_counter(), []
    texts = {flag.name: flag.text for flag in flags}
    with seeded("doctor", patient.network.device):
        for finding in _findings(patient, texts):
            findings.append(finding)
            watch(finding.indicator)
    return Diagnosis(name, str(patient.norm), len(patient), tuple(findings), texts, time.perf_counter() - started)


def _findings(patient: Patient, flags: dict[str, str]) -> Iterator[Finding]:
    yield gradient_checks.unavailable(patient)
    yield gradient_checks.misleading(patient)
    yield output_checks.unstable(patient)
    yield output_checks.vanishing(patient, flags)
    yield output_checks.busy(flags)
    search = Search.of(patient)
    yield search.silent_success()
    yield search.incomplete()
    yield search.fails_unbounded()
    yield search.not_falling()
    yield cross_checks.black_box(patient, search.standing)
    yield cross_checks.transfer(patient, search.standing)
