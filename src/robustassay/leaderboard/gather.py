"""Finds everything a leaderboard is made of: runs, submissions, and what others published."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

import pandas as pd

from robustassay import models
from robustassay.errors import AssayError, BadRequest
from robustassay.evaluation import Result
from robustassay.leaderboard import records_file
from robustassay.leaderboard.card import EntryCard, card_of_zoo
from robustassay.leaderboard.entry import Entry, arena_of, measured
from robustassay.leaderboard.model_info import read_folder
from robustassay.store import MANIFEST, SEARCH

CARD: Final = "card.json"


@final
@dataclass(frozen=True, eq=False)
class Gathered:
    """The entries, and a sentence on everything that was left out."""

    entries: tuple[Entry, ...]
    problems: tuple[str, ...]


@final
@dataclass(eq=False)
class _Pile:
    """All results of one model, and its card where somebody wrote one."""

    card: EntryCard | None = None
    results: dict[str, Result] = field(default_factory=dict)

    def put(self, result: Result) -> None:
        """Add a run; one of a key that is here already adds the samples that are new."""
        key = str(result.manifest["key"])
        if (held := self.results.get(key)) is not None:
            records = pd.concat([held.records, result.records], ignore_index=True).drop_duplicates("sample_id")
            result = Result(held.manifest, records, None)
        self.results[key] = result


def gather(places: Sequence[Path], published: Sequence[Path] = ()) -> Gathered:
    """Read runs, records files and submissions in these places or below them, and published folders."""
    piles: dict[str, _Pile] = defaultdict(_Pile)
    problems: list[str] = []
    for path in _sources(places):
        try:
            result = records_file.read(path)
            if not len(result.records):
                raise BadRequest("it has no records yet; finish it first.")
            pile = piles[model_id(result)]
            pile.put(result)
            if (beside := path.parent / CARD).is_file():
                pile.card = EntryCard.read(beside)
        except (AssayError, OSError) as error:
            problems.append(f"{path}: {error}")
    entries = _entries(piles.values())
    for folder in published:
        more, wrong = read_folder(folder)
        entries += more
        problems += wrong
    if not entries:
        told = f": {problems[0]}" if problems else "."
        raise BadRequest(f"A leaderboard needs a run or a published entry, and none could be read{told}")
    return Gathered(tuple(entries), tuple(problems))


def model_id(result: Result) -> str:
    """Return what tells a model from all others, whatever it is called."""
    told = result.manifest["spec"]["model"].items()
    return json.dumps({key: value for key, value in told if key not in ("name", *SEARCH)}, sort_keys=True)


def _entries(piles: Iterable[_Pile]) -> list[Entry]:
    whole = [pile for pile in piles if pile.results]
    cards = [pile.card or _own_card(next(iter(pile.results.values()))) for pile in whole]
    namesakes = Counter(card.name for card in cards)
    entries = []
    for card, pile in zip(cards, whole, strict=True):
        weights = str(next(iter(pile.results.values())).manifest["spec"]["model"].get("weights", ""))[:8]
        named = EntryCard(**{**vars(card), "name": f"{card.name}-{weights}"}) if namesakes[card.name] > 1 else card
        by_arena: dict[Any, list[Result]] = defaultdict(list)
        for result in pile.results.values():
            by_arena[arena_of(result.manifest["spec"])].append(result)
        entries += [measured(named, together) for together in by_arena.values()]
    return entries


def _own_card(result: Result) -> EntryCard:
    """Take an embedded model's own card, if the run was of these very weights; of another, only its name is known."""
    from robustassay.models.weights import hash_state

    spec = result.manifest["spec"]["model"]
    name = str(spec["name"])
    try:
        if name in models.names() and hash_state(models.load(name)) == spec.get("weights"):
            return card_of_zoo(models.card(name))
    except AssayError:  # A damaged zoo must not take the board with it.
        pass
    return EntryCard(name="".join(letter if letter.isalnum() or letter in "_.+=|:-" else "-" for letter in name))


def _sources(places: Sequence[Path]) -> list[Path]:
    """List the folders of runs and the records files in some places, each once."""
    found: dict[Path, None] = {}
    for place in places:
        if place.is_file() or (place / MANIFEST).is_file():
            here = [place]
        else:
            # Other programs call their files manifest.json too; only ours stands beside shards.
            runs = [path.parent for path in place.rglob(MANIFEST) if (path.parent / "shards").is_dir()]
            inside = set(runs)
            files = [p for p in place.rglob(f"*{records_file.SUFFIX}") if p.parent.parent not in inside]
            here = sorted(runs) + sorted(path for path in files if _is_records(path))
        if not here:
            raise BadRequest(f"{place} holds no run and no records file: give the folder named by --out, or one above.")
        found |= dict.fromkeys(path.resolve() for path in here)
    return list(found)


def _is_records(path: Path) -> bool:
    """Say whether a Parquet file is one of ours: studies keep other tables beside their runs."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return records_file.ABOUT in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowException):
        return True  # damaged: it is named when it is read
