"""Runs one attack on one wave of samples, then has every claim verified."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import pyarrow as pa
import torch
from torch import Tensor

from assay.attacks.attack import Attack
from assay.evaluation.verify import Claims, verify
from assay.records import SCHEMA
from assay.rng import Streams
from assay.target import Ledger, Network, NoRowsLeft
from assay.threat import Ball, Targeted, ThreatModel, labels_of


@final
@dataclass(frozen=True)
class Wave:
    """The samples in flight together."""

    ids: Sequence[str]
    x0: Tensor
    labels: Tensor


def run_wave(
    network: Network,
    attack: Attack[Any],
    threat: ThreatModel,
    wave: Wave,
    seed: int,
    query_budget: int | None,
    pulse: Callable[[Ledger], None],
) -> tuple[pa.Table, Tensor]:
    """Attack a wave and return its verified records and its adversarial images, clean where none was found."""
    started = time.perf_counter()
    clean_logits = network.logits(wave.x0)
    goal = threat.goal(wave.ids, wave.labels, clean_logits, seed)
    eps = torch.full((len(wave.ids),), threat.norm.eps, device=network.device)
    ledger = Ledger(Ball(threat.norm, wave.x0, eps), goal, attack.seeks_minimum, query_budget)
    ledger.look_at_clean(clean_logits)
    rng = Streams.of(seed, wave.ids, network.device)
    for _ in range(getattr(attack, "restarts", 1)):
        _attack_survivors(network, attack, ledger, rng, pulse)
    verdicts, valid = _judge(network, threat, wave, ledger, clean_logits)
    columns = verdicts | _costs(ledger, time.perf_counter() - started)
    records = pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)
    x_adv = wave.x0.cpu().clone()
    x_adv[valid] = ledger.x_adv.cpu()[valid]
    return records, x_adv


def _attack_survivors(
    network: Network, attack: Attack[Any], ledger: Ledger, rng: Streams, pulse: Callable[[Ledger], None]
) -> None:
    """Run the attack once on the rows that still stand, and look at the last point it returns."""
    ledger.dismissed[:] = False
    rows = (~ledger.done).nonzero().squeeze(1)
    if not len(rows):
        return
    box = attack.access(network, ledger, rng.among(rows), rows, pulse)
    try:
        box.decisions(attack(box, box.ball.centre))
    except NoRowsLeft:
        return


def _judge(
    network: Network, threat: ThreatModel, wave: Wave, ledger: Ledger, clean_logits: Tensor
) -> tuple[dict[str, Any], Tensor]:
    """Verify all claims; return the columns of the records and which claims hold."""
    goal, rows, n = ledger.goal, ledger.claimed.nonzero().squeeze(1), len(wave.ids)
    targeted = isinstance(goal, Targeted)
    claims = Claims(
        x0=wave.x0[rows],
        x_adv=ledger.x_adv[rows],
        wanted=goal.labels[rows],
        targeted=targeted,
        norm=threat.norm.name,
        eps=threat.norm.eps,
        any_distance=ledger.seeks_minimum,
    )
    verdict = verify(network.module, network.device, claims)
    success = verdict.valid & verdict.within_eps
    margin = ledger.lowest_margin.double().index_copy(0, rows, torch.from_numpy(verdict.margin).to(rows.device))
    clean_label = labels_of(clean_logits)
    columns = {
        "sample_id": list(wave.ids),
        "label": _array(wave.labels),
        "target": _array(goal.labels) if targeted else [None] * n,
        "clean_label": _array(clean_label),
        "clean_ok": _array(clean_label == wave.labels),
        "claimed": _array(ledger.claimed),
        "valid": _at(rows, verdict.valid, n),
        "problem": _at(rows, verdict.problem, n),
        "success": [bool(found) for found in _at(rows, success, n)],
        "distance": _at(rows, verdict.distance, n),
        "adv_label": _at(rows, verdict.label, n),
        "margin": _array(margin),
        "uint8_ok": _at(rows, [ok if won else None for ok, won in zip(verdict.uint8_ok, success, strict=True)], n),
        "claimed_at_iteration": _at(rows, _array(ledger.claimed_at_iteration[rows]), n),
        "claimed_by": ledger.claimed_by,
        "claimed_at_query": _at(rows, _array(ledger.claimed_at_query[rows]), n),
    }
    valid = torch.zeros(n, dtype=torch.bool)
    valid[rows.cpu()] = torch.from_numpy(verdict.valid)
    return columns, valid


def _costs(ledger: Ledger, seconds: float) -> dict[str, Any]:
    """Return what each row cost; time is shared by model passes, a backward counting as two forwards."""
    passes = 1.0 + ledger.forwards + 2 * ledger.backwards
    counts = {name: _array(getattr(ledger, name)) for name in ("iterations", "forwards", "backwards", "queries")}
    return {**counts, "seconds": _array(passes.double() / passes.sum() * seconds)}


def _array(values: Tensor) -> Any:
    return values.cpu().numpy()


def _at(rows: Tensor, values: Sequence[Any] | Any, n: int) -> list[Any]:
    """Put values at their rows and None elsewhere."""
    column: list[Any] = [None] * n
    for row, value in zip(rows.tolist(), values, strict=True):
        column[row] = value
    return column
