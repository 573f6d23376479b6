"""Short names of threats, settings and attacks, as tables and pages write them."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from robustassay.eps import format_eps
from robustassay.registry import spell_setting
from robustassay.results.identity import search_settings

if TYPE_CHECKING:
    from robustassay.results.runs import StoredRun

_NORM: Final = {"Linf": "L∞"}


def threat_label(threat: Mapping[str, Any]) -> str:
    """Write a threat as L∞ 8/255, with its target rule and query budget where it has them."""
    words = [_NORM.get(threat["norm"], str(threat["norm"])), format_eps(float(threat["eps"]))]
    if threat.get("target"):
        words.append(f"targeted {threat['target']}")
    if threat.get("query_budget"):
        words.append(f"in {threat['query_budget']:,} queries")
    return " ".join(words)


def settings_label(fields: Mapping[str, Any]) -> str:
    """Write all fields but the name: steps 40, rel_step 0.1."""
    return ", ".join(f"{key} {spell_setting(value)}" for key, value in fields.items() if key != "name")


def attack_labels(runs: "Iterable[StoredRun]") -> dict[str, str]:
    """Name each run by its attack, and by the settings in which runs of the same attack differ; by key of the run."""
    by_attack: dict[str, list[StoredRun]] = defaultdict(list)
    for run in runs:
        by_attack[run.attack].append(run)
    return {run.key: _label(run, varied) for same in by_attack.values() for varied in [_varied(same)] for run in same}


def _settings(run: "StoredRun") -> dict[str, Any]:
    return {**run.spec["attack"], **search_settings(run.spec["model"]), "seed": run.spec["seed"]}


def _varied(runs: "Sequence[StoredRun]") -> list[str]:
    settings = [_settings(run) for run in runs]
    every = dict.fromkeys(key for one in settings for key in one)
    return [key for key in every if len({json.dumps(one.get(key)) for one in settings}) > 1]


def _label(run: "StoredRun", varied: "Sequence[str]") -> str:
    settings = _settings(run)
    shown = ", ".join(f"{key} {spell_setting(settings[key])}" for key in varied if key in settings)
    return f"{run.attack} ({shown})" if shown else run.attack
