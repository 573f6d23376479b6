"""The command line that repeats a run."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from robustassay import data
from robustassay.eps import format_eps
from robustassay.models.from_file import is_file_spec
from robustassay.report.runs import Run


@final
@dataclass(frozen=True)
class Recipe:
    """A command, or why there is none, and what to mind."""

    command: str | None
    note: str | None = None


def repeat(run: Run, samples: int, embedded: bool) -> Recipe:
    """Write the command that makes the same records; `embedded` says that the model ships with assay."""
    model, threat, attack = run.spec["model"], run.spec["threat"], run.spec["attack"]
    if not (embedded or ("source" in model and is_file_spec(run.model))):
        return Recipe(None, "The model was handed over in Python, so no command line can name it.")
    if "." in run.attack or not all(isinstance(value, bool | int | float | str) for value in attack.values()):
        return Recipe(None, "The attack was handed over in Python, so no command line can name it.")
    target = threat.get("target")
    if target and str(target).startswith("list:"):
        return Recipe(None, "The targets came from a list that the run does not hold; add it with --targeted FILE.")
    words_of = ["assay", "eval", run.model, "--data", run.data, "--attack", attack_option(attack)]
    words_of += ["--norm", threat["norm"], "--eps", format_eps(float(threat["eps"])), "--seed", str(run.spec["seed"])]
    words_of += ["--targeted", str(target)] if target else []
    words_of += ["--query-budget", str(threat["query_budget"])] if threat.get("query_budget") else []
    words_of += ["--limit", str(samples), "--out", f"runs/{run.key}"]
    return Recipe(shlex.join(words_of), None if run.data in data.names() else _other_data(run))


def attack_option(spec: Mapping[str, Any]) -> str:
    """Write an attack as `--attack` reads it: pgd:steps=40,rel_step=0.1."""
    fields = ",".join(f"{key}={_plain(value)}" for key, value in spec.items() if key != "name")
    return f"{spec['name']}:{fields}" if fields else str(spec["name"])


def _plain(value: bool | int | float | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _other_data(run: Run) -> str:
    sha256 = run.spec["data"]["sha256"][:12]
    return f"Put the path of your copy of {run.data} after --data; its SHA-256 begins with {sha256}."
