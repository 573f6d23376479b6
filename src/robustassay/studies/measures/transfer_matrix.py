"""Tests adversarial examples, crafted once per source, on every target: N models cost N attacks, not N squared.

examples = {name: Examples.of_result(robustassay.evaluate(name, data, threat, "fgsm"), data) for name in names}
matrix = transfer_matrix(examples, {name: robustassay.load_model(name) for name in names})
matrix.rates, matrix.counts, matrix.interval()
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, final

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robustassay.analysis import transfer
from robustassay.analysis.transfer import Among, Measure, TransferMatrix
from robustassay.data import Dataset
from robustassay.errors import BadRequest
from robustassay.evaluation import Result
from robustassay.evaluation.model_ref import choose_device
from robustassay.rng import seeded
from robustassay.target import LocalModel
from robustassay.threat import labels_of

CleanLogits = dict[tuple[str, str], Tensor]
"""Logits of clean images by the name of the model and the hash of the images."""

Fit = Literal["crop or pad", "resize"]
"""How an image is fitted to another input size: cropped or padded with black, as Su et al. do, or resized."""


@final
@dataclass(frozen=True, eq=False)
class Examples:
    """The examples of one source: clean and adversarial images, true labels, and target labels if targeted."""

    x: Tensor = field(repr=False)
    x_adv: Tensor = field(repr=False)
    labels: Tensor
    targets: Tensor | None = None
    clean_ok: Tensor | None = None  # whether the source is correct on x; measured where it is a target too

    def __post_init__(self) -> None:
        if self.x.shape != self.x_adv.shape or len(self.labels) != len(self.x):
            raise BadRequest("Examples need one adversarial image and one label for each clean image.")

    @classmethod
    def of_result(cls, result: Result, dataset: Dataset) -> "Examples":
        """Take the examples of an evaluation; where the attack failed, they are the clean images."""
        if result.x_adv is None:
            raise BadRequest("The evaluation kept no images: run it with keep_images.")
        at = {sample: row for row, sample in enumerate(dataset.ids)}
        records = result.records
        aims = records["target"]
        return cls(
            x=dataset.images([at[sample] for sample in records["sample_id"]]),
            x_adv=result.x_adv,
            labels=torch.tensor(records["label"].tolist()),
            targets=None if aims.isna().any() else torch.tensor(aims.tolist()),
            clean_ok=torch.tensor(records["clean_ok"].astype(bool).tolist()),
        )


def transfer_matrix(
    examples: Mapping[str, Examples],
    targets: Mapping[str, nn.Module],
    *,
    measure: Measure = "error",
    top: int = 1,
    among: Among = "all",
    fit: Fit = "crop or pad",
    sizes: Mapping[str, tuple[int, int]] | None = None,
    device: str | torch.device | None = None,
) -> TransferMatrix:
    """Return one matrix; where several are wanted of the same examples, call `transfer_outcomes` once.

    `sizes` gives the height and width of the images that a target takes, where these are not the source's.
    """
    return transfer.matrix(
        transfer_outcomes(examples, targets, fit=fit, sizes=sizes, device=device), measure, top, among
    )


def transfer_outcomes(
    examples: Mapping[str, Examples],
    targets: Mapping[str, nn.Module],
    *,
    fit: Fit = "crop or pad",
    sizes: Mapping[str, tuple[int, int]] | None = None,
    device: str | torch.device | None = None,
    known: CleanLogits | None = None,
) -> pd.DataFrame:
    """Test every example on every target and return the outcomes (see `robustassay.analysis.transfer`).

    Calls that share `known` query the clean images of a target once.
    """
    where = choose_device(device)
    for target, module in targets.items():
        if module.training:
            raise BadRequest(f"{target} is in training mode: call .eval() on it first.")
    known = {} if known is None else known  # clean images are mostly the same for all sources
    found = []
    for source, made in examples.items():
        for target, module in targets.items():
            size = (sizes or {}).get(target)
            clean = _once(known, target, module, fitted(made.x, size, fit), where)
            shown = _logits(module, fitted(made.x_adv, size, fit), where, target)
            found.append(_outcomes(source, target, made, clean, shown))
    return _with_sources(pd.concat(found, ignore_index=True), examples)


def fitted(x: Tensor, size: tuple[int, int] | None, fit: Fit = "crop or pad") -> Tensor:
    """Return images in a model's input size; None leaves them unchanged."""
    if size is None or tuple(x.shape[-2:]) == tuple(size):
        return x
    if fit == "resize":
        return F.interpolate(x, size, mode="bilinear", antialias=True, align_corners=False).clamp(0, 1)
    for axis, wanted in zip((-2, -1), size, strict=True):
        spare = x.shape[axis] - wanted
        if spare > 0:
            x = x.narrow(axis, spare // 2, wanted)
        elif spare < 0:
            before = -spare // 2
            around = (before, -spare - before)
            x = F.pad(x, (0, 0, *around) if axis == -2 else around)
    return x


def ranks(logits: Tensor, classes: Tensor) -> Tensor:
    """Return the rank of a class per row, 0 for the most likely; among equal logits the lower index leads."""
    own = logits.gather(1, classes[:, None])
    before = torch.arange(logits.shape[1], device=logits.device) < classes[:, None]
    return ((logits > own) | ((logits == own) & before)).sum(1)


def _once(known: CleanLogits, target: str, module: nn.Module, x: Tensor, device: torch.device) -> Tensor:
    key = target, hashlib.sha256(x.contiguous().numpy(force=True).tobytes()).hexdigest() + str(tuple(x.shape))
    if key not in known:
        known[key] = _logits(module, x, device, target)
    return known[key]


def _logits(module: nn.Module, x: Tensor, device: torch.device, name: str) -> Tensor:
    """Return a model's logits in full precision; a randomized model draws the same numbers each time."""
    module.to(device)
    with seeded(name, device):
        return LocalModel.of(module, x, device).logits(x.to(device)).cpu()


def _outcomes(source: str, target: str, made: Examples, clean: Tensor, shown: Tensor) -> pd.DataFrame:
    labels, aims = made.labels.cpu(), made.targets
    missing = pd.array([None] * len(labels), dtype="Int64")
    return pd.DataFrame(
        {
            "source": source,
            "target": target,
            "sample": range(len(labels)),
            "label": labels.numpy(),
            "aim": missing if aims is None else pd.array(aims.tolist(), dtype="Int64"),
            "source_ok": pd.array(
                [None] * len(labels) if made.clean_ok is None else made.clean_ok.tolist(), dtype="boolean"
            ),
            "target_ok": (labels_of(clean) == labels).numpy(),
            "predicted": labels_of(shown).numpy(),
            "label_rank": ranks(shown, labels).numpy(),
            "aim_rank": missing if aims is None else pd.array(ranks(shown, aims.cpu()).tolist(), dtype="Int64"),
        }
    )[list(transfer.COLUMNS)]


def _with_sources(outcomes: pd.DataFrame, examples: Mapping[str, Examples]) -> pd.DataFrame:
    """Fill in whether a source is correct on its clean images from where it was a target."""
    for source, made in examples.items():
        own = outcomes[(outcomes["source"] == source) & (outcomes["target"] == source)]
        if made.clean_ok is None and len(own):
            right = own.set_index("sample")["target_ok"]
            rows = outcomes["source"] == source
            outcomes.loc[rows, "source_ok"] = pd.array(
                right.loc[outcomes.loc[rows, "sample"]].tolist(), dtype="boolean"
            )
    return outcomes
