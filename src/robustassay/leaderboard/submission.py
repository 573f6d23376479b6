"""A submission: a folder with a card and records files. Its author may be anybody."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch

from robustassay import models
from robustassay.errors import AssayError, BadData, BadRequest
from robustassay.evaluation import Result
from robustassay.evaluation.progress import NoProgress, Progress
from robustassay.files import write_atomically
from robustassay.leaderboard import records_file
from robustassay.leaderboard.admission import Check, admit
from robustassay.leaderboard.card import CARD, EntryCard, card_of_zoo
from robustassay.leaderboard.confirmed import check_confirmed
from robustassay.leaderboard.recheck import REATTACKED, Rebuilt, check_records
from robustassay.leaderboard.signature import check_signature
from robustassay.names import slug
from robustassay.results.identity import run_key
from robustassay.store import MANIFEST


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

    def check(
        self,
        model: str | None,
        data: str | None,
        device: torch.device,
        reattack: int = REATTACKED,
        progress: Progress = NoProgress(),  # noqa: B008, without state
        signers: Path | None = None,
    ) -> list[Check]:
        """Check the card, the signature, every run against its model, and the rules of admission; see `recheck`."""
        checks = []
        try:
            checks.append(Check("card", True, f"The card of {self.card().name} is complete."))
        except BadRequest as error:
            checks.append(Check("card", False, str(error)))
        checks.append(check_signature(self.folder, signers))
        if not self.files:
            return [*checks, Check("records", False, f"{self.folder} holds no records file.")]
        if (unseen := self._unseen()) is not None:
            checks.append(Check("records", False, f"A board would count {unseen}, which is not checked: move it away."))
        checks += check_confirmed(self._results())
        run: Rebuilt | None = None
        for path in self.files:
            found, rebuilt = check_records(path, model, data, device, reattack, progress)
            checks += found
            run = run or rebuilt
        return checks if run is None else checks + admit(run.model_ref, run.dataset, device)

    def _unseen(self) -> Path | None:
        """Return a run or a records file that a board finds in this folder or below it, and a check does not."""
        found = (path for name in (MANIFEST, f"*{records_file.SUFFIX}") for path in self.folder.rglob(name))
        return next((path for path in found if path not in self.files), None)

    def _results(self) -> dict[str, Result]:
        """Read its runs by their keys, without those that cannot be read."""
        found = {}
        for path in self.files:
            with suppress(AssayError):
                result = records_file.read(path)
                found[run_key(result.manifest)] = result
        return found


def add(card: EntryCard, runs: Sequence[Path], board: Path) -> Submission:
    """Save runs under a card in the `entries` of a board; refuse runs whose records contradict themselves."""
    folder = board / "entries" / slug(card.name)
    identities = set()
    for run in runs:
        identities.add(str(records_file.read(run).manifest["spec"]["model"].get("weights")))
    if len(identities) > 1:
        raise BadRequest("These runs are of different models: add those of one model at a time.")
    for run in runs:
        if run.is_dir():
            records_file.pack(run, folder)
        elif run.parent.resolve() != folder.resolve():
            records_file.copy(run, folder)
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
