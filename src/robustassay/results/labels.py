"""Short names of threats, settings and attacks, as tables and pages write them."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from robustassay.eps import format_eps, format_norm
from robustassay.registry import spell_setting
from robustassay.results.identity import search_settings

if TYPE_CHECKING:
    from robustassay.results.runs import StoredRun

_ALWAYS: Final = ("remedy",)
"""Settings that are named even where all runs of the attack share them: such a run covers few samples."""


def threat_label(threat: Mapping[str, Any]) -> str:
    """Write a threat as L∞ 8/255, with its target rule and query budget where it has them."""
    words = [format_norm(str(threat["norm"])), format_eps(float(threat["eps"]))]
    if threat.get("target"):
        words.append(f"targeted {threat['target']}")
    if threat.get("query_budget"):
        words.append(f"in {threat['query_budget']:,} queries")
    return " ".join(words)


def threat_fields(threat: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a threat as pages write them: norm L∞, eps 8/255."""
    return {**threat, "norm": format_norm(str(threat["norm"])), "eps": format_eps(float(threat["eps"]))}


def settings_label(fields: Mapping[str, Any]) -> str:
    """Write all fields but the name: steps 40, rel_step 0.1."""
    return ", ".join(f"{key} {spell_setting(value)}" for key, value in fields.items() if key != "name")


def attack_labels(runs: "Iterable[StoredRun]") -> dict[str, str]:
    """Name each run by its attack, and by the settings in which runs of the same attack differ; by key of the run.

    How the model was searched is only named where runs of one attack on one model under one threat differ in it.
    """
    by_attack: dict[str, list[StoredRun]] = defaultdict(list)
    by_model: dict[tuple[str, ...], list[StoredRun]] = defaultdict(list)
    for run in runs:
        by_attack[run.attack].append(run)
        by_model[_repeated(run)].append(run)
    attack_keys = {name: _varied([_attack_settings(run) for run in same]) for name, same in by_attack.items()}
    search_keys = {about: _varied([_search_settings(run) for run in same]) for about, same in by_model.items()}
    return {
        run.key: _label(run, [*attack_keys[run.attack], *search_keys[_repeated(run)]])
        for same in by_attack.values()
        for run in same
    }


def _repeated(run: "StoredRun") -> tuple[str, ...]:
    """Return what two runs share that differ in settings only."""
    return run.attack, run.model_id, run.comparison_key


def _attack_settings(run: "StoredRun") -> dict[str, Any]:
    return {**run.spec["attack"], "seed": run.spec["seed"]}


def _search_settings(run: "StoredRun") -> dict[str, Any]:
    return search_settings(run.spec["model"])


def _varied(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys whose values are not the same in all settings."""
    every = dict.fromkeys(key for one in settings for key in one)
    return [key for key in every if len({json.dumps(one.get(key)) for one in settings}) > 1]


def _label(run: "StoredRun", varied: Sequence[str]) -> str:
    settings = {**_attack_settings(run), **_search_settings(run)}
    named = dict.fromkeys((*_ALWAYS, *varied))
    shown = ", ".join(f"{key} {spell_setting(settings[key])}" for key in named if key in settings)
    return f"{run.attack} ({shown})" if shown else run.attack
