"""`evaluate`: prepare, run, conclude."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from robustassay.attacks.attack import Attack
from robustassay.data import Dataset
from robustassay.evaluation.conclude import conclude
from robustassay.evaluation.model_ref import ModelRef
from robustassay.evaluation.options import Execution, Search
from robustassay.evaluation.prepare import PreparedEvaluation, prepare
from robustassay.evaluation.progress import Progress
from robustassay.evaluation.result import Result
from robustassay.evaluation.run import output_folder, run_all
from robustassay.interrupt import graceful_interrupt
from robustassay.malloc_settings import kept_freed_memory
from robustassay.target import standard_environment
from robustassay.threat import Norm, ThreatModel


def evaluate(
    model: nn.Module | str | ModelRef,
    data: Dataset | str | Path | Iterable[Any] | torch.utils.data.Dataset[Any],
    threat: Norm | ThreatModel | str,
    attack: str | Attack[Any] | Sequence[str | Attack[Any]],
    *,
    limit: int | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
    out: str | Path | None = None,
    keep_images: bool = True,
    name: str | None = None,
    search: Search = Search(),  # noqa: B008, a frozen value
    execution: Execution = Execution(),  # noqa: B008
    progress: Progress | None = None,
) -> Result:
    """Measure how robust a model is against an attack, or against each of several.

    Args:
        model: a module from [0, 1] images to logits, a zoo name, "path/to/file.py:factory", or a model of another
            library, such as "timm:resnet18"; defenses may precede a name, as in "jpeg:quality=75|resnet56-natural".
            A `ModelRef` is inspected once for several evaluations.
        data: a dataset, its name or path, a pair of images and labels, or a Dataset, Subset or DataLoader of
            torch.utils.data whose samples are pairs (image, label) or dicts.
        threat: such as `LInf(8 / 255)`, a `ThreatModel` with a target rule, or a known name, such as "cifar10-linf".
        attack: an attack, its name with settings ("pgd:steps=100"), or several of either.
        limit: number of samples, from the first; all by default.
        seed: seed of all random numbers; a sample's numbers depend only on the seed and the sample's id.
        device: "cpu" or "cuda"; by default a GPU where there is one.
        out: output folder; a run found there is resumed. Several attacks get one folder each inside.
        keep_images: whether the adversarial images are kept, in the result and in `out`.
        name: name of the model in titles and folders.
        search: how samples are attacked; see `Search`.
        execution: how the work is done, without effect on results; see `Execution`.
        progress: is called as the evaluation proceeds, see `robustassay.evaluation.progress.Progress`; by default a
            notebook shows a bar, and anything else nothing.

    """
    options = (limit, seed, device, keep_images, name, search, execution, progress)
    with standard_environment(), kept_freed_memory():
        return evaluate_prepared(prepare(model, data, threat, attack, *options), out)


def evaluate_prepared(prepared: PreparedEvaluation, out: str | Path | None = None) -> Result:
    """Run all attacks of an evaluation, then the worst case and the confirming attack."""
    with graceful_interrupt() as stop, output_folder(out) as folder:
        results = run_all(prepared, folder, stop)
        return replace(conclude(prepared, results, folder, stop), dataset=prepared.dataset)
