"""Finds the runs, submissions and published entries of a leaderboard."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

from robustassay import shards
from robustassay.errors import AssayError, BadRequest
from robustassay.evaluation import Result
from robustassay.evaluation.corruption_records import FILE as CORRUPTIONS
from robustassay.leaderboard import records_file
from robustassay.leaderboard.card import CARD, EntryCard
from robustassay.leaderboard.corruption_entries import corruption_files, read_corruption_entry
from robustassay.leaderboard.entry import Entry, board_threat, measured_entry
from robustassay.leaderboard.model_cards import card_of_model
from robustassay.leaderboard.model_info import read_folder
from robustassay.leaderboard.published import NAME, published_entries
from robustassay.leaderboard.signature import signed_by
from robustassay.results.discovery import run_folders
from robustassay.results.identity import merge_manifests, nameless_model_id, run_key
from robustassay.results.worst_case import merge_records


@final
@dataclass(frozen=True, eq=False)
class Gathered:
    """The entries, and one sentence per file that was left out."""

    entries: tuple[Entry, ...]
    problems: tuple[str, ...]


@final
@dataclass(eq=False)
class _ModelRuns:
    """All runs of one model, and its card where there is one."""

    card: EntryCard | None = None
    results: dict[str, Result] = field(default_factory=dict)
    signed: set[str] = field(default_factory=set)

    def add(self, result: Result) -> None:
        """Add a run; if its key is known, add the samples that are new."""
        key = run_key(result.manifest)
        if (held := self.results.get(key)) is not None:
            records = merge_records([held.records, result.records])
            done, failed = set(records["sample_id"]), {**held.failures, **result.failures}
            failures = {sample: why for sample, why in failed.items() if sample not in done}
            result = Result(dict(merge_manifests([held.manifest, result.manifest])), records, None, failures=failures)
        self.results[key] = result


def gather(places: Sequence[Path], published: Sequence[Path] = (), signers: Path | None = None) -> Gathered:
    """Read runs, records files and submissions in these places or below them, and published folders.

    `signers` lists the keys of people you know, as OpenSSH's allowed signers file does.
    """
    by_model: dict[str, _ModelRuns] = defaultdict(_ModelRuns)
    problems: list[str] = []
    signed: dict[Path, str] = {}
    for path in _sources(places):
        try:
            result = records_file.read(path)
            if not len(result.records):
                raise BadRequest("it has no records yet; finish it first.")
            folder = path if path.is_dir() else path.parent
            if folder not in signed:
                signed[folder] = signed_by(folder, signers)
            runs = by_model[nameless_model_id(result.manifest["spec"]["model"])]
            runs.add(result)
            runs.signed.add(signed[folder])
            if (beside := path.parent / CARD).is_file():
                runs.card = EntryCard.read(beside)
        except (AssayError, OSError) as error:
            problems.append(f"{path}: {error}")
    entries = _entries(by_model.values(), problems) + _corruption_entries(places, problems)
    for folder in published:
        more, wrong = (published_entries(), []) if _is_embedded(folder) else read_folder(folder)
        entries += more
        problems += wrong
    if not entries:
        why = f": {problems[0]}" if problems else "."
        raise BadRequest(f"A leaderboard needs a run or a published entry, and none could be read{why}")
    return Gathered(tuple(entries), tuple(problems))


def _corruption_entries(places: Sequence[Path], problems: list[str]) -> list[Entry]:
    entries = []
    for path in corruption_files(places):
        try:
            entries.append(read_corruption_entry(path))
        except AssayError as error:
            problems.append(str(error))
    return entries


def _is_embedded(folder: Path) -> bool:
    """Say whether the embedded entries are meant; a folder of their name wins."""
    return str(folder) == NAME and not folder.exists()


def _entries(by_model: Iterable[_ModelRuns], problems: list[str]) -> list[Entry]:
    """Make the entries of each model on their own; a model whose entry cannot be made is listed among the problems."""
    known: list[tuple[EntryCard, _ModelRuns]] = []
    for runs in by_model:
        if runs.results:
            first = next(iter(runs.results.values()))
            try:
                known.append((runs.card or card_of_model(first.manifest["spec"]["model"]), runs))
            except AssayError as error:
                problems.append(f"{str(first.manifest['spec']['model']['name'])[:80]!r}: {error}")
    same_name = Counter(card.name for card, _ in known)
    entries = []
    for card, runs in known:
        weights = str(next(iter(runs.results.values())).manifest["spec"]["model"].get("weights", ""))[:8]
        named = EntryCard(**{**vars(card), "name": f"{card.name}-{weights}"}) if same_name[card.name] > 1 else card
        by_threat: dict[Any, list[Result]] = defaultdict(list)
        for result in runs.results.values():
            by_threat[board_threat(result.manifest["spec"])].append(result)
        for together in by_threat.values():
            try:
                entries.append(replace(measured_entry(named, together), signed=", ".join(sorted(runs.signed))))
            except AssayError as error:
                problems.append(f"{named.name[:80]!r}: {error}")
    return entries


def _sources(places: Sequence[Path]) -> list[Path]:
    """List the folders of runs and the records files in some places, each once."""
    found: dict[Path, None] = {}
    for place in places:
        here = [place] if place.is_file() else run_folders(place)
        if here != [place]:
            inside = set(here)
            others = (path for path in place.rglob(f"*{records_file.SUFFIX}") if path.name != CORRUPTIONS)
            files = [path for path in others if path.parent.parent not in inside]
            here += sorted(path for path in files if _is_records(path))
        if not here and not any(corruption_files([place])):
            raise BadRequest(f"{place} holds no run and no records file: give the folder named by --out, or one above.")
        found |= dict.fromkeys(path.resolve() for path in here)
    return list(found)


def _is_records(path: Path) -> bool:
    """Say whether a Parquet file is a records file: studies keep other tables beside their runs."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        shards.check_readable(path, shards.MOST_BYTES)
        return records_file.ABOUT in (pq.read_schema(path).metadata or {})
    except (OSError, ValueError, pa.ArrowException):
        return True  # damaged: reading it will say so
