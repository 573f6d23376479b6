"""The default folder of a run: named after the command, with the key of the run at the end."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from robustassay.names import slug

if TYPE_CHECKING:
    from robustassay.evaluation.prepare import PreparedEvaluation

RUNS: Final = Path("runs")
_KEY_PATTERN: Final = "[0-9a-f]" * 8


def default_folder(prepared: "PreparedEvaluation", attacks: Sequence[str], labels: Sequence[str]) -> Path:
    """Name a folder after the command; another run, even of the same command, gets another folder."""
    threat = str(prepared.threat).replace("∞", "inf")  # folder names are plain letters
    words = (prepared.model_ref.name, prepared.dataset.name, threat, "+".join(attacks))
    parts = (*words, f"seed{prepared.seed}", *labels)
    return RUNS / "_".join([*(slug(part, ".+=-") for part in parts), prepared.key])


def explain_new_folder(folder: Path, prepared: "PreparedEvaluation") -> str | None:
    """Say why a new folder is used though there are runs of the same command; None where there is none."""
    if folder.exists():
        return None
    models = [*_models_of_older_runs(folder)]
    if not models:
        return None
    identity = dict(prepared.model_ref.identity)
    if any(identity == {name: model.get(name) for name in identity} for model in models):
        return "Other settings than in earlier runs of this command: new run."
    return f"New version of {_file_or_name(prepared.model_ref.name)}: new run."


def _models_of_older_runs(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Read the models of the runs whose folders differ from this one in the key only."""
    command = folder.name.rpartition("_")[0]
    for older in sorted(folder.parent.glob(f"{_escaped(command)}_{_KEY_PATTERN}")):
        for path in (older / "manifest.json", *sorted(older.glob("*/manifest.json"))):
            try:
                yield json.loads(path.read_text(encoding="utf-8"))["spec"]["model"]
            except (OSError, ValueError, KeyError, TypeError):
                continue


def _escaped(text: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in text)


def _file_or_name(model: str) -> str:
    inner = model.rpartition("|")[2].strip()
    return Path(inner.rpartition(":")[0]).name if ".py:" in inner else inner
