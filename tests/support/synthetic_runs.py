"""Writes synthetic runs of many models and attacks, to test the report at a size that no test can attack."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from robustassay.evaluation.spec import SPEC_VERSION
from robustassay.records import SCHEMA, SCHEMA_VERSION
from robustassay.store import Store

ATTACKS = ("uniform-noise", "fgsm", "pgd", "apgd", "square", "fmn", "deepfool", "cw", "mim", "bim")
EPS = 8 / 255


def write_runs(folder: Path, models: int, attacks: int, samples: int) -> None:
    """Write runs of `models` x `attacks` on the same samples; later models are harder to break."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 10, samples)
    for model in range(models):
        clean = draw.random(samples) < 0.95 - 0.2 * model / models
        needed = draw.random(samples) * 2 * EPS * (model + 1) / models
        for attack in range(attacks):
            name = ATTACKS[attack % len(ATTACKS)]
            seeks = name in ("fmn", "deepfool", "cw")
            reached = needed * (1 + draw.random(samples) / (attack + 1))
            table = _records(clean, labels, reached, draw.integers(1, 100, samples), seeks)
            _write(folder / f"{model}-{attack}", f"model-{model:03d}", {"name": name, "variant": attack}, table)


def _records(clean, labels, reached, came, seeks) -> pa.Table:
    success = ~clean | (reached <= EPS)
    claimed = success | seeks
    distance = np.where(clean, reached if seeks else EPS, 0.0)
    claims = [
        [{"iteration": int(at), "query": int(at), "distance": float(far)}] if found else []
        for at, far, found in zip(came, distance, claimed, strict=True)
    ]
    known = {
        "sample_id": [f"{at:05d}" for at in range(len(clean))],
        "label": labels,
        "clean_label": labels,
        "adv_label": (labels + 1) % 10,
        "clean_ok": clean,
        "claimed": claimed,
        "valid": pa.array(claimed, mask=~claimed),
        "success": success,
        "uint8_ok": pa.array(success, mask=~success),
        "distance": pa.array(distance, mask=~claimed),
        "margin": np.where(success, -0.5, 0.5),
        "clean_margin": np.ones(len(clean)),
        **{name: np.where(success, came, 100) for name in ("iterations", "forwards", "backwards", "queries")},
        **{f"claimed_at_{name}": pa.array(came, mask=~claimed) for name in ("iteration", "query")},
        "improvements": pa.array(claims, SCHEMA.field("improvements").type),
        **_details(labels, success, came, seeks),
        "seconds": np.full(len(clean), 0.01),
    }
    columns = [known.get(field.name, pa.nulls(len(clean), field.type)) for field in SCHEMA]
    return pa.table(columns, SCHEMA.names).cast(SCHEMA)


def _details(labels, success, came, seeks) -> dict[str, pa.Array]:
    """A margin that falls from 1 in ten steps, and five logits on both sides."""
    steps = np.linspace(1.0, 0.5, 11)
    ends = np.where(success, -0.5, 0.5)
    margins = [[] if seeks else [*steps[:-1], end] for end in ends]
    queries = [[] if seeks else [*range(10), int(at) + 9] for at in came]
    classes = (labels[:, None] + np.arange(5)) % 10
    lists = {
        "trace_queries": queries,
        "trace_margins": margins,
        "clean_top_labels": classes.tolist(),
        "clean_top_logits": np.tile([8.0, 7.0, 1.5, 0.25, -3.0], (len(labels), 1)).tolist(),
        "adv_top_labels": np.where(success[:, None], classes[:, [1, 0, 2, 3, 4]], classes).tolist(),
        "adv_top_logits": np.tile([7.75, 7.25, 1.5, 0.25, -3.0], (len(labels), 1)).tolist(),
    }
    return {name: pa.array(values, SCHEMA.field(name).type) for name, values in lists.items()}


def _write(folder: Path, model: str, attack: dict[str, object], table: pa.Table) -> None:
    spec = {
        "model": {"name": model, "weights": hashlib.sha256(model.encode()).hexdigest()},
        "data": {"name": "synthetic", "sha256": "0" * 64},
        "threat": {"norm": "Linf", "eps": EPS, "target": None, "query_budget": None},
        "attack": attack,
        "seed": 0,
        "version": SPEC_VERSION,
    }
    key = hashlib.sha256(json.dumps(spec).encode()).hexdigest()[:16]
    title, started = f"{attack['name']} on {model}", "2026-01-01T00:00:00"
    manifest = {"key": key, "schema": SCHEMA_VERSION, "spec": spec, "title": title, "started": started}
    Store.open(folder, manifest).append(table)
