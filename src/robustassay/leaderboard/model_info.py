"""RobustBench's `model_info` files: DATASET/THREAT/NAME.json, one file per model, all numbers in percent as text.

A file that cannot be read is named and left out, and does not stop the others.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from robustassay import shards
from robustassay.eps import format_eps, parse_eps
from robustassay.errors import BadData, BadRequest
from robustassay.leaderboard.card import EntryCard
from robustassay.leaderboard.entry import Accuracy, BoardThreat, Entry

THREATS: Final = ("Linf", "L2", "L1", "L0", "corruptions", "corruptions_3d")
_MOST_BYTES: Final = 1 << 20
CLAIMED: Final = "the authors' own evaluation or another's, as published"


def to_model_info(entry: Entry) -> dict[str, Any]:
    """Write an entry in RobustBench's fields; `autoattack_acc` is left empty where another attack was run."""
    card, threat = entry.card, entry.threat
    by_autoattack = entry.robust.by in ("autoattack", "autoattack, confirmed") or entry.kind == "published"
    below = entry.best_known if entry.best_known.value < entry.robust.value or not by_autoattack else None
    notes = [card.footnote, "" if below is None else f"{_percent(below.value)}% robust accuracy is due to {below.by}."]
    info = {
        "link": card.link,
        "name": card.title or card.name,
        "authors": card.authors,
        "additional_data": bool(card.additional_data),
        "number_forward_passes": card.number_forward_passes,
        "dataset": threat.dataset,
        "venue": card.venue or "N/A",
        "architecture": card.architecture,
        "eps": None if threat.eps is None else format_eps(threat.eps),
        "clean_acc": _percent(entry.clean.value),
        "reported": None if card.reported is None else _percent(card.reported),
        "footnote": " ".join(filter(None, notes)),
        "unreliable": entry.unreliable,
    }
    if threat.norm.startswith("corruptions"):
        mce = {} if entry.corruption_error is None else {"corruptions_mce": _percent(entry.corruption_error)}
        return info | {"corruptions_acc": _percent(entry.robust.value)} | mce
    return info | {
        "autoattack_acc": _percent(entry.robust.value) if by_autoattack else None,
        "external": None if below is None else _percent(below.value),
    }


def read_folder(folder: Path) -> tuple[list[Entry], list[str]]:
    """Read every file below a folder; return the entries, and a sentence on each file that is left out."""
    if not folder.is_dir():
        raise BadRequest(f"{folder} is no folder: give RobustBench's model_info, or one like it.")
    entries, problems = [], []
    for path in sorted(folder.rglob("*.json")):
        try:
            entries.append(_entry(path))
        except BadRequest as error:
            problems.append(f"{path.relative_to(folder)}: {error}")
    if not entries and not problems:
        raise BadRequest(f"{folder} holds no .json file: give RobustBench's model_info, or a folder like it.")
    return entries, problems


def _entry(path: Path) -> Entry:
    try:
        info = json.loads(shards.read_limited(path, _MOST_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise BadData(f"it is not JSON ({error})") from error
    if not isinstance(info, dict):
        raise BadData("it is not a JSON object")
    if (threat := path.parent.name) not in THREATS:
        raise BadData(f"its folder {threat!r} names no threat ({', '.join(THREATS)})")
    return entry_of(path.stem, threat, info)


def entry_of(name: str, threat: str, info: Mapping[str, Any]) -> Entry:
    """Make an entry of RobustBench's fields."""
    corrupted = threat.startswith("corruptions")
    eps = None if corrupted else _eps(info)
    robust = _rate(info, "corruptions_acc_3d" if threat.endswith("3d") else "corruptions_acc") if corrupted else None
    robust = _rate(info, "autoattack_acc") if robust is None else robust
    external = _rate(info, "external", required=robust is None)
    first = external if robust is None else robust
    clean = _rate(info, "clean_acc")
    if first is None or clean is None:
        raise BadData("it has neither autoattack_acc nor external")
    lowest = first if external is None else min(first, external)
    return Entry(
        card=_card(name, info),
        threat=BoardThreat(_text(info, "dataset", required=True), threat, eps),
        kind="published",
        clean=Accuracy(clean, "published", external=True),
        robust=Accuracy(first, "mean over corruptions" if corrupted else "autoattack, published", external=True),
        best_known=Accuracy(lowest, CLAIMED if lowest < first else "as published", external=True),
        unreliable=_flag(info, "unreliable") or False,
        corruption_error=_rate(info, "corruptions_mce", most=math.inf) if corrupted else None,
    )


def _card(name: str, info: Mapping[str, Any]) -> EntryCard:
    passes = info.get("number_forward_passes", 1)
    if not isinstance(passes, int) or isinstance(passes, bool) or passes < 1:
        raise BadData(f"its number_forward_passes must be a whole number, not {passes!r}")
    venue = _text(info, "venue")
    return EntryCard(
        name=name.replace(" ", "_"),
        title=_text(info, "name", required=True),
        authors=_text(info, "authors"),
        link=_text(info, "link"),
        venue="" if venue == "N/A" else venue,
        architecture=_text(info, "architecture"),
        additional_data=_flag(info, "additional_data"),
        number_forward_passes=passes,
        reported=_rate(info, "reported", required=False),
        footnote=_text(info, "footnote"),
    )


def _eps(info: Mapping[str, Any]) -> float:
    try:
        return parse_eps(info.get("eps"))
    except BadRequest:
        raise BadData(f"its eps must be such as '8/255', not {info.get('eps')!r}") from None


def _rate(info: Mapping[str, Any], key: str, required: bool | None = None, most: float = 100.0) -> float | None:
    """Read a percentage; `clean_acc` is always required."""
    text = info.get(key)
    if text is None or text == "":
        if required or (required is None and key == "clean_acc"):
            raise BadData(f"it lacks {key}")
        return None
    try:
        value = float(text) if not isinstance(text, bool) else math.nan
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value <= most or math.isinf(value):
        raise BadData(f"its {key} must be a percentage, not {text!r}")
    return round(value / 100, 6)  # as printed: 79.28 is 0.7928


def _text(info: Mapping[str, Any], key: str, required: bool = False) -> str:
    value = info.get(key)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or (required and not value):
        raise BadData(f"its {key} must be text, not {value!r}")
    return value


def _flag(info: Mapping[str, Any], key: str) -> bool | None:
    value = info.get(key)
    if value is not None and not isinstance(value, bool):
        raise BadData(f"its {key} must be true or false, not {value!r}")
    return value


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"
