"""A submission is a card plus records files; nothing in it is believed before it is checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import torch

from robustassay import data as datasets
from robustassay import models
from robustassay.data import Dataset
from robustassay.errors import AssayError, BadData, BadRequest
from robustassay.evaluation import Result
from robustassay.evaluation.model_ref import ModelRef
from robustassay.evaluation.verify import ClaimedImages, verify
from robustassay.files import write_atomically
from robustassay.leaderboard import records_file, whitelist
from robustassay.leaderboard.admission import Check, admit
from robustassay.leaderboard.audit import contradictions
from robustassay.leaderboard.card import EntryCard, card_of_zoo
from robustassay.leaderboard.gather import CARD
from robustassay.names import slug
from robustassay.target import LocalModel
from robustassay.threat import labels_of

_AGREE: Final = 0.998
"""Of random devices and kernels, the last bit of a logit may differ, and with it one label in so many."""


@final
@dataclass(frozen=True)
class Submission:
    """A folder with a card and records files."""

    folder: Path

    @property
    def files(self) -> list[Path]:
        """Its records files."""
        return sorted(self.folder.glob(f"*{records_file.SUFFIX}"))

    def card(self) -> EntryCard:
        """Read its card."""
        if not (self.folder / CARD).is_file():
            raise BadData(f"{self.folder} has no {CARD}: write one, or use `assay leaderboard add`.")
        return EntryCard.read(self.folder / CARD)

    def check(self, model: str | None, data: str | None, device: torch.device) -> list[Check]:
        """Check the card, every file and, where the model can be loaded, the claims and the rules of admission."""
        checks = []
        try:
            checks.append(Check("card", True, f"The card of {self.card().name} is complete."))
        except BadRequest as error:
            checks.append(Check("card", False, str(error)))
        if not self.files:
            return [*checks, Check("records", False, f"{self.folder} holds no records file.")]
        model_ref: ModelRef | None = None
        for path in self.files:
            found, model_ref = check_records(path, model, data, device)
            checks += found
        if model_ref is not None:
            checks += admit(model_ref, _dataset(records_file.read(self.files[0]), data), device)
        return checks


def add(card: EntryCard, runs: Sequence[Path], board: Path) -> Submission:
    """File runs under a card in the `entries` of a board; refuse what contradicts itself."""
    folder = board / "entries" / slug(card.name)
    identities = set()
    for run in runs:
        result = records_file.read(run)
        if wrong := contradictions(result):
            raise BadData(f"{run} contradicts itself ({wrong[0]}): run it again.")
        identities.add(str(result.manifest["spec"]["model"].get("weights")))
    if len(identities) > 1:
        raise BadRequest("These runs are of different models: add those of one model at a time.")
    for run in runs:
        if run.is_dir():
            records_file.pack(run, folder)
        elif run.parent.resolve() != folder.resolve():
            folder.mkdir(parents=True, exist_ok=True)
            for file in (run, run.with_suffix(".safetensors")):
                if file.is_file():
                    write_atomically(folder / file.name, file.read_bytes())
    write_atomically(folder / CARD, card.to_json().encode())
    return Submission(folder)


def read_card(spec: str) -> EntryCard:
    """Read a card from a file, or take that of an embedded model."""
    if spec in models.names():
        return card_of_zoo(models.card(spec))
    path = Path(spec)
    if not path.is_file():
        raise BadRequest(f"{spec} is neither a card's file nor an embedded model: write a JSON file with a name.")
    return EntryCard.read(path)


def check_records(
    path: Path, model: str | None, data: str | None, device: torch.device
) -> tuple[list[Check], ModelRef | None]:
    """Check one run: its form, its rows, and what can be seen again of what it says; return its model if it loads."""
    try:
        result = records_file.read(path)
    except AssayError as error:
        return [Check("records", False, str(error))], None
    title = str(result.manifest.get("title", path.name))
    wrong = contradictions(result)
    told = "; ".join(wrong) if wrong else f"{title}: {len(result.records)} rows, none contradicts itself."
    checks = [Check("records", not wrong, told)]
    try:
        dataset, model_ref = _dataset(result, data), _subject(result, model)
    except AssayError as error:
        return [*checks, Check("claims", None, f"Not checked again: {error}")], None
    held = result.manifest["spec"]["model"]
    if any(held.get(key) != value for key, value in model_ref.identity.items()):
        return [
            *checks,
            Check("model", False, f"{model_ref.name} is not the model of {title}: its weights differ."),
        ], None
    rows = {sample: row for row, sample in enumerate(dataset.ids)}
    unknown = [sample for sample in result.records["sample_id"] if sample not in rows]
    if dataset.sha256 != result.manifest["spec"]["data"]["sha256"] or unknown:
        return [*checks, Check("data", False, f"{dataset.name} is not the data of {title}: its content differs.")], None
    order = [rows[sample] for sample in result.records["sample_id"]]
    checks.append(_clean(result, model_ref, dataset, order, device))
    checks.append(_claims(result, model_ref, dataset, order, device, records_file.images(path)))
    return checks, model_ref


def _clean(result: Result, model_ref: ModelRef, dataset: Dataset, order: list[int], device: torch.device) -> Check:
    """Ask the model about the clean images again."""
    records = result.records
    if records["label"].tolist() != dataset.labels[order].tolist():
        return Check("clean labels", False, "The true labels are not those of the dataset.")
    if records["redrawn"].notna().any():
        return Check("clean labels", None, "The model draws random numbers: its answers cannot be compared.")
    network = LocalModel.of(model_ref.module, dataset.images(order[:1]), device, 32)
    again = labels_of(network.logits(dataset.images(order).to(device))).cpu()
    same = int((again == torch.tensor(records["clean_label"].tolist())).sum())
    text = f"{same} of {len(order)} clean answers are the same when asked again."
    return Check("clean labels", same >= _AGREE * len(order), text)


def _claims(
    result: Result,
    model_ref: ModelRef,
    dataset: Dataset,
    order: list[int],
    device: torch.device,
    images: dict[str, torch.Tensor],
) -> Check:
    """Verify every success again, from its image."""
    records, threat = result.records, result.manifest["spec"]["threat"]
    won = [at for at, success in enumerate(records["success"]) if success]
    kept = [at for at in won if records["sample_id"].iloc[at] in images]
    if not kept:
        return Check("claims", None, f"No images were kept, so none of {len(won)} successes can be seen again.")
    ids = [str(records["sample_id"].iloc[at]) for at in kept]
    aims: list[Any] = [records["target" if threat.get("target") else "label"].iloc[at] for at in kept]
    random = bool(records["redrawn"].notna().any())
    claims = ClaimedImages(
        x0=dataset.images([order[at] for at in kept]),
        x_adv=torch.stack([images[sample] for sample in ids]),
        wanted=torch.tensor([int(aim) for aim in aims]),
        targeted=bool(threat.get("target")),
        norm=threat["norm"],
        eps=float(threat["eps"]),
        any_distance=False,
        seeds=[f"{result.manifest['spec']['seed']}/{sample}" for sample in ids] if random else None,
    )
    verdict = verify(model_ref.module.to(device), device, claims)
    held = int(verdict.valid.sum())
    why = next((problem for problem in verdict.problem if problem), "")
    text = f"{held} of {len(kept)} successes verify again from their images" + (
        f"; first failure: {why}." if why else "."
    )
    return Check("claims", held == len(kept), text)


def _dataset(result: Result, data: str | None) -> Dataset:
    return datasets.load(data) if data else whitelist.dataset(str(result.manifest["spec"]["data"]["name"]))


def _subject(result: Result, model: str | None) -> ModelRef:
    """Load the model that the user names, else the model of the manifest if its name is harmless."""
    name = str(result.manifest["spec"]["model"]["name"])
    return ModelRef.of(whitelist.model(name), name) if model is None else ModelRef.of(model)
