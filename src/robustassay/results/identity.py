"""What a manifest says about the identity of a run: its model, its attack, and the runs that it confirms."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

CONFIRMS: Final = "confirms"
"""Manifest key of a run that covers only the samples that other runs left in doubt; it lists the keys of those runs."""

ADAPTIVE: Final = "adaptive"
"""Manifest key of the diagnosis of the model, or of the remedy that the run applies."""

SEARCH_KEYS: Final = ("eot", "search")
"""Model fields of a specification that say how the attack searched (EOT draws, surrogate), not which model it is."""


def model_identity(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that identify a model, without those that say how it was searched."""
    return {key: value for key, value in model.items() if key not in SEARCH_KEYS}


def search_settings(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that say how a model was searched."""
    return {key: model[key] for key in SEARCH_KEYS if key in model}


def model_id(model: Mapping[str, Any]) -> str:
    """Return a string that is equal for two runs if, and only if, they evaluated the same model under the same name."""
    return json.dumps(model_identity(model), sort_keys=True)


def nameless_model_id(model: Mapping[str, Any]) -> str:
    """Return a string that is equal for two runs of the same model, whatever they call it."""
    return model_id({key: value for key, value in model.items() if key != "name"})


def comparison(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return what runs must share so that their worst case can be taken: model, data and threat."""
    return {"model": model_identity(spec["model"]), "data": spec["data"], "threat": spec["threat"]}


def run_key(manifest: Mapping[str, Any]) -> str:
    """Return the key of a run: the hash of its specification."""
    return str(manifest["key"])


def attack_name(manifest: Mapping[str, Any]) -> str:
    """Return the name of the attack of a run."""
    return str(manifest["spec"]["attack"]["name"])


def norm_name(manifest: Mapping[str, Any]) -> str | None:
    """Return the name of the norm of a run, such as L1."""
    norm = manifest.get("spec", {}).get("threat", {}).get("norm")
    return None if norm is None else str(norm)


def is_noise(manifest: Mapping[str, Any]) -> bool:
    """Say whether the attack of a run is a random baseline."""
    return attack_name(manifest).endswith("noise")


def limited_to_queries(manifest: Mapping[str, Any]) -> bool:
    """Say whether the attacker of a run only sends queries: to a service, or within a query budget."""
    spec = manifest["spec"]
    return "service" in spec["model"] or bool(spec["threat"].get("query_budget"))


def confirmed_run_keys(manifest: Mapping[str, Any]) -> frozenset[str]:
    """Return the keys of the runs whose samples in doubt this run covers; empty for an ordinary run."""
    return frozenset(map(str, manifest.get(CONFIRMS, ())))


def merge_manifests(manifests: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the manifest of several folders with one key: the run only confirms others if all of them do."""
    first = manifests[0]
    confirmed = [confirmed_run_keys(manifest) for manifest in manifests]
    without = {key: value for key, value in first.items() if key != CONFIRMS}
    return {**without, CONFIRMS: sorted(frozenset().union(*confirmed))} if all(confirmed) else without


def hardware_name(manifest: Mapping[str, Any]) -> str:
    """Return the hardware of a run, such as cpu (x86_64)."""
    found = manifest.get("hardware", {})
    return f"{found.get('device', 'unknown')} ({found.get('machine', 'unknown')})"
