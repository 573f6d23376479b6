"""The command line that repeats a run."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from robustassay import data
from robustassay.eps import format_eps
from robustassay.errors import AssayError
from robustassay.models.from_file import is_file_spec
from robustassay.models.sources import is_source_spec
from robustassay.names import slug
from robustassay.registry import spell_described
from robustassay.results.runs import StoredRun

DEFAULT_NORM: Final = "Linf"
"""The norm that `assay eval` takes if none is given; commands leave it out."""

_REFUSED_FLAGS: Final = frozenset({"no-gradients", "softmax"})
"""Models with these flags are refused unless --despite-flags is given."""


@final
@dataclass(frozen=True)
class RepeatCommand:
    """A command line, or the reason why there is none, and what it needs."""

    command: str | None
    note: str | None = None


def repeat(run: StoredRun, samples: int, loadable: bool) -> RepeatCommand:
    """Write the command that makes the same records; `loadable` is what `is_loadable` says of the model."""
    reason = _no_command(run, loadable)
    if reason is not None:
        return RepeatCommand(None, reason)
    words = _words(run, [attack_option(run.spec["attack"])], _despite(run), samples)
    return RepeatCommand(shlex.join(words), None if run.data in data.names() else _other_data(run))


def repeat_evaluation(run: StoredRun, others: Sequence[StoredRun], samples: int, loadable: bool) -> RepeatCommand:
    """Write the command of the evaluation that a remedy or a confirming run is part of.

    `others` are the runs whose samples it covers, of `samples` samples.
    """
    plain = [one for one in others if "remedy" not in one.spec["attack"]]
    if not plain or any(_no_command(one, loadable) for one in plain):
        return repeat(run, samples, loadable)
    switch = ["--adaptive", "auto"] if "remedy" in run.spec["attack"] else ["--confirm", *_despite(plain[0])]
    words = _words(plain[0], [attack_option(one.spec["attack"]) for one in plain], switch, samples)
    return RepeatCommand(shlex.join(words), "This repeats the whole evaluation, of which this run is a part.")


def _despite(run: StoredRun) -> list[str]:
    return ["--despite-flags"] if _REFUSED_FLAGS & run.manifest.get("flags", {}).keys() else []


def _words(run: StoredRun, attacks: Sequence[str], switches: Sequence[str], samples: int) -> list[str]:
    """Write a command in words: the model, data, threat and search of a run."""
    threat, target = run.spec["threat"], run.spec["threat"].get("target")
    words = ["assay", "eval", run.model, "--data", run.data, "--attack", *attacks]
    words += [*_threat_options(run), "--seed", str(run.spec["seed"])]
    words += ["--targeted", str(target)] if target else []
    words += ["--query-budget", str(threat["query_budget"])] if threat.get("query_budget") else []
    return [*words, *_search_options(run), *switches, "--limit", str(samples), "--out", f"runs/{run.key}"]


def _threat_options(run: StoredRun) -> list[str]:
    norm, eps = str(run.spec["threat"]["norm"]), format_eps(float(run.spec["threat"]["eps"]))
    return [*(() if norm == DEFAULT_NORM else ("--norm", norm)), "--eps", eps]


def with_attack(run: StoredRun, samples: int, loadable: bool, attack: str) -> str:
    """Write the command that runs another attack on the model of a run, under its threat."""
    model = run.model if loadable else "MODEL"
    words = ["assay", "eval", model, "--data", run.data, "--attack", attack, *_threat_options(run)]
    words += ["--limit", str(samples)]
    return shlex.join([*words, "--keep-images", "--out", f"runs/{slug(run.model)}-{attack}"])


def attack_option(spec: Mapping[str, Any]) -> str:
    """Write an attack as `--attack` reads it: pgd:steps=40,rel_step=0.1."""
    return spell_described(spec)


def _search_options(run: StoredRun) -> list[str]:
    """Write how the model was searched; exact search and no surrogate give the same records."""
    model = run.spec["model"]
    options = [] if "service" in model else ["--precision", "fast" if "search" in model else "exact"]
    return options + (["--eot", str(model["eot"])] if "eot" in model else [])


def _no_command(run: StoredRun, loadable: bool) -> str | None:
    """Say why no command line repeats a run; None where one does."""
    attack, target = run.spec["attack"], run.spec["threat"].get("target")
    if not loadable:
        return "The model was passed in Python, so no command line can name it."
    if "remedy" in attack:
        return "This run is part of an adaptive evaluation: repeat the runs it belongs to with --adaptive auto."
    if run.confirms:
        return "This run covers only the samples that other runs left in doubt: repeat those runs with --confirm."
    if "." in run.attack or not all(isinstance(value, bool | int | float | str | Mapping) for value in attack.values()):
        return "The attack was passed in Python, so no command line can name it."
    if target and str(target).startswith("list:"):
        return "The targets came from a list that the run does not hold; add it with --targeted FILE."
    return None


def is_loadable(model: Mapping[str, Any]) -> bool:
    """Say whether `assay eval` loads the model of a specification by its name.

    Runs may come from other people: only embedded models behind known defenses are loaded to compare their weights.
    """
    from robustassay.evaluation.model_ref import ModelRef
    from robustassay.leaderboard import whitelist
    from robustassay.remote import is_service

    name = str(model["name"])
    inner = name.rpartition("|")[2].strip()
    if "service" in model:
        return is_service(name)
    if "source" in model:
        return is_file_spec(inner) or is_source_spec(inner)
    try:
        found = ModelRef.of(whitelist.model(name), name).identity
    except AssayError:  # another name, an unknown defense, or a damaged zoo
        return False
    return all(model.get(key) == value for key, value in found.items())


def _other_data(run: StoredRun) -> str:
    sha256 = run.spec["data"]["sha256"][:8]
    return f"Put the path of your copy of {run.data} after --data; its SHA-256 begins with {sha256}."
