"""Checks the records of a run against its model: nothing in them is believed because it is written there.

Every kept image is verified again, those of records that claim no success included. Of the samples that are said to
stand, a random sample is attacked again with the same attack and seed. What was not attacked again is "unverified".
"""

import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import torch

from robustassay import data as datasets
from robustassay.data import Dataset
from robustassay.errors import AssayError, BadRequest, EvaluationFailed
from robustassay.evaluation import Result, evaluate
from robustassay.evaluation.checks import check_model
from robustassay.evaluation.model_ref import ModelRef
from robustassay.evaluation.options import Search
from robustassay.evaluation.progress import NoProgress, Progress
from robustassay.evaluation.verify import ClaimedImages, Verdict, verify
from robustassay.leaderboard import records_file, whitelist
from robustassay.leaderboard.admission import Check
from robustassay.leaderboard.audit import is_random
from robustassay.models.input_frame import as_model_input
from robustassay.registry import registered
from robustassay.results.identity import confirmed_run_keys
from robustassay.target import LocalModel
from robustassay.threat import (
    LabelList,
    LeastLikely,
    RandomTarget,
    TargetRule,
    ThreatModel,
    labels_of,
)

REATTACKED: Final = 16
"""Unbroken samples that are attacked again by default."""

_AGREE: Final = 0.998
"""Share of labels that must be equal: on another device, a sample at the boundary may get another label."""

_NORMS: Final = {norm.name: norm for norm in registered("norm").values()}
_MOST_DRAWS: Final = 1_000
_LACK_OF_MEMORY: Final = re.compile(r"can't allocate memory|not enough memory|out of memory", re.IGNORECASE)


@final
@dataclass(frozen=True, eq=False)
class Rebuilt:
    """A run whose model and data are at hand."""

    result: Result
    model_ref: ModelRef
    dataset: Dataset
    device: torch.device
    progress: Progress

    @property
    def spec(self) -> Any:
        """What was run, from the manifest."""
        return self.result.manifest["spec"]

    def places(self, rows: "list[int] | range") -> list[int]:
        """Return where the samples of some records stand in the dataset."""
        place = {sample: at for at, sample in enumerate(self.dataset.ids)}
        return [place[self.result.records["sample_id"].iloc[row]] for row in rows]


def check_records(
    path: Path,
    model: str | None,
    data: str | None,
    device: torch.device,
    reattack: int = REATTACKED,
    progress: Progress = NoProgress(),  # noqa: B008, without state
) -> tuple[list[Check], Rebuilt | None]:
    """Check one run; return what was found, and the run with its model and data if they could be loaded."""
    try:
        result = records_file.read(path)
    except AssayError as error:
        return [Check("records", False, str(error))], None
    title = str(result.manifest.get("title", path.name))
    checks = [Check("records", True, f"{title}: {len(result.records)} records, none contradicts itself.")]
    if not len(result.records):
        return [Check("records", False, f"{path} holds no records.")], None
    try:
        model_ref = _model(result, model)
        run = Rebuilt(result, model_ref, as_model_input(model_ref.module, _dataset(result, data)), device, progress)
    except AssayError as error:
        return [*checks, Check("claims", None, f"Nothing was run again: {error}")], None
    try:
        if problem := _mismatch(run, title):
            return [*checks, problem], None
        checks += [_samples(run), _clean(run), _claims(run, records_file.images(path)), _standing(run, reattack)]
    except AssayError as error:
        if _LACK_OF_MEMORY.search(str(error)):
            raise EvaluationFailed(f"There is not enough memory for this check ({str(error)[:200]})") from error
        return [*checks, Check("claims", False, str(error))], None
    return checks, run


def _mismatch(run: Rebuilt, title: str) -> Check | None:
    """Say whether the model or the data is not the one of the run."""
    held = run.spec["model"]
    if any(held.get(key) != value for key, value in run.model_ref.identity.items()):
        return Check("model", False, f"{run.model_ref.name} is not the model of {title}: its weights or code differ.")
    if is_random(run.result) and not run.model_ref.is_remote and not _draws(run):
        return Check("model", False, f"{run.model_ref.name} draws no random numbers, although the records say so.")
    unknown = set(run.result.records["sample_id"]) - set(run.dataset.ids)
    if run.dataset.sha256 != run.spec["data"]["sha256"] or unknown:
        return Check("data", False, f"{run.dataset.name} is not the data of {title}: its content differs.")
    return None


def _draws(run: Rebuilt) -> bool:
    """Say whether two passes of the model differ: records of such a model are checked less strictly."""
    return check_model(run.model_ref.module, run.dataset, run.device, despite_flags=True).random


def _samples(run: Rebuilt) -> Check:
    """Check that nobody chose the samples: a run is on the first ones of its dataset."""
    count, total = len(run.result.records), len(run.dataset)
    if confirmed_run_keys(run.result.manifest):
        return Check("samples", None, f"A confirming run on {count} samples that another run left in doubt.")
    first = set(run.dataset.ids[:count]) == set(run.result.records["sample_id"])
    text = f"The records are of the first {count} of {total} samples."
    return Check("samples", first, text if first else f"The {count} samples are not the first ones of {total}.")


def _clean(run: Rebuilt) -> Check:
    """Compare the labels of the clean images with those of a fresh pass."""
    records = run.result.records
    order = run.places(range(len(records)))
    if records["label"].tolist() != run.dataset.labels[order].tolist():
        return Check("clean labels", False, "The true labels are not those of the dataset.")
    if is_random(run.result):
        return Check("clean labels", None, "The model draws random numbers: its labels cannot be compared.")
    target = LocalModel.of(run.model_ref.module, run.dataset.images(order[:1]), run.device, 32)
    again = labels_of(target.logits(run.dataset.images(order).to(run.device))).cpu()
    same = int((again == torch.tensor(records["clean_label"].tolist())).sum())
    text = f"{same} of {len(order)} clean images get the same label again."
    return Check("clean labels", same >= _AGREE * len(order), text)


def _claims(run: Rebuilt, images: dict[str, torch.Tensor]) -> Check:
    """Verify every kept image: successes must break the model, and no other image may."""
    records = run.result.records
    success = records["success"].to_numpy(bool)
    kept = [row for row, sample in enumerate(records["sample_id"]) if sample in images]
    if not kept:
        return Check("claims", None, f"No images were kept, so {success.sum()} successes are unverified.")
    x0 = run.dataset.images(run.places(kept))
    x_adv = torch.stack([images[str(records["sample_id"].iloc[row])] for row in kept])
    if x_adv.shape != x0.shape:
        return Check("claims", False, "The images have another size than those of the dataset.")
    verdict = _verify(run, kept, x0, x_adv.to(x0.dtype))
    claimed, moved = success[kept], (x_adv != x0).flatten(1).any(1).numpy()
    false, hidden = claimed & ~verdict.valid, ~claimed & verdict.valid & moved
    found = [f"{int((claimed & verdict.valid).sum())} of {int(claimed.sum())} successes verify again from their images"]
    if false.any():
        found.append(f"first failure: {verdict.problem[int(false.argmax())]}")
    if hidden.any():
        found.append(f"{int(hidden.sum())} images break the model although their records claim no success")
    if unseen := int(success.sum() - claimed.sum()):
        found.append(f"{unseen} successes without an image are unverified")
    passed = False if false.any() or hidden.any() else None if unseen else True
    return Check("claims", passed, "; ".join(found) + ".")


def _verify(run: Rebuilt, rows: list[int], x0: torch.Tensor, x_adv: torch.Tensor) -> Verdict:
    records, threat = run.result.records.iloc[rows], run.spec["threat"]
    if threat["norm"] not in _NORMS:
        raise BadRequest(f"{threat['norm'][:40]!r} is no norm of this version.")
    targeted = threat.get("target") is not None
    seeds = [f"{run.spec['seed']}/{sample}" for sample in records["sample_id"]] if is_random(run.result) else None
    wanted = torch.tensor(records["target" if targeted else "label"].astype(int).tolist())
    claims = ClaimedImages(x0, x_adv, wanted, targeted, threat["norm"], float(threat["eps"]), False, seeds)
    with np.errstate(invalid="ignore"):
        return verify(run.model_ref.module.to(run.device), run.device, claims)


def _standing(run: Rebuilt, reattack: int) -> Check:
    """Attack a random sample of the standing samples again, as the run did."""
    records = run.result.records
    standing = np.flatnonzero((records["clean_ok"].to_numpy(bool)) & ~records["success"].to_numpy(bool)).tolist()
    chosen = sorted(secrets.SystemRandom().sample(standing, min(max(reattack, 0), len(standing))))
    if not chosen:
        return Check("standing", None if standing else True, f"{len(standing)} standing samples are unverified.")
    try:
        again = _attack_again(run, chosen)
    except AssayError as error:
        text = f"{len(standing)} standing samples are unverified, as the attack cannot be run again: {error}"
        return Check("standing", None, text)
    if again.records["target"].fillna(-1).tolist() != records["target"].iloc[chosen].fillna(-1).tolist():
        return Check("standing", False, "The target classes are not those that the run's rule chooses.")
    fell, rest = int(again.records["success"].sum()), len(standing) - len(chosen)
    text = f"{fell} of {len(chosen)} standing samples fell when attacked again with the same attack and seed"
    if fell > _tolerated(run, len(chosen)):
        return Check("standing", False, f"{text}: the records are not those of this run.")
    text += f"; {rest} were not attacked again and are unverified." if rest else "; all were attacked again."
    if fell:
        text += " It ran on another device, or draws random numbers, so that is no proof of a forgery."
    return Check("standing", None if fell or rest else True, text)


def _attack_again(run: Rebuilt, rows: list[int]) -> Result:
    records, threat, held = run.result.records.iloc[rows], run.spec["threat"], run.spec["model"]
    draws = held.get("eot", 20)
    if type(draws) is not int or not 1 <= draws <= _MOST_DRAWS or threat["norm"] not in _NORMS:
        raise BadRequest("its settings are no settings of this version.")
    rule: TargetRule | None = {"random": RandomTarget(), "least-likely": LeastLikely()}.get(threat.get("target"))
    if rule is None and threat.get("target") is not None:  # a list, of which the records hold these lines
        rule = LabelList(dict(zip(records["sample_id"], records["target"].astype(int).tolist(), strict=True)))
    precision: Any = "fast" if "search" in held else "exact"
    budget = threat.get("query_budget")
    search = Search(precision=precision, eot=draws, query_budget=budget, despite_flags=True, self_test=0)
    return evaluate(
        run.model_ref,
        run.dataset.select(run.places(rows)),
        ThreatModel(_NORMS[threat["norm"]](float(threat["eps"])), rule),
        whitelist.attack(run.spec["attack"]),
        seed=run.spec["seed"],
        device=run.device,
        keep_images=False,
        search=search,
        progress=run.progress,
    )


def _tolerated(run: Rebuilt, count: int) -> int:
    """Return how many may fall by chance: none where the same bits must come out."""
    if is_random(run.result):
        return count // 4
    hardware, software = (run.result.manifest.get(name, {}) for name in ("hardware", "software"))
    same = hardware.get("device") == run.device.type == "cpu" and software.get("torch") == torch.__version__
    return 0 if same else count // REATTACKED


def _dataset(result: Result, data: str | None) -> Dataset:
    return datasets.load(data) if data else whitelist.dataset(str(result.manifest["spec"]["data"]["name"]))


def _model(result: Result, model: str | None) -> ModelRef:
    """Load the model that the user names, else the model of the manifest if its name is harmless."""
    name = str(result.manifest["spec"]["model"]["name"])
    return ModelRef.of(whitelist.model(name), name) if model is None else ModelRef.of(model)
